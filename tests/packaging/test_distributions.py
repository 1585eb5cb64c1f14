"""What ships: everything that is needed and nothing that git ignores; and it is found however kgo was installed."""

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from kaggle_orchestrator import __version__ as VERSION
from tests.packaging.conftest import JUNK, ROOT, Built, run

pytestmark = pytest.mark.xdist_group("packaging")  # the build is shared

USE = """
import json, sys
from pathlib import Path
import kaggle_orchestrator
from click.testing import CliRunner
from kaggle_orchestrator.cli import main
from kaggle_orchestrator.experiment.shipped import shipped

folder = Path(sys.argv[1])
def kgo(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
kgo("init", folder / "script")
kgo("init", folder / "digits", "--starter", "digits")
kgo("render", folder / "digits", "-o", folder / "k")
print(json.dumps({
    "package": str(Path(kaggle_orchestrator.__file__).resolve()),
    "templates": str(shipped("kernel_templates")),
    "examples": str(shipped("examples")),
    "digits": sorted(p.relative_to(folder / "digits").as_posix() for p in folder.rglob("digits/**/*") if p.is_file()),
}))
"""


def used(python: Path, folder: Path, **environ: str) -> dict[str, str]:
    """Scaffold and render with an installed kgo; says where it found things."""
    folder.mkdir()
    found = json.loads(run(python, "-c", USE, folder, cwd=folder, **environ).splitlines()[-1])
    assert {"kgo.toml", "train.py", ".gitignore"} <= set(found["digits"])
    assert not any("junk" in path or ".kgo" in path for path in found["digits"])
    assert (folder / "k" / "kgo_kernel.py").read_text().startswith("# kgo-header: ")
    return {key: found[key] for key in ("package", "templates", "examples")}


def rendered(folder: Path) -> bytes:
    return (folder / "k" / "kgo_kernel.py").read_bytes()


def wheel_names(built: Built) -> set[str]:
    return set(zipfile.ZipFile(built.wheel).namelist())


def test_the_wheel_holds_what_is_needed(built: Built) -> None:
    names = wheel_names(built)
    assert {
        "kaggle_orchestrator/__init__.py",
        "kaggle_orchestrator/py.typed",
        "kaggle_orchestrator/kernel_templates/script/kernel.py.jinja",
        "kaggle_orchestrator/experiment/starters/script/train.py.txt",
        "kaggle_orchestrator/experiment/starters/script/kgo.toml.txt",
        "kaggle_orchestrator/examples/digits/kgo.toml",
        "kaggle_orchestrator/examples/digits/train.py",
    } <= names
    for path in (built.checkout / "kaggle_orchestrator").rglob("*.py"):
        assert path.relative_to(built.checkout).as_posix() in names


def test_the_wheel_holds_nothing_else(built: Built) -> None:
    names = wheel_names(built)
    assert {name.split("/")[0] for name in names} == {"kaggle_orchestrator", f"kaggle_orchestrator-{VERSION}.dist-info"}
    assert not [n for n in names if "junk" in n or n.endswith(".pyc") or ".kgo" in n or "/outputs/" in n]


def test_the_source_distribution_holds_what_builds_and_tests_it_and_no_junk(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "Makefile",
        "tests/test_layers.py",
        "docs/configuration.md",
    } <= names
    assert "kernel_templates/script/kernel.py.jinja" in names
    assert "tests/cases/15_jinja_hostile.py" in names
    assert not names & set(JUNK)
    assert not [n for n in names if "junk" in n]


def test_the_metadata(built: Built) -> None:
    text = zipfile.ZipFile(built.wheel).read(f"kaggle_orchestrator-{VERSION}.dist-info/METADATA").decode()
    metadata = Parser().parsestr(text)
    assert metadata["Name"] == "kaggle-orchestrator"
    assert metadata["License-Expression"] == "Apache-2.0"
    requires = [str(r) for r in metadata.get_all("Requires-Dist") or []]
    required = {m[0] for r in requires if "extra" not in r and (m := re.match(r"[A-Za-z0-9._-]+", r))}
    assert {"six", "kaggle", "click", "jinja2", "pydantic"} <= required, "kaggle imports six without declaring it"
    assert "torch" not in required


def test_an_installed_wheel_finds_its_templates_and_examples(built: Built, environment: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "--python", environment, "install", "-q", "--no-deps", built.wheel, cwd=tmp_path)
    found = used(environment, tmp_path / "use")
    package = Path(found["package"]).parent
    assert package.is_relative_to((tmp_path / "venv").resolve())
    assert Path(found["templates"]) == package / "kernel_templates"
    assert Path(found["examples"]) == package / "examples"
    assert run(environment.with_name("kgo"), "--version", cwd=tmp_path) == f"kgo, version {VERSION}\n"
    # A folder of that name beside an installed package is anybody's.
    stranger = package.parent / "kernel_templates"
    (package / "kernel_templates").rename(stranger)
    ask = "from kaggle_orchestrator.experiment.shipped import shipped\ntry:\n shipped('kernel_templates')\n"
    ask += "except FileNotFoundError as e:\n print(e)\n"
    assert "install it again" in run(environment, "-c", ask, cwd=tmp_path)


def test_an_editable_install_finds_them_in_the_checkout(built: Built, environment: Path, tmp_path: Path) -> None:
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    hook = "import sys, hatchling.build; print(hatchling.build.build_editable(sys.argv[1]))"
    name = run(built.backend, "-c", hook, tmp_path, cwd=built.checkout).split()[-1]
    zipfile.ZipFile(tmp_path / name).extractall(site)
    found = used(environment, tmp_path / "use")
    assert Path(found["package"]) == (built.checkout / "kaggle_orchestrator" / "__init__.py").resolve()
    assert Path(found["templates"]) == (built.checkout / "kernel_templates").resolve()
    assert Path(found["examples"]) == (built.checkout / "examples").resolve()


def test_a_checkout_finds_them_without_an_install(built: Built, environment: Path, tmp_path: Path) -> None:
    found = used(environment, tmp_path / "use", PYTHONPATH=str(built.checkout))
    assert Path(found["templates"]) == (built.checkout / "kernel_templates").resolve()


def test_every_kind_of_install_renders_the_same_kernel(built: Built, environment: Path, tmp_path: Path) -> None:
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    used(environment, tmp_path / "checkout", PYTHONPATH=str(built.checkout))
    zipfile.ZipFile(built.wheel).extractall(site)
    used(environment, tmp_path / "wheel")
    assert rendered(tmp_path / "checkout") == rendered(tmp_path / "wheel")


def test_the_version_is_said_in_one_voice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
