"""Requests to leave are noted, never acted on inside a signal handler."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.runtime.training.stopping import StopRequests


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[StopRequests]:
    found = StopRequests(tmp_path)
    found.install()
    yield found
    found.remove()


def test_the_file(requests: StopRequests, tmp_path: Path) -> None:
    assert requests.asked() is None
    (tmp_path / "stop").touch()
    assert requests.asked() == "asked to"
    assert requests.exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted(requests: StopRequests, number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    os.kill(os.getpid(), number)
    assert requests.asked() == number.name
    assert requests.exit_code == 128 + number
    assert capfd.readouterr().out.startswith("kgo: saving and leaving after this step")


def test_the_second_one_ends_it_at_once(requests: StopRequests) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit) as caught:
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM


def test_handlers_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    requests = StopRequests(tmp_path)
    requests.install()
    assert signal.getsignal(signal.SIGINT) != before[0]
    requests.remove()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_forked_child_ignores_it(requests: StopRequests) -> None:
    """A loader's worker gets the terminal's Ctrl-C too."""
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(0 if requests.asked() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
