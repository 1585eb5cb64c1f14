"""``kgo check``, as a person and a machine call it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kaggle_orchestrator.cli import main
from tests.experiment.trees import MINIMAL, tree


def kgo(*arguments: str | Path, **environ: str) -> Result:
    return CliRunner(env={"KAGGLE_USERNAME": None, **environ}).invoke(main, [str(a) for a in arguments])


def test_a_good_experiment(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL, "train.py": ""})
    result = kgo("check", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith("info [cpu] kernel.accelerator: Sessions run on a CPU.\n")
    assert "kgo: me/digits-cnn renders: 1 file, " in result.stderr


def test_findings_are_data_and_errors_exit_1(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL, "train.py": "x = (\n"})
    result = kgo("check", tmp_path, "--ignore", "cpu")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        "error [syntax] train.py:1: Not valid Python: '(' was never closed.\n    Correct it."
    )
    assert kgo("check", tmp_path, "--ignore", "syntax").exit_code == 0


def test_warnings_do_not_fail(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL, "train.py": "input()\n"})
    assert kgo("check", tmp_path).exit_code == 0


def test_json(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL, "train.py": "input()\n"})
    result = kgo("check", tmp_path, "--json", "--owner", "someone", "--ignore", "cpu")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    size = document["kernel"].pop("bytes")
    assert 10_000 < size < 1_000_000
    assert document == {
        "schema": 1,
        "experiment": str(tmp_path),
        "faults": [],
        "findings": [
            {
                "id": "keyboard",
                "severity": "warning",
                "message": "input() wants a keyboard, and a session has none: it raises EOFError or ends the training.",
                "fix": "Take the value from train.args or train.params.",
                "where": "train.py:1",
            }
        ],
        "kernel": {"ref": "someone/digits-cnn", "files": 1},
    }


def test_json_of_a_wrong_configuration(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL + "x = 1\n", "train.py": ""})
    result = kgo("check", tmp_path, "--json")
    assert result.exit_code == 2
    (fault,) = json.loads(result.stdout)["faults"]
    assert fault["path"] == "train.x"


def test_the_owner_comes_from_the_environment(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": MINIMAL, "train.py": ""})
    assert "kgo: someone/digits-cnn renders" in kgo("check", tmp_path, KAGGLE_USERNAME="someone").stderr
    assert kgo("check", tmp_path, "--owner", "not/one").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], ["kgo.toml: 3 faults", "  kernel.slug: ", "  kernel.x: unknown key", "  train.entry: there is no"]),
        (["render", "-o", "k"], ["kgo.toml: 3 faults"]),
        (["check", "nowhere"], ["There is no nowhere", "kgo init"]),
        (["check", "good/train.py"], ["good/train.py isn't a kgo.toml", "or its folder"]),
        (["check", "--ignore", "nothing", "good"], ["There is no check 'nothing'", "Known: render, "]),
        (["render", "good"], ["Missing option '-o'"]),
        (["render", "good", "-o", "good"], ["the experiment's own folder"]),
        (["init", "good"], ["already holds kgo.toml", "nothing was written"]),
    ],
)
def test_what_is_wrong_is_said_at_once_with_exit_2_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    tree(tmp_path, {"kgo.toml": '[kernel]\nslug = "X"\nx = 1\n[train]\nentry = "missing.py"\n'})
    tree(tmp_path / "good", {"kgo.toml": MINIMAL, "train.py": "print('hello')\n"})
    monkeypatch.chdir(tmp_path)
    result = kgo(*arguments)
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""
    assert isinstance(result.exception, SystemExit), "a message, not a traceback"
    for word in words:
        assert word in result.stderr


def test_a_process_ends_with_that_code_and_message_too(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": '[kernel]\nslug = "X"\n'})
    command = [sys.executable, "-c", "from kaggle_orchestrator.cli import main; main()", "check"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("kgo: kgo.toml: 2 faults\n  kernel.slug: ")
