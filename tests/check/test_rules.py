"""Each rule: what it finds, and the look-alike that it leaves alone."""

from pathlib import Path

import pytest

from kaggle_orchestrator.check import RULES, Finding, Severity, check, code_rules, kernel_rules
from kaggle_orchestrator.errors import ConfigError, UsageError
from tests.experiment.trees import CHAIN, MINIMAL, experiment, tree

LIBRARY = "import kaggle_orchestrator as kgo\n"


def found(
    folder: Path, toml: str = MINIMAL, files: dict[str, str | bytes] | None = None, **environ: str
) -> list[Finding]:
    """All findings but the one on CPUs, which is everywhere."""
    report = check(experiment(folder, toml, files), "me", environ=environ)
    return [f for f in report.findings if f.id != "cpu"]


def ids(folder: Path, toml: str = MINIMAL, files: dict[str, str | bytes] | None = None, **environ: str) -> list[str]:
    return [f.id for f in found(folder, toml, files, **environ)]


CODE = [
    ("syntax", "x = (\n", "x = ()\n"),
    ("syntax", b"x = 1\0", b"x = 1\n"),
    ("module-missing", "import hidden\n", "import visible\n"),
    ("module-missing", "from hidden.x import y\n", "try:\n    import hidden\nexcept ImportError:\n    pass\n"),
    (
        "pip-offline",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'timm'])\n",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', '--no-index', 'x.whl'])\n",
    ),
    ("pip-offline", "import os\nos.system('pip install -q timm')\n", "print('pip install timm')\n"),
    ("pip-offline", "import os\nos.system(f'pip install {1}')\n", "import os\nos.system('pip list')\n"),
    ("write-to-input", "open('/kaggle/input/x.txt', 'w')\n", "open('/kaggle/working/x.txt', 'w')\n"),
    ("write-to-input", "open('/kaggle/input/x.txt', mode='ab')\n", "import os\nos.open('/kaggle/input/x.txt', 1)\n"),
    ("output-not-kept", "p = '/kaggle/output/x.pt'\n", "'''Not in /kaggle/output.'''\np = '/kaggle/outputs'\n"),
    ("source-not-attached", "p = '/kaggle/input/leaf/x.csv'\n", "p = '/kaggle/input/digits/x.csv'\n"),
    ("source-not-attached", "p = f'/kaggle/input/leaf/{1}'\n", "p = f'/kaggle/input/{1}/x'\n"),
    ("source-not-attached", "p = '../kaggle/input/datasets/acme/leaf'\n", "p = '/kaggle/input/datasets/me/digits'\n"),
    ("source-not-attached", "p = '/kaggle/input/competitions/other'\n", "p = '/kaggle/input/competitions/titanic/x'\n"),
    ("source-not-attached", "p = '/kaggle/input/leaf'\n", "p = '/kaggle/input'\nq = '/kaggle/input/*/x'\n"),
    ("keyboard", "x = input('go?')\n", "def f(input):\n    return input(1)\n"),
    ("keyboard", "breakpoint()\n", "input = {}.get\ninput('x')\n"),
    ("keyboard", "import getpass\nx = getpass.getpass()\n", "class A:\n    input = 1\nA().input\n"),
    ("kaggle-secrets", "from kaggle_secrets import UserSecretsClient\n", "import secrets\n"),
    ("workers", "DataLoader(x, num_workers=8)\n", "DataLoader(x, num_workers=4)\nDataLoader(y, num_workers=n)\n"),
]


@pytest.mark.parametrize(("rule", "bad", "good"), CODE)
def test_rules_on_code(tmp_path: Path, rule: str, bad: str | bytes, good: str | bytes) -> None:
    toml = MINIMAL.replace("[train]", 'datasets = ["me/digits"]\ncompetitions = ["titanic"]\n[train]')
    toml += 'include = ["visible.py"]\n'
    around: dict[str, str | bytes] = {"hidden/__init__.py": "", "visible.py": ""}
    assert ids(tmp_path, toml, {**around, "train.py": bad}) == [rule]
    assert ids(tmp_path, toml, {**around, "train.py": good}) == []


def test_every_rule_on_code_has_a_case() -> None:
    assert {rule.id for rule in code_rules.RULES} == {rule for rule, _, _ in CODE}


def test_every_rule_has_an_id_of_its_own_and_says_why_it_is_there() -> None:
    rules = [*kernel_rules.RULES, *code_rules.RULES]
    assert len(RULES) == len(rules)
    assert all(rule.find.__doc__ for rule in rules)


def test_a_finding_names_file_and_line(tmp_path: Path) -> None:
    assert [f.where for f in found(tmp_path, files={"train.py": "x = 1\n\ninput()\n"})] == ["train.py:3"]
    assert [f.where for f in found(tmp_path, files={"train.py": "x = 1\n\ny = (\n"})] == ["train.py:3"]


def test_code_that_training_does_not_import_is_not_looked_at(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "train.py": "from pkg.deep import thing\nimport beside\n",
        "pkg/__init__.py": "from . import sibling\n",
        "pkg/deep.py": "from ..pkg.cousin import x\nthing = 1\n",
        "pkg/sibling.py": "input()\n",
        "pkg/cousin.py": "breakpoint()\n",
        "beside.py": "import getpass\ngetpass.getpass()\n",
        "tools/unrelated.py": "input()\n",
        "broken.py": "x = (\n",
    }
    assert sorted(f.where for f in found(tmp_path, files=files)) == [
        "beside.py:2",
        "pkg/cousin.py:1",
        "pkg/sibling.py:1",
    ]


def test_modules_are_sought_beside_the_entry(tmp_path: Path) -> None:
    toml = MINIMAL.replace('"train.py"', '"src/main.py"')
    files: dict[str, str | bytes] = {"src/main.py": "import helper\n", "src/helper.py": "input()\n", "helper.py": "x=("}
    assert [f.where for f in found(tmp_path, toml, files)] == ["src/helper.py:1"]


def test_a_kernel_that_can_not_be_rendered(tmp_path: Path) -> None:
    toml = MINIMAL.replace("[train]", 'kernels = ["me/digits-cnn"]\n[train]')
    assert [(f.id, f.severity) for f in found(tmp_path, toml)] == [("render", Severity.ERROR)]


def test_a_secret_of_this_environment_in_a_file(tmp_path: Path) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    files: dict[str, str | bytes] = {"notes.txt": f"the key is {secret}", "other.txt": "kgo-local"}
    (finding,) = found(tmp_path, MINIMAL, files, KAGGLE_KEY=secret, KAGGLE_API_TOKEN="kgo-local")
    assert (finding.id, finding.where) == ("secret-in-files", "notes.txt")
    assert secret not in repr(finding), "the message itself must not show it"
    assert found(tmp_path, MINIMAL, files) == []


def test_size_near_the_limit(tmp_path: Path) -> None:
    from random import Random

    assert ids(tmp_path, files={"x.bin": Random(0).randbytes(600_000)}) == ["size"]


def test_a_public_kernel(tmp_path: Path) -> None:
    assert ids(tmp_path, MINIMAL.replace("[train]", "private = false\n[train]")) == ["public"]


def test_a_chain_with_nothing_to_resume(tmp_path: Path) -> None:
    assert ids(tmp_path, CHAIN) == ["nothing-to-resume"]
    assert ids(tmp_path, CHAIN + '[checkpoint]\npaths = ["*.pt"]\n') == []
    assert ids(tmp_path, CHAIN, {"train.py": LIBRARY}) == []
    assert ids(tmp_path, CHAIN, {"train.py": "import other\n", "other.py": LIBRARY}) == []
    assert ids(tmp_path, CHAIN, {"train.py": "from kaggle_orchestrator import start\n"}) == []


def test_a_missing_local_stand_in(tmp_path: Path) -> None:
    toml = MINIMAL.replace("[train]", 'datasets = ["me/x"]\n[train]') + '[local]\nsources = { "me/x" = "data" }\n'
    assert ids(tmp_path, toml) == ["local-source"]
    assert ids(tmp_path, toml, {"data/x.csv": ""}) == []


def test_secrets_that_stay_are_told(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, files={".env": "", ".gitignore": "", "outputs/x": ""})
    assert (finding.id, finding.severity) == ("held-back", Severity.INFO)
    assert ".env" in finding.message
    assert "outputs" not in finding.message


def test_cpu_is_told_and_a_gpu_is_not(tmp_path: Path) -> None:
    report = check(experiment(tmp_path), "me", environ={})
    assert [f.id for f in report.findings] == ["cpu"]
    assert not report.failed
    gpu = experiment(tmp_path, MINIMAL.replace("[train]", 'accelerator = "T4x2"\n[train]'))
    assert check(gpu, "me", environ={}).findings == ()


def test_a_rule_can_be_switched_off_and_a_misspelt_id_is_refused(tmp_path: Path) -> None:
    e = experiment(tmp_path, files={"train.py": "input()\n"})
    assert check(e, "me", environ={}, ignore=["keyboard", "cpu"]).findings == ()
    with pytest.raises(UsageError, match="no check 'keybord'"):
        check(e, "me", environ={}, ignore=["keybord"])


def test_the_worst_comes_first(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"train.py": "input()\nopen('/kaggle/input/x', 'w')\n", ".env": ""}
    assert [f.severity for f in found(tmp_path, files=files)] == [
        Severity.ERROR,
        Severity.WARNING,
        Severity.WARNING,
        Severity.INFO,
    ]


def test_files_that_became_unusable_are_a_configuration_fault(tmp_path: Path) -> None:
    e = experiment(tmp_path)
    (tmp_path / "gone.txt").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="link to nothing"):
        check(e, "me", environ={})


def test_odd_code_never_breaks_the_checks(tmp_path: Path) -> None:
    """What parses may still be anything."""
    odd = "().open()\nopen(*x)\nopen(**{})\nf()()\nx[0](num_workers=True)\nfrom . import x\n"
    odd += "from .. import y\nimport a.b.c as d\n"
    nested = "x = " + "(" * 150 + ")" * 150 + "\n"
    tree(tmp_path, {})
    assert ids(tmp_path, files={"train.py": odd}) == []
    assert ids(tmp_path, files={"train.py": nested}) in ([], ["syntax"])
    assert ids(tmp_path, files={"train.py": "x = " + "-" * 100_000 + "1\n"}) in ([], ["syntax"])
