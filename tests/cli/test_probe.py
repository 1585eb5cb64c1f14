"""`kgo probe` asks first, saves what it found, and what it saved is used."""

import json
import signal
from pathlib import Path

import pytest

from kaggle_orchestrator.cli import main
from kaggle_orchestrator.client import connect
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.models import KernelRef, PushRequest
from kaggle_orchestrator.probe import leftovers
from kaggle_orchestrator.profile import MountLayout, Profile
from tests.cli.conftest import Kgo, document
from tests.localkaggle.client import until


def test_nobody_there_to_say_yes(kgo: Kgo) -> None:
    done = kgo("probe")
    assert done.exit_code == 2
    assert "6 private kernels" in done.stderr
    assert "--yes" in done.stderr
    assert done.stdout == ""


def test_it_says_where_it_can_not_write_before_it_begins(kgo: Kgo, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = kgo("probe", "--yes", "-o", tmp_path / "file" / "profile.json")
    assert done.exit_code == 2
    assert "can't be written" in done.stderr


def test_findings_are_saved_and_used(kgo: Kgo, tmp_path: Path) -> None:
    with connect(kgo.url, environ={}) as kaggle:
        left = KernelRef("me", "kgo-probe-abcdef-left")
        kaggle.push(PushRequest(left, left.slug, "pass"))
        path = tmp_path / "deep" / "profile.json"
        done = kgo("probe", "--yes", "--json", "-o", path)
        assert done.exit_code == 0, done.stderr
        assert "an earlier probe left" in done.stderr
        assert not [ref for ref in kaggle.kernels() if ref.slug.startswith("kgo-probe")]
    told = document(done)
    assert told["profile"] == str(path)
    assert {finding["name"] for finding in told["findings"]} >= {"mount_layout", "self_mount", "output_after_kill"}
    profile = Profile.load(path)
    assert profile.mount_layout is MountLayout.BOTH
    assert profile.endpoint == kgo.url
    root = kgo.experiment()
    assert kgo("status", root, "--profile", path).exit_code == 0


def test_kernels_that_stay_are_named_and_nothing_measured_is_lost(kgo: Kgo, tmp_path: Path) -> None:
    admin.add_faults(kgo.url, [{"rpc": "DeleteKernel", "first": 6, "status": 400}])
    done = kgo("probe", "--yes", "-o", tmp_path / "profile.json")
    assert done.exit_code == 1
    assert done.stderr.count("couldn't be removed: ") == 6
    assert "all that was measured is saved" in done.stderr
    assert Profile.load(tmp_path / "profile.json").mount_layout is MountLayout.BOTH
    with connect(kgo.url, environ={}) as kaggle:
        for ref in leftovers(kaggle):
            kaggle.delete(ref)


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 2}', '{"schema": 1, "mount_layout": "odd"}'])
def test_a_profile_that_is_none(kgo: Kgo, tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    done = kgo("status", kgo.experiment(), KGO_PROFILE=str(tmp_path / "p.json"))
    assert done.exit_code == 2
    assert "is not a profile" in done.stderr
    served = kgo("local", "serve", "--profile", tmp_path / "p.json", "--root", tmp_path / "world")
    assert served.exit_code == 2
    assert not (tmp_path / "world").exists()


def test_a_profile_in_kgo_s_home_is_used_for_its_own_kaggle_only(kgo: Kgo, tmp_path: Path) -> None:
    from click.testing import CliRunner

    home = tmp_path / "own-home"
    home.mkdir()
    (home / "profile.json").write_text("{")
    done = CliRunner().invoke(main, ["status", str(kgo.experiment())], env={**kgo.environ, "KGO_HOME": str(home)})
    assert done.exit_code == 2
    assert "is not a profile" in done.stderr
    profile = Profile(endpoint="https://api.kaggle.com", mount_layout=MountLayout.FLAT)
    (home / "profile.json").write_text(profile.dumps())
    assert json.loads((home / "profile.json").read_text())["mount_layout"] == "flat"


def test_a_probe_that_is_told_to_end_removes_its_kernels(tmp_path: Path) -> None:
    home = tmp_path / "home"
    kgo = Kgo(tmp_path, home, background.ensure(home).url, tmp_path)
    try:
        with connect(kgo.url, environ={}) as kaggle:
            probe = kgo.process("probe", "--yes", "-o", tmp_path / "profile.json")
            until(lambda: leftovers(kaggle))
            probe.send_signal(signal.SIGTERM)
            _, told = probe.communicate(timeout=60)
            assert probe.returncode == 128 + signal.SIGTERM, told
            assert "Traceback" not in told
            assert leftovers(kaggle) == ()
    finally:
        background.stop(home)
