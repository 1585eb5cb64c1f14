"""Which files of an experiment travel to Kaggle. What could be a secret never does, whatever the configuration says.

By default these are the files that git tracks and those it would track (untracked, not ignored), or, outside a git
repository, all files; in both cases without the folders that stand in for data locally, and, unless git tracks them,
without what a training, ``kgo render`` and ``kgo pull`` wrote. ``train.include`` replaces that default, git's word
included. ``train.exclude`` takes away. The entry always travels, ``kgo.toml`` never (its part of the fingerprint is
taken by meaning, not by bytes).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from kaggle_orchestrator.errors import ConfigError, Fault
from kaggle_orchestrator.experiment.git import GitFiles, GitTrouble, git_files
from kaggle_orchestrator.experiment.model import Experiment
from kaggle_orchestrator.experiment.names import file_at, text_of
from kaggle_orchestrator.experiment.template import template_folder
from kaggle_orchestrator.experiment.values import shown
from kaggle_orchestrator.protocol import LEG_RESULT
from kaggle_orchestrator.protocol.globs import matches

SECRETS = (
    ".env*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "kaggle.json",
    "access_token",
    "credentials.json",
    "client_secret*.json",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".htpasswd",
    ".git-credentials",
    ".kaggle",
    ".ssh",
    ".aws",
    ".azure",
    ".gcloud",
    ".gnupg",
    ".docker",
)
"""Names (of a file or of any folder above it, in any case of letters) that promise a secret."""

CLUTTER = (
    ".git*",
    ".hg",
    ".svn",
    ".kgo",
    ".venv",
    "node_modules",
    "__pycache__",
    "*.pyc",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".tox",
    ".nox",
    ".idea",
    ".vscode",
    ".DS_Store",
    "*.egg-info",
)
"""Names of state, caches and environments."""

CLUTTER_BESIDE_THE_FILE = ("outputs", "venv")
"""Names that are clutter beside ``kgo.toml``; deeper ones may well be code."""

WRITTEN_BY_TRAINING = ("checkpoints", "best", "final", "kgo")
"""Folders that a training on this machine writes, beside ``kgo.toml`` or beside the entry."""

RENDERED, RENDERED_NOTEBOOK = "kgo_kernel.py", "kgo_kernel.ipynb"
"""Name of the code file in a folder that ``kgo render`` wrote."""

_ENVIRONMENT = "pyvenv.cfg"
"""Marks a virtual environment, whatever its name."""

_NOT_CODE = (RENDERED, RENDERED_NOTEBOOK, _ENVIRONMENT, LEG_RESULT)
"""Each marks the folder that it lies in as something else than code: a rendered kernel, an environment, a pulled
output."""


@dataclass(slots=True)
class Selection:
    """What travels, what doesn't, and what can't be decided.

    Attributes:
        files: File by POSIX path below the experiment's folder, sorted.
        held_back: Paths that the default or an ``include`` would have taken and the deny-list kept back.
        faults: What a person must decide.
    """

    files: dict[str, Path] = field(default_factory=dict)
    held_back: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def never_travels(path: str) -> bool:
    """Whether the deny-list covers a POSIX path: a secret by its name, or clutter."""
    first = path.casefold().split("/")[0]
    return first in CLUTTER_BESIDE_THE_FILE or is_secret(path) or _has_part(path, CLUTTER)


def is_secret(path: str) -> bool:
    """Whether a POSIX path looks like a secret by its name or a folder's."""
    return _has_part(path, SECRETS)


def _has_part(path: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(part, name.casefold()) for part in path.casefold().split("/") for name in names)


def collect(experiment: Experiment) -> dict[str, Path]:
    """The files that travel, by POSIX path below the experiment's folder, sorted.

    Raises:
        ConfigError: A link leaves the folder, an ``include`` matches nothing, git can't be asked, and so on.
    """
    selection = select(experiment)
    if selection.faults:
        raise ConfigError(experiment.file, selection.faults)
    return selection.files


def select(experiment: Experiment) -> Selection:
    """Choose the files; see this module's docstring for the rules."""
    return _Selector(experiment).run()


class _Selector:
    """One pass over an experiment's folder."""

    def __init__(self, experiment: Experiment) -> None:
        self.root = experiment.root
        self.experiment = experiment
        self.train = experiment.train
        self.result = Selection()

    def run(self) -> Selection:
        entry = self.train.entry
        try:
            candidates = self._default() if self.train.include is None else self._included(self.train.include)
        except GitTrouble as trouble:
            self._fault("train.include", trouble.message)
            candidates = []
        for path in sorted({*candidates, *([] if self.train.brought else [entry])} - {self.experiment.file}):
            if path == entry or not matches(path, self.train.exclude):
                self._take(path)
        if self.train.brought:
            self.result.files[entry] = template_folder(self.root, self.experiment.kernel.template) / entry
        if entry not in self.result.files and not self.result.faults:
            self._fault("train.entry", f"{entry} is on the list of what never travels: rename or move it")
        return self.result

    def _fault(self, key: str, message: str) -> None:
        self.result.faults.append(Fault(key, message))

    def _take(self, path: str) -> None:
        """Add one file, unless it is held back or is a link to somewhere it must not lead."""
        key = "train.entry" if path == self.train.entry else "train.exclude"
        if not path.isprintable():
            self._fault(key, f"the name of {path!a} isn't printable UTF-8 text: rename it or exclude it")
            return
        if never_travels(path):
            self.result.held_back.append(path)
            return
        file = file_at(self.root, path)
        try:
            real = file.resolve(strict=True)
        except (OSError, RuntimeError):
            why = "is a link to nothing" if file.is_symlink() else "can't be read"
            self._fault(key, f"{path} {why}: remove it or exclude it")
            return
        if not real.is_relative_to(self.root):
            self._fault(key, f"{path} is a link that leaves the folder: exclude it, or put the files themselves there")
        elif never_travels(text_of(real.relative_to(self.root).as_posix())):
            self.result.held_back.append(path)
        elif real.is_file():
            self.result.files[path] = file

    def _included(self, include: tuple[str, ...]) -> list[str]:
        """What the globs of ``include`` match; each has to match something."""
        present = list(self._walk())
        held_back, self.result.held_back = self.result.held_back, []
        chosen: set[str] = set()
        for n, pattern in enumerate(include):
            found = [p for p in present if matches(p, [pattern])]
            if not any(p != self.experiment.file and not never_travels(p) for p in found):
                denied = [p for p in (*found, *held_back) if matches(f"{p}*" if p.endswith("/") else p, [pattern])]
                why = f"matches only what never travels ({denied[0]})" if denied else "matches no file"
                self._fault(f"train.include[{n}]", f"{shown(pattern)} {why}")
            chosen.update(found)
        return sorted(chosen)

    def _default(self) -> list[str]:
        found = git_files(self.root)
        if found is None:
            found = GitFiles(tracked=(), others=tuple(self._walk()))
        stand_ins = [self._below(p) for p in (self.experiment.pull.dir, *self.experiment.local.sources.values())]
        apart = [escape(p) for p in stand_ins if p]
        written = [escape(p) for p in self._written(found.others)]
        tracked = [p for p in self._files(found.tracked) if not matches(p, apart)]
        others = [p for p in self._files(found.others) if not matches(p, [*apart, *written])]
        return [*tracked, *others]

    def _written(self, paths: tuple[str, ...]) -> Iterator[str]:
        """The folders among ``paths`` that something of ours, or an environment, was written to."""
        entry = self.train.entry
        for home in {"", entry.rpartition("/")[0]}:
            yield from (f"{home}/{name}".lstrip("/") for name in WRITTEN_BY_TRAINING)
        for path in paths:
            for mark in _NOT_CODE:
                folder = path.removesuffix(f"/{mark}")
                if folder != path and not entry.startswith(f"{folder}/"):
                    yield folder

    def _below(self, folder: str) -> str | None:
        """A folder as a path below the experiment's, or None if it is elsewhere or that folder itself."""
        path = self.experiment.place(folder).resolve()
        return text_of(path.relative_to(self.root).as_posix()) if self.root in path.parents else None

    def _files(self, paths: tuple[str, ...]) -> Iterator[str]:
        """Git names some folders as a whole (a linked one, a repository inside): their files, then."""
        for name in paths:
            path = name.rstrip("/")
            file = file_at(self.root, path)
            if file.is_dir() and file.resolve().is_relative_to(self.root):
                yield from self._walk(f"{path}/")
            elif file.is_symlink() or file.exists():  # else it is tracked, but deleted
                yield path

    def _walk(self, below: str = "", above: tuple[Path, ...] = ()) -> Iterator[str]:
        """Every file below a folder, without entering what never travels or following a link back up for ever."""
        here = file_at(self.root, below).resolve()
        if here in above:
            return
        try:
            entries = sorted(file_at(self.root, below).iterdir(), key=lambda p: text_of(p.name))
        except OSError as error:
            self._fault("train.exclude", f"{below or '.'} can't be read ({error.strerror}): exclude it")
            return
        for entry in entries:
            path = f"{below}{text_of(entry.name)}"
            if not entry.is_dir() or not entry.resolve().is_relative_to(self.root):
                yield path
            elif never_travels(path) or (entry / _ENVIRONMENT).is_file():
                self.result.held_back.append(f"{path}/")
            else:
                yield from self._walk(f"{path}/", (*above, here))
