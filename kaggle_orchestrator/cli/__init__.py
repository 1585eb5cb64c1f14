"""The ``kgo`` command: thin commands over the layers below.

The only package that prints and the only one that turns errors into exit codes. A command's module is imported
when the command is called, so that ``kgo --help`` stays quick.
"""

import errno
from importlib import import_module
from typing import Any

import click

from kaggle_orchestrator import __version__

COMMANDS = {
    "demo": "Train the digits in a chain with a kill, and prove it bit for bit.",
    "init": "Scaffold an experiment.",
    "check": "Check an experiment; push nothing.",
    "render": "Write the kernel folder.",
    "push": "Start the next leg and return.",
    "run": "Drive chains to their target.",
    "status": "Show chains, legs and progress.",
    "pull": "Download verified artifacts.",
    "probe": "Measure how this Kaggle behaves.",
    "local": "The local Kaggle: serve, ps, stop.",
}
"""Each command's one-line help; its module is ``cli.<name>`` and holds it as ``command``."""


EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"kaggle_orchestrator.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Turn the errors of the layers below into a message on stderr and an exit code."""
        from kaggle_orchestrator.protocol import KgoError

        try:
            return super().invoke(ctx)
        except KgoError as error:
            from kaggle_orchestrator.cli.failure import report

            ctx.exit(report(error))
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has seen enough: click ends quietly
                raise
            from kaggle_orchestrator.cli.failure import report_system

            ctx.exit(report_system(error))
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kgo")
def main() -> None:
    """Train past Kaggle's session limit.

    EXP is a kgo.toml or its folder; the default is the current one.
    """
