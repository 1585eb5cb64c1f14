"""Rules on the user's code. Only what is certain, or nearly so: a check that cries wolf is worse than none."""

import ast
import re
import sys
from collections.abc import Iterator

from kaggle_orchestrator.check.finding import Severity
from kaggle_orchestrator.check.rule import Hit, Rule, register_in
from kaggle_orchestrator.check.subject import Script, Subject

RULES: list[Rule] = []
rule = register_in(RULES)

_CORES = 4
_INPUT = re.compile(
    r"(?:^|/)kaggle/input/"
    r"(?:datasets/[^/{}*]+/|notebooks/[^/{}*]+/|models/[^/{}*]+/|competitions/)?([A-Za-z0-9][A-Za-z0-9_-]*)(?:/|$)"
)
_OFFLINE_PIP = ("--no-index", "--find-links", "-f", "--dry-run")


@rule("syntax", Severity.ERROR)
def syntax(subject: Subject) -> Iterator[Hit]:
    """Every file that runs must be Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for script in subject.scripts:
        if script.error:
            line = f":{script.error.lineno}" if script.error.lineno else ""
            fix = "Correct it."
            if sys.version_info < (3, 12):
                fix += f" (Read by Python {version}; Kaggle has 3.12. If it is newer syntax: --ignore syntax.)"
            yield Hit(f"Not valid Python: {script.error.msg}.", fix, script.path + line)


@rule("module-missing", Severity.ERROR)
def module_missing(subject: Subject) -> Iterator[Hit]:
    """A module beside the code that is imported and doesn't travel."""
    train, root = subject.experiment.train, subject.experiment.root
    home = train.entry.rpartition("/")[0]
    prefix = f"{home}/" if home else ""
    for script in subject.scripts:
        for node, name in _plain_imports(script.tree):
            if name in sys.stdlib_module_names:
                continue
            places = [f"{prefix}{name}.py", f"{prefix}{name}/__init__.py"]
            here = [p for p in places if (root / p).is_file()]
            if here and not any(p in subject.files for p in places):
                yield Hit(
                    f"{name} is imported, but {here[0]} doesn't travel.",
                    "Add it to train.include."
                    if train.include is not None
                    else "Let git track it, or don't exclude it.",
                    script.where(node),
                )


def _plain_imports(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Absolute imports of top-level modules, but not those that a ``try`` makes optional."""
    optional = {id(n) for t in ast.walk(tree) if isinstance(t, ast.Try) for n in ast.walk(t)}
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node, node.module.split(".")[0]


@rule("pip-offline", Severity.ERROR)
def pip_without_internet(subject: Subject) -> Iterator[Hit]:
    """pip can't reach its index from a session without internet."""
    if subject.experiment.kernel.internet:
        return
    for script, call in _calls(subject):
        words = _words(call)
        if _name(call.func).split(".")[0] not in ("subprocess", "os", "run", "check_call", "check_output", "system"):
            continue
        offline = any(w in _OFFLINE_PIP or "/kaggle/input" in w or w.endswith(".whl") for w in words)
        if {"pip", "install"} <= set(words) and not offline:
            yield Hit(
                "pip is asked to install something, but kernel.internet is false.",
                "kernel.internet = true, or put the wheels into a dataset and install them with --no-index.",
                script.where(call),
            )


@rule("write-to-input", Severity.ERROR)
def write_to_input(subject: Subject) -> Iterator[Hit]:
    """The input mount is read-only."""
    for script, call in _calls(subject):
        if _name(call.func) != "open" or not call.args:
            continue
        mode = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "mode"), None)
        path, kind = _text(call.args[0]), _text(mode)
        if path.startswith("/kaggle/input") and set(kind) & set("wax+"):
            yield Hit(
                f"It opens {path} for writing; the input is read-only.",
                "Write below /kaggle/working, the working folder.",
                script.where(call),
            )


@rule("output-not-kept", Severity.WARNING)
def output_not_kept(subject: Subject) -> Iterator[Hit]:
    """``/kaggle/output`` isn't kept, whatever a tutorial says."""
    for script, node in _literals(subject):
        if node.value == "/kaggle/output" or str(node.value).startswith("/kaggle/output/"):
            yield Hit(
                "Nothing under /kaggle/output is kept after the session.",
                "Write below /kaggle/working, the working folder.",
                script.where(node),
            )


@rule("source-not-attached", Severity.WARNING)
def source_not_attached(subject: Subject) -> Iterator[Hit]:
    """A path below the input mount whose source the configuration doesn't attach."""
    kernel = subject.experiment.kernel
    attached = {s.split("/")[1] for s in (*kernel.datasets, *kernel.kernels, *kernel.models)} | {*kernel.competitions}
    seen: set[str] = set()
    for script, node in _literals(subject):
        match = _INPUT.search(str(node.value))
        slug = match[1] if match else ""
        if slug and slug not in attached | {"datasets", "notebooks", "models", "competitions"} | seen:
            seen.add(slug)
            yield Hit(
                f"The code reads the source {slug}, which [kernel] doesn't attach.",
                f'kernel.datasets = ["owner/{slug}"] (or competitions, models, kernels)',
                script.where(node),
            )


@rule("keyboard", Severity.WARNING)
def waits_for_a_keyboard(subject: Subject) -> Iterator[Hit]:
    """A session has no stdin."""
    for script, call in _calls(subject):
        name = _name(call.func)
        if name in ("input", "breakpoint", "getpass", "getpass.getpass", "pdb.set_trace") and not _defines(
            script, name
        ):
            yield Hit(
                f"{name}() wants a keyboard, and a session has none: it raises EOFError or ends the training.",
                "Take the value from train.args or train.params.",
                script.where(call),
            )


@rule("kaggle-secrets", Severity.WARNING)
def kaggle_secrets(subject: Subject) -> Iterator[Hit]:
    """A push through the API detaches the kernel's secrets."""
    for script in subject.scripts:
        for node, name in _plain_imports(script.tree):
            if name == "kaggle_secrets":
                yield Hit(
                    "A push clears the secrets that are attached to a kernel: the lookup will fail.",
                    "Read the secret from a private dataset, and do without it when it isn't there.",
                    script.where(node),
                )


@rule("workers", Severity.WARNING)
def many_workers(subject: Subject) -> Iterator[Hit]:
    """A session has four cores and little shared memory."""
    for script, call in _calls(subject):
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg != "num_workers" or not isinstance(value, ast.Constant):
                continue
            if isinstance(value.value, int) and value.value > _CORES:
                yield Hit(
                    f"num_workers={value.value}, but a session has {_CORES} cores and a small /dev/shm.",
                    f"At most {_CORES}.",
                    script.where(value),
                )


def _calls(subject: Subject) -> Iterator[tuple[Script, ast.Call]]:
    for script in subject.scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Call):
                yield script, node


def _literals(subject: Subject) -> Iterator[tuple[Script, ast.Constant]]:
    """Strings, but not docstrings: they only talk."""
    for script in subject.scripts:
        talk = {id(n.value) for n in ast.walk(script.tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in talk:
                yield script, node


def _name(node: ast.expr) -> str:
    """``subprocess.run`` for such an expression, else empty."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _words(call: ast.Call) -> list[str]:
    """All words of the literal text in a call's first argument: a command, as a list or as one string."""
    first = ast.walk(call.args[0]) if call.args else iter(())
    return [w for n in first if isinstance(n, ast.Constant) and isinstance(n.value, str) for w in n.value.split()]


def _defines(script: Script, name: str) -> bool:
    """Whether the file gives the name a meaning of its own."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
    return False
