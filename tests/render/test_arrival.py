"""The user's files arrive byte for byte, whatever is in them, and run."""

import ast
import csv
import os
import random
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.experiment import collect, load
from kaggle_orchestrator.experiment.selection import CLUTTER_BESIDE_THE_FILE, WRITTEN_BY_TRAINING, never_travels
from kaggle_orchestrator.render import bundle_of
from tests.experiment.trees import MINIMAL, experiment, tree
from tests.render.attempts import rendered, session, unpacked

CASES = Path(__file__).parents[1] / "cases"

HOSTILE: dict[str, str | bytes] = {
    "random.bin": random.Random(0).randbytes(10_000),
    "empty.py": b"",
    "crlf.py": b"x = 1\r\ny = 2\r\n",
    "no newline at the end.py": b"x = 1",
    "latin-1.py": "# -*- coding: latin-1 -*-\nx = 'größe'\n".encode("latin-1"),
    "bom.py": b"\xef\xbb\xbfx = 1\n",
    "nul.bin": b"\0" * 100,
    "jinja.txt": "{{ header_line }}{% raw %}{% endraw %}{# #}{%- for x in y -%}",
    "quotes.txt": "'''\"\"\"\\N{BULLET}\\u0000\\",
    "lone surrogate.txt": "\ud800".encode("utf-8", "surrogatepass"),
    "größe/葉 with spaces/ẁ▶😀.txt": "x",
    "header.py": "# kgo-header: {}\nBUNDLE = '''\n",
    "deep/" * 30 + "file.txt": "x" * 1000,
    "x" * 200 + ".txt": "a long name",
}


def test_hostile_files_arrive(tmp_path: Path) -> None:
    exp = tmp_path / "exp"
    e = experiment(exp, files=HOSTILE)
    shutil.copy(CASES / "15_jinja_hostile.py", exp / "train.py")
    bundle = unpacked(rendered(e), tmp_path)
    try:
        files = {
            p.relative_to(bundle / "src").as_posix(): p.read_bytes() for p in bundle.glob("src/**/*") if p.is_file()
        }
        assert files == {path: file.read_bytes() for path, file in collect(load(exp)).items()}
        assert set(HOSTILE) < set(files)
    finally:
        shutil.rmtree(bundle)


SEGMENT = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), min_size=1, max_size=12)


@given(
    files=st.dictionaries(st.lists(SEGMENT, min_size=1, max_size=3).map("/".join), st.binary(max_size=300), max_size=6)
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_files_arrive(tmp_path: Path, files: dict[str, bytes]) -> None:
    exp = tmp_path / "exp"
    shutil.rmtree(exp, ignore_errors=True)
    experiment(exp)
    for path, data in files.items():
        with suppress(OSError):  # a name that is both file and folder, or . or ..
            tree(exp, {path: data})
    present = {p.relative_to(exp).as_posix(): p.read_bytes() for p in exp.rglob("*") if p.is_file()}
    left_out = {*CLUTTER_BESIDE_THE_FILE, *WRITTEN_BY_TRAINING}
    expected = {
        path: data
        for path, data in present.items()
        if not never_travels(path) and path != "kgo.toml" and path.split("/")[0] not in left_out
    }
    bundle = bundle_of(rendered(load(exp)).source)
    assert {p.removeprefix("src/"): m.data for p, m in bundle.items() if p.startswith("src/")} == expected


def test_what_may_be_executed_still_may(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp", files={"run.sh": "#!/bin/sh\n", "data.txt": ""})
    (tmp_path / "exp/run.sh").chmod(0o700)
    bundle = unpacked(rendered(e), tmp_path)
    try:
        assert (bundle / "src/run.sh").stat().st_mode & stat.S_IXUSR
        assert not (bundle / "src/data.txt").stat().st_mode & stat.S_IXUSR
    finally:
        shutil.rmtree(bundle)


def test_a_hostile_script_runs_as_if_nothing_lay_between(tmp_path: Path) -> None:
    exp = tree(tmp_path / "exp", {"kgo.toml": MINIMAL})
    shutil.copy(CASES / "15_jinja_hostile.py", exp / "train.py")
    ran = session(rendered(load(exp)), tmp_path / "kaggle")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    direct = subprocess.run(
        [sys.executable, exp / "train.py"], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert direct.stdout
    assert direct.stdout in ran.stdout


def test_a_package_with_flags_and_a_config_file_runs(tmp_path: Path) -> None:
    """Its engine keeps no more than one file, its config is found through ``__file__``, its data through a flag."""
    exp = tmp_path / "exp"
    shutil.copytree(CASES / "03_argparse_package", exp)
    data = tmp_path / "kaggle" / "input" / "leaf-tiny"
    data.mkdir(parents=True)
    numbers = random.Random(0)
    with (data / "train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{n}" for n in range(8)), "label"])
        writer.writerows([*(round(numbers.gauss(0, 1), 4) for _ in range(8)), n % 3] for n in range(32))
    toml = MINIMAL.replace("[train]", 'datasets = ["acme-lab/leaf-tiny"]\n[train]')
    toml += f'args = ["--data-root", "{data}", "--epochs", "{{params.epochs}}", "--resume", "{{resume}}"]\n'
    toml += "params = { epochs = 2 }\n"
    tree(exp, {"kgo.toml": toml})
    ran = session(rendered(load(exp)), tmp_path / "kaggle")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "epoch=1 errors=" in ran.stdout
    assert (tmp_path / "kaggle/working/runs/exp1/last.pkl").is_file()


def test_the_bundle_is_unpacked_outside_the_working_folder_and_removed(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp", files={"train.py": "print('file', __file__)\n"})
    place = tmp_path / "tmp"
    place.mkdir()
    ran = session(rendered(e), tmp_path / "kaggle", TMPDIR=str(place))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"file {place.resolve()}/kgo-" in ran.stdout
    assert not [p for p in place.iterdir() if p.name.startswith("kgo-")]
    assert not list((tmp_path / "kaggle/working").rglob("train.py"))


def test_a_damaged_bundle_is_noticed_before_anything_runs(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp")
    source = rendered(e).source
    at = source.index('BUNDLE = """') + 500
    damaged = source[:at] + ("A" if source[at] != "A" else "B") + source[at + 1 :]
    script = tree(tmp_path, {"k.py": damaged}) / "k.py"
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "kgo: the bundle in this kernel is damaged" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "src/../../evil.py"])
def test_the_kernel_unpacks_nothing_outside_its_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = experiment(tmp_path / "exp")
    monkeypatch.setattr("kaggle_orchestrator.render.bundle.SOURCES", "")
    monkeypatch.setattr("kaggle_orchestrator.render.kernel.user_files", lambda files: _evil(name))
    monkeypatch.setattr("kaggle_orchestrator.render.kernel.code_sha256", lambda files: rendered_header(e))
    monkeypatch.setattr("kaggle_orchestrator.render.kernel.bundle_of", lambda source: {})
    with pytest.raises(SystemExit, match="which isn't a file of one"):
        unpacked(rendered(e), tmp_path)


def _evil(name: str) -> dict[str, object]:
    from kaggle_orchestrator.render import Member

    return {name: Member(b"")}


def rendered_header(_: object) -> str:
    return "0" * 64


def test_the_kernel_is_python_3_10_so_that_an_old_session_gets_a_message(tmp_path: Path) -> None:
    ast.parse(rendered(experiment(tmp_path)).source, feature_version=(3, 10))


def test_the_kernel_is_ascii_under_any_locale(tmp_path: Path) -> None:
    source = rendered(experiment(tmp_path / "größe", files={"größe.py": "x = 'ö'"})).source
    assert source.isascii()
    assert "\r" not in source
    assert max(len(line) for line in source.split("\n")[1:]) <= 160


def test_what_travels_of_kgo_is_what_runs_in_a_session(tmp_path: Path) -> None:
    ours = {p.removeprefix("lib/") for p in bundle_of(rendered(experiment(tmp_path)).source) if p.startswith("lib/")}
    assert {"kaggle_orchestrator/__init__.py", "kaggle_orchestrator/py.typed"} <= ours
    assert "kaggle_orchestrator/runtime/supervisor/__init__.py" in ours
    parts = {p.split("/")[1] for p in ours}
    assert parts == {"__init__.py", "py.typed", "protocol", "runtime"}
    assert all(p.endswith((".py", "py.typed")) for p in ours)


def test_no_secret_is_in_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "KGAT_0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("KAGGLE_API_TOKEN", token)
    secrets = dict.fromkeys((".env", "a/.env.prod", "kaggle.json", "b.pem", ".ssh/id_rsa", "outputs/x"), token)
    e = experiment(tmp_path, MINIMAL + 'include = ["**"]\n', secrets)
    source = rendered(e).source
    assert token not in source
    for member in bundle_of(source).values():
        assert token.encode() not in member.data


def test_the_working_copy_s_owner_and_place_are_not_in_the_kernel(tmp_path: Path) -> None:
    source = rendered(experiment(tmp_path)).source
    bundle = bundle_of(source)
    assert str(tmp_path).encode() not in b"".join([source.encode(), *(m.data for m in bundle.values())])
    assert os.uname().nodename.encode() not in bundle["plan.json"].data


@pytest.mark.full_stack
def test_a_main_guard_and_spawned_workers_train(tmp_path: Path) -> None:
    """Spawned workers import the entry again: it has to be a file, and to run as ``__main__`` only once."""
    exp = tree(tmp_path / "exp", {"kgo.toml": MINIMAL})
    shutil.copy(CASES / "17_main_guard_mp_dataloader.py", exp / "train.py")
    kaggle = tmp_path / "kaggle"
    ran = session(rendered(load(exp)), kaggle, WORK=str(kaggle / "working"), NW="1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("preprocessed 328350") == 1
    assert "final " in ran.stdout
    assert (kaggle / "working/last.pt").is_file()
