"""Finds a template and fills it in. What goes in are values; no text of the user's is ever read as a template."""

import json
from collections.abc import Mapping

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.experiment.shipped import shipped
from kaggle_orchestrator.experiment.template import NOTEBOOK, source_file, template_folder
from kaggle_orchestrator.models import KernelType


def expand(experiment: Experiment, values: Mapping[str, object]) -> tuple[str, KernelType]:
    """The kernel's source, and what it is.

    A template may extend or include those that ship with kgo, by their path: ``script/kernel.py.jinja``.

    Raises:
        RenderError: The template is missing or broken.
    """
    folder = template_folder(experiment.root, experiment.kernel.template)
    file = source_file(folder)
    if file is None:
        raise RenderError(f"{folder} holds no template any more.")
    environment = Environment(
        loader=FileSystemLoader([file.parent, shipped("kernel_templates")], encoding="utf-8"),
        undefined=StrictUndefined,
        autoescape=False,  # the text is Python, not HTML
        keep_trailing_newline=True,
        newline_sequence="\n",
    )
    environment.filters["json"] = lambda text: json.dumps(text, ensure_ascii=False)
    try:
        text = environment.get_template(file.name).render(values)
    except TemplateError as error:
        where = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        raise RenderError(f"{file}{where}: {error.message or type(error).__name__}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RenderError(f"{file} can't be read: {error}.") from error
    return text, KernelType.NOTEBOOK if file.name == NOTEBOOK else KernelType.SCRIPT
