"""What the keys of ``kgo.toml`` have to satisfy together, and in view of the files beside it.

A rule keeps quiet where a key it looks at is already known to be wrong: one mistake, one message.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from slugify import slugify

from kaggle_orchestrator.errors import Fault
from kaggle_orchestrator.experiment.names import file_at, text_of
from kaggle_orchestrator.experiment.params import UnknownParameter, substitute
from kaggle_orchestrator.experiment.schema import Document
from kaggle_orchestrator.experiment.template import (
    ENTRY,
    NOTEBOOK,
    SCRIPT,
    entry_file,
    is_own,
    known_templates,
    source_file,
    template_folder,
)
from kaggle_orchestrator.experiment.values import format_duration, shown

LATER_TEMPLATES = ("lightning", "transformers", "keras")


class Rules:
    """The rules over one document.

    Args:
        document: What could be validated; keys at fault are at their defaults.
        root: The folder of the file.
        wrong: Dotted keys that are already known to be at fault.
    """

    def __init__(self, document: Document, root: Path, wrong: Sequence[str]) -> None:
        self.document = document
        self.root = root
        self._wrong = set(wrong)

    def is_wrong(self, *keys: str) -> bool:
        """Whether one of the keys, or the table around it, is known to be at fault."""
        return any(key in self._wrong or key.partition(".")[0] in self._wrong for key in keys)

    def faults(self) -> list[Fault]:
        """What all rules find; their keys count as wrong from then on."""
        found = [*self._kernel(), *self._entry(), *self._args(), *self._chain(), *self._pull(), *self._local()]
        self._wrong.update(re.sub(r"\[\d+\]$", "", f.path) for f in found)
        return found

    def _kernel(self) -> Iterator[Fault]:
        kernel = self.document.kernel
        if kernel.slug is None:
            if not self.is_wrong("kernel.slug"):
                yield Fault("kernel.slug", 'missing: the kernel\'s name on Kaggle, such as "digits-cnn"')
        elif kernel.title is not None and slugify(kernel.title) != kernel.slug:
            yield Fault(
                "kernel.title",
                f"Kaggle makes the slug from the title: this one gives {shown(slugify(kernel.title))}, "
                f"not {shown(kernel.slug)}; leave it out or make them agree",
            )
        if not self.is_wrong("kernel.template"):
            yield from self._template(kernel.template)

    def _template(self, name: str) -> Iterator[Fault]:
        if name in LATER_TEMPLATES:
            yield Fault("kernel.template", f'{shown(name)} is not yet supported; use "script"')
        elif is_own(name):
            if source_file(template_folder(self.root, name)) is None:
                yield Fault("kernel.template", f"there is no {SCRIPT} or {NOTEBOOK} in {name.rstrip('/')}/")
        elif name not in (known := known_templates()):
            close = get_close_matches(name, known, n=1)
            guess = f"; did you mean {shown(close[0])}?" if close else ""
            yield Fault(
                "kernel.template",
                f"no template {shown(name)}{guess} (known: {', '.join(known)}; a folder of your own: ./name)",
            )

    def _entry(self) -> Iterator[Fault]:
        entry = self.document.train.entry
        if entry is None:
            yield from self._brought()
            return
        file = file_at(self.root, entry)
        if file.is_dir():
            yield Fault("train.entry", f"{entry} is a folder; name the script in it")
        elif not file.is_file():
            yield Fault("train.entry", f"there is no file {entry} in {self.root}{self._closest(entry)}")
        elif file.suffix == ".ipynb":
            yield Fault("train.entry", f"{entry} is a notebook; notebooks are not yet supported")
        elif file.suffix != ".py":
            yield Fault("train.entry", f"expected a Python script (.py), got {entry}")

    def _brought(self) -> Iterator[Fault]:
        """Without an entry the template's own is what trains."""
        if self.is_wrong("train.entry", "kernel.template"):
            return
        template = self.document.kernel.template
        if entry_file(template_folder(self.root, template)) is None:
            yield Fault("train.entry", 'missing: the script that trains, such as "train.py"')
        elif file_at(self.root, ENTRY).exists():
            yield Fault(
                "train.entry",
                f"missing: the template {shown(template)} brings a {ENTRY}, and there is one here, too; "
                f"name yours, or rename it",
            )

    def _closest(self, entry: str) -> str:
        folder = file_at(self.root, entry).parent
        names = [text_of(p.name) for p in folder.glob("*.py")] if folder.is_dir() else []
        close = get_close_matches(Path(entry).name, names, n=1)
        return f"; did you mean {Path(entry).with_name(close[0]).as_posix()}?" if close else ""

    def _args(self) -> Iterator[Fault]:
        train = self.document.train
        if self.is_wrong("train.params", "train.args"):
            return
        for n, arg in enumerate(train.args):
            try:
                substitute(arg, train.params)
            except UnknownParameter as unknown:
                close = get_close_matches(unknown.name, [str(k) for k in train.params], n=1)
                guess = f"; did you mean {{params.{close[0]}}}?" if close else ""
                yield Fault(f"train.args[{n}]", f"there is no params.{unknown.name}{guess}")

    def _chain(self) -> Iterator[Fault]:
        chain = self.document.chain
        if chain is None or self.is_wrong("chain.session_limit"):
            return
        limit = format_duration(chain.session_limit)
        if not self.is_wrong("chain.stop_before") and chain.stop_before >= chain.session_limit:
            given = "" if "stop_before" in chain.model_fields_set else ", the default,"
            yield Fault(
                "chain.stop_before",
                f"{format_duration(chain.stop_before)}{given} leaves no time of a session_limit of {limit}",
            )
        if chain.min_leg is not None and chain.min_leg > chain.session_limit:
            yield Fault(
                "chain.min_leg",
                f"{format_duration(chain.min_leg)} is more than a session_limit of {limit}: no leg could ever start",
            )

    def _pull(self) -> Iterator[Fault]:
        if not self.is_wrong("pull.dir") and file_at(self.root, self.document.pull.dir).resolve() == self.root:
            yield Fault("pull.dir", "artifacts among the code would count as edits of it: name a folder of its own")

    def _local(self) -> Iterator[Fault]:
        kernel = self.document.kernel
        if self.is_wrong("local.sources", *(f"kernel.{k}" for k in ("datasets", "competitions", "models", "kernels"))):
            return
        known = [*kernel.datasets, *kernel.competitions]
        for name in self.document.local.sources:
            if name in (*kernel.models, *kernel.kernels):
                yield Fault(f"local.sources.{shown(name)}", "folders for models and kernels are not yet supported")
            elif name not in known:
                close = get_close_matches(name, known, n=1)
                guess = f"; did you mean {shown(close[0])}?" if close else ""
                yield Fault(f"local.sources.{shown(name)}", f"[kernel] has no such source{guess}")
