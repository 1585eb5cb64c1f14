"""What every command does with what goes wrong below it."""

import subprocess
import sys
from pathlib import Path

import pytest

KGO = Path(sys.executable).with_name("kgo")


def kgo(*args: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KGO, *args], env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize("name", ["a" * 300, "a\n" * 2_500])
def test_a_path_that_the_system_refuses_is_a_message(tmp_path: Path, name: str) -> None:
    done = kgo("check", name, HOME=str(tmp_path))
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("kgo: ")
    assert "Traceback" not in done.stderr


def test_a_home_that_is_a_file_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kgo("status", "--local", tmp_path, KGO_HOME=str(tmp_path / "file"))
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    done = kgo("lunch")
    assert done.returncode == 2
    assert "No such command" in done.stderr
