"""``kgo check``: configuration, static checks, render; pushes nothing."""

import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from kaggle_orchestrator.check import Finding, Report, check
from kaggle_orchestrator.cli.failure import EXIT_FAILED
from kaggle_orchestrator.cli.options import counted, exp_argument, json_option, owner_option, print_json
from kaggle_orchestrator.errors import ConfigError
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.render import MAX_SOURCE

SCHEMA = 1


@click.command("check", short_help="Check an experiment; push nothing.")
@exp_argument
@json_option
@owner_option
@click.option("--ignore", multiple=True, metavar="ID", help="Switch a check off. Can be given several times.")
@click.pass_context
def command(ctx: click.Context, exp: Path, as_json: bool, owner: str, ignore: tuple[str, ...]) -> None:
    """Check the configuration and the code, and render the kernel. Nothing is pushed.

    Exits 1 if something will certainly fail, 2 if kgo.toml is wrong.
    """
    try:
        experiment = load(exp)
    except ConfigError as error:
        if as_json:
            print_json({"schema": SCHEMA, "experiment": str(exp), "faults": [asdict(f) for f in error.faults]})
        raise
    report = check(experiment, owner, environ=os.environ, ignore=ignore)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "experiment": str(exp),
                "faults": [],
                "findings": [asdict(f) for f in report.findings],
                "kernel": _kernel(report),
            }
        )
    else:
        for severity, findings in groupby(report.findings, key=lambda f: f.severity):
            for finding in findings:
                click.echo(_text(severity, finding))
        click.echo(_summary(report), err=True)
    if report.failed:
        ctx.exit(EXIT_FAILED)


def _kernel(report: Report) -> dict[str, object] | None:
    if report.request is None:
        return None
    return {"ref": str(report.request.ref), "bytes": len(report.request.source.encode()), "files": report.files}


def _text(severity: str, finding: Finding) -> str:
    where = f" {finding.where}:" if finding.where else ""
    return f"{severity} [{finding.id}]{where} {finding.message}\n    {finding.fix}"


def _summary(report: Report) -> str:
    kernel = _kernel(report)
    if kernel is None:
        return "kgo: the kernel can't be rendered"
    files = counted(report.files, "file")
    return f"kgo: {kernel['ref']} renders: {files}, {kernel['bytes']:,} bytes of {MAX_SOURCE:,}"
