"""Finds a template and fills it in. What goes in are values; no text of the user's is ever read as a template."""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.experiment.names import file_at
from kaggle_orchestrator.experiment.rules import TEMPLATE_FILE
from kaggle_orchestrator.experiment.shipped import shipped


def folder_of(experiment: Experiment) -> Path:
    """The folder of ``kernel.template``: one that ships with kgo, or one of the user's own."""
    name = experiment.kernel.template
    own = "/" in name or name.startswith(".")
    return file_at(experiment.root, name) if own else shipped("kernel_templates") / name


def expand(experiment: Experiment, values: Mapping[str, object]) -> str:
    """The kernel's source.

    Raises:
        RenderError: The template is missing or broken.
    """
    folder = folder_of(experiment)
    environment = Environment(
        loader=FileSystemLoader(folder, encoding="utf-8"),
        undefined=StrictUndefined,
        autoescape=False,  # the text is Python, not HTML
        keep_trailing_newline=True,
        newline_sequence="\n",
    )
    try:
        return environment.get_template(TEMPLATE_FILE).render(values)
    except TemplateError as error:
        where = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        raise RenderError(f"{folder / TEMPLATE_FILE}{where}: {error.message or type(error).__name__}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RenderError(f"{folder / TEMPLATE_FILE} can't be read: {error}.") from error
