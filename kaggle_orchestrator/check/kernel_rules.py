"""Rules on the configuration and the rendered kernel."""

import ast
from collections.abc import Iterator

from kaggle_orchestrator.check.finding import Severity
from kaggle_orchestrator.check.rule import Hit, Rule, register_in
from kaggle_orchestrator.check.subject import Subject
from kaggle_orchestrator.experiment import MAX_SESSION_S
from kaggle_orchestrator.experiment.selection import is_secret
from kaggle_orchestrator.render import MAX_SOURCE

RULES: list[Rule] = []
rule = register_in(RULES)

_NEAR = 0.8
_SECRETS = (
    "KAGGLE_KEY",
    "KAGGLE_API_TOKEN",
    "WANDB_API_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "OPENAI_API_KEY",
)
_SHORTEST_SECRET = 12
"""Characters; anything shorter (``kgo-local``, a placeholder) would be found by chance."""


@rule("render", Severity.ERROR)
def cannot_be_rendered(subject: Subject) -> Iterator[Hit]:
    """The kernel must be made before anything can be pushed."""
    if subject.failure:
        yield Hit(subject.failure.message, subject.failure.hint or "See the message.")


@rule("secret-in-files", Severity.ERROR)
def secret_in_files(subject: Subject) -> Iterator[Hit]:
    """The value of a secret in this environment must not travel in a file."""
    secrets = {n: subject.environ.get(n, "").encode() for n in _SECRETS}
    known = {name: value for name, value in secrets.items() if len(value) >= _SHORTEST_SECRET}
    for path, file in subject.files.items() if known else ():
        data = file.read_bytes()
        for name, value in known.items():
            if value in data:
                yield Hit(
                    f"It contains the value of {name}, and would be readable in the kernel's source.",
                    "Take it out of the file (and out of git's history), then replace the secret.",
                    path,
                )


@rule("size", Severity.WARNING)
def near_the_limit(subject: Subject) -> Iterator[Hit]:
    """Kaggle refuses a source of a megabyte."""
    size = len(subject.request.source.encode()) if subject.request else 0
    if size > _NEAR * MAX_SOURCE:
        yield Hit(
            f"The kernel has {size:,} of the {MAX_SOURCE:,} bytes that Kaggle takes.",
            "Leave out what training doesn't need: train.exclude, or train.include.",
        )


@rule("public", Severity.WARNING)
def public(subject: Subject) -> Iterator[Hit]:
    """A public kernel shows the code and the outputs to everybody."""
    if not subject.experiment.kernel.private:
        yield Hit("Everybody will see the code and the outputs.", "kernel.private = true", "kernel.private")


@rule("nothing-to-resume", Severity.WARNING)
def nothing_to_resume(subject: Subject) -> Iterator[Hit]:
    """A chain needs something that one leg leaves and the next takes up."""
    experiment = subject.experiment
    if experiment.chain is None or experiment.checkpoint.paths:
        return
    if not any(_uses_library(script.tree) for script in subject.scripts):
        limit = "12h" if experiment.chain.session_limit_s == MAX_SESSION_S else "the session's limit"
        yield Hit(
            f"The code doesn't use kgo's library and checkpoint.paths is empty: if training needs more than {limit}, "
            "no second leg can go on from the first.",
            'Use kgo.start() in the code, or name its checkpoints: checkpoint.paths = ["checkpoints/**"]',
            "checkpoint.paths",
        )


def _uses_library(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(a.name.split(".")[0] == "kaggle_orchestrator" for a in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kaggle_orchestrator":
            return True
    return False


@rule("local-source", Severity.WARNING)
def local_source_missing(subject: Subject) -> Iterator[Hit]:
    """The folder that stands in for a dataset must be there for the local Kaggle."""
    for name, folder in subject.experiment.local.sources.items():
        if not subject.experiment.place(folder).is_dir():
            yield Hit(
                f"There is no folder {folder}: the local Kaggle has nothing to mount as {name}.",
                "Put a sample of the data there.",
                "local.sources",
            )


@rule("cpu", Severity.INFO)
def on_a_cpu(subject: Subject) -> Iterator[Hit]:
    """Kaggle's GPUs come only when asked for."""
    if subject.experiment.kernel.accelerator.machine_shape is None:
        yield Hit("Sessions run on a CPU.", 'For GPUs: kernel.accelerator = "T4x2"', "kernel.accelerator")


@rule("held-back", Severity.INFO)
def held_back(subject: Subject) -> Iterator[Hit]:
    """Files that look like secrets stay, and their absence should surprise nobody."""
    files = [p for p in subject.held_back if is_secret(p.rstrip("/"))]
    if files:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        yield Hit(
            f"These look like secrets and stay here, whatever the configuration says: {', '.join(files[:5])}{more}.",
            "If training needs one of them, rename it or put it into a dataset.",
        )
