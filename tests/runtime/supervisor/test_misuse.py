"""Training that gets in kgo's way: odd names, obstacles, vanished copies, links and a shut working folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import LEG_RESULT, Outcome
from kaggle_orchestrator.runtime.supervisor.plainscript import Wrapper
from tests.runtime.supervisor.conftest import Session
from tests.runtime.supervisor.test_leg import check_result


def test_a_name_that_is_no_utf_8_is_left_out_and_said_once(session: Session) -> None:
    session.script(r"open(b'bad\xff', 'w').write('1'); open('good', 'w').write('2')").set(paths=("bad*", "good"))
    ended = session.run()
    result = ended.result
    assert (ended.code, result.outcome, result.step_end) == (0, Outcome.DONE, 1)
    names = [*result.outputs, *(n for n in ended.files if n.startswith("checkpoints/"))]
    assert [n for n in names if "bad" in n] == []
    assert "good" in result.outputs
    assert "checkpoints/step-00000001/files/good" in result.outputs
    assert len([line for line in ended.out.splitlines() if line.startswith("kgo: ") and r"b'bad\xff'" in line]) == 1


@pytest.mark.parametrize(
    ("script", "moved"),
    [
        ("shutil.rmtree('kgo'); open('kgo', 'w').write('mine')", "kgo-moved-aside"),
        ("shutil.rmtree('kgo'); os.mkdir('x'); os.symlink('x', 'kgo')", "kgo-moved-aside"),
        ("os.unlink('kgo/leg.json'); os.makedirs('kgo/leg.json/x')", "kgo/leg.json.moved-aside"),
        ("shutil.rmtree('kgo'); open('kgo', 'w'); open('kgo-moved-aside', 'w')", "kgo-moved-aside-2"),
    ],
)
def test_what_is_in_the_way_of_the_result_is_moved_aside(session: Session, script: str, moved: str) -> None:
    ended = session.one_off().script(f"import os, shutil; {script}").run()
    result = check_result(ended)
    assert (ended.code, result.outcome) == (0, Outcome.DONE)
    assert os.path.lexists(ended.working / moved)
    assert f"moved aside to {moved}\n" in ended.out
    assert (ended.working / LEG_RESULT).resolve() == ended.working.resolve() / LEG_RESULT


def test_copies_that_training_removes_are_made_again_or_missed(session: Session) -> None:
    """Once its file is gone too, it is as if nothing had been saved."""
    session.script(
        "import os, pathlib, shutil, sys, time\n"
        "open('last.pt', 'w').write('one')\n"
        "while not list(pathlib.Path('checkpoints').glob('step-*/manifest.json')): time.sleep(0.05)\n"
        "shutil.rmtree('checkpoints')\n"
        "if os.environ.get('ALL'): os.unlink('last.pt')\n"
    ).set(paths=("*.pt",))
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason) == (0, Outcome.DONE, "exit 0")
    assert result.checkpoint is not None
    assert "kgo: training removed kgo's copies of its checkpoints\n" in ended.out
    shutil.rmtree(ended.working)
    ended = session.run(ALL="1")
    result = check_result(ended)
    assert (result.outcome, result.checkpoint, result.step_end) == (Outcome.DONE, None, 0)
    assert "kgo: training removed kgo's copies of its checkpoints\n" in ended.out


def test_a_copy_that_vanishes_as_it_is_made_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap = Wrapper.after(None, tmp_path, tmp_path / "checkpoints", ["*.pt"], "t" * 16)
    (tmp_path / "last.pt").write_text("one")
    monkeypatch.setattr("kaggle_orchestrator.runtime.supervisor.plainscript.sync_folder", shutil.rmtree)
    assert wrap.look(last=True) is None
    monkeypatch.undo()
    made = wrap.look(last=True)
    assert made is not None
    made.verify()
    assert wrap.removed


def test_only_links_that_stay_inside_are_followed_into_a_checkpoint(session: Session) -> None:
    session.script(
        "import os; open('epoch-1', 'w').write('1')\n"
        "os.symlink('/etc/passwd', 'l0.pt'); os.symlink('epoch-1', 'last.pt')"
    )
    ended = session.set(paths=("*.pt",)).run()
    result = check_result(ended)
    assert result.checkpoint is not None
    manifest = json.loads((ended.working / result.checkpoint.path / "manifest.json").read_text())
    assert set(manifest["files"]) == {"files/last.pt", "mtimes.json"}
    assert "aren't followed: no checkpoint holds l0.pt\n" in ended.out


@pytest.mark.skipif(not shutil.which("setpriv") and os.geteuid() == 0, reason="root can read everything")
@pytest.mark.parametrize(
    ("last", "word"),
    [("os.chmod('.', 0)", "took away the permissions of"), ("shutil.rmtree(os.getcwd())", "removed")],
)
def test_a_working_folder_made_unusable_is_training_s_fault(session: Session, last: str, word: str) -> None:
    if os.geteuid() == 0:
        session.prefix = ("setpriv", "--bounding-set=-all")
    ended = session.one_off().script(f"import os, shutil; {last}").run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason) == (1, Outcome.USER_ERROR, "working folder")
    assert result.message == f"Training {word} its working folder, {session.working}."
    assert "supervisor failed" not in ended.out


def test_a_working_folder_that_can_not_be_had_back_still_gives_the_line(session: Session) -> None:
    ended = session.one_off().script("import os; w = os.getcwd(); os.rename(w, w + '2'); open(w, 'w')").run()
    line = ended.log_result
    assert (ended.code, line.outcome, line.reason) == (1, Outcome.USER_ERROR, "working folder")


@pytest.mark.skipif(not shutil.which("setpriv") and os.geteuid() == 0, reason="root can read everything")
def test_a_folder_that_can_not_be_looked_into_costs_no_more_than_itself(session: Session) -> None:
    if os.geteuid() == 0:
        session.prefix = ("setpriv", "--bounding-set=-all")
    session.script("import os; os.mkdir('d'); open('d/x.pt', 'w'); open('a.pt', 'w').write('1'); os.chmod('d', 0o444)")
    ended = session.set(paths=("**/*.pt",), done="d/final").run()
    result = ended.result
    assert (ended.code, result.outcome, result.step_end) == (0, Outcome.CONTINUE, 1)
    assert "checkpoints/step-00000001/files/a.pt" in result.outputs
    assert "d/x.pt' can't be read: Permission denied" in ended.out
    assert "supervisor failed" not in ended.out
