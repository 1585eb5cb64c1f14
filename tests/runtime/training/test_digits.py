"""The example: it learns, and a plain PyTorch loop and a chain of legs end on the very same weights."""

import ast
import hashlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from kaggle_orchestrator.protocol import Variable
from kaggle_orchestrator.runtime.training.digest import state_digest
from tests.runtime.training import plain_digits
from tests.runtime.training.legs import Chain, Ended, Zygote, newest

EXAMPLE = plain_digits.DIGITS


def train() -> None:
    """Run the example's script as Kaggle does: as a program."""
    sys.path.insert(0, str(EXAMPLE))
    runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")


def plain(epochs: int) -> None:
    """Run the plain loop, and print its digest."""
    print(plain_digits.main(epochs, threads=1))


def environ(epochs: int) -> dict[Variable, str]:
    return {Variable.PARAMS: json.dumps({"epochs": epochs, "batch_size": 64, "lr": plain_digits.MAX_LR})}


def weights(folder: Path) -> str:
    return state_digest(torch.load(folder / "final/model.pt", weights_only=True), "model")


def compare(zygote: Zygote, root: Path, epochs: int, stops: tuple[float, ...]) -> Path:
    """Train straight, plainly, and over legs that are killed after some seconds; returns the straight one's folder."""
    here = "tests.runtime.training.test_digits:"
    straight = root / "straight"
    ended = zygote.run(here + "train", straight, environ=environ(epochs))
    assert ended.code == 0, ended.log
    by_hand = zygote.run(here + "plain", root / "plain", epochs=epochs)
    assert by_hand.log.split() == [weights(straight)], by_hand.log
    chained = Chain(zygote, here + "train", root, environ=environ(epochs))
    for stop in stops:
        leg(chained, stop)
    ended = chained.leg()
    assert ended.code == 0, ended.log
    assert f"done at step {22 * epochs}" in ended.log
    assert weights(chained.legs[-1]) == weights(straight)
    files = [hashlib.sha256((f / "final/model.pt").read_bytes()).hexdigest() for f in (straight, chained.legs[-1])]
    assert files[0] == files[1]
    return straight


def leg(chained: Chain, seconds: float) -> Ended:
    """A leg whose deadline comes after some seconds."""
    ended = chained.leg(environ={Variable.DEADLINE: str(time.time() + seconds)})
    assert ended.code == 0, ended.log
    assert newest(chained.legs[-1]) is not None
    return ended


def test_a_plain_loop_and_a_chain_give_the_same_weights(zygote: Zygote, tmp_path: Path) -> None:
    compare(zygote, tmp_path, epochs=2, stops=(0.7, 0.7))


def imported(path: Path) -> set[str]:
    """Top-level names of what a script imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {n.split(".")[0] for n in names | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


def test_the_plain_loop_knows_nothing_of_kgo() -> None:
    scripts = Path(plain_digits.__file__), EXAMPLE / "data.py", EXAMPLE / "model.py"
    found = set().union(*map(imported, scripts))
    assert found - sys.stdlib_module_names == {"torch", "data", "model"}


@pytest.mark.soak
@pytest.mark.full_stack
@pytest.mark.timeout(600)
def test_the_whole_training_is_accurate(zygote: Zygote, tmp_path: Path) -> None:
    import tomllib

    epochs = tomllib.loads((EXAMPLE / "kgo.toml").read_text())["train"]["params"]["epochs"]
    straight = compare(zygote, tmp_path, epochs, stops=(4, 6))
    assert json.loads((straight / "final/metrics.json").read_text())["test_accuracy"] >= 0.985
    assert json.loads((straight / "best/best.json").read_text())["value"] >= 0.985


def test_killed_in_the_midst_on_a_laptop(zygote: Zygote, tmp_path: Path) -> None:
    def kill(pid: int) -> None:
        while not list(tmp_path.glob("checkpoints/step-*")):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    script = "tests.runtime.training.test_digits:train"
    assert zygote.run(script, tmp_path, environ=environ(1), meanwhile=kill).code == -signal.SIGKILL
    ended = zygote.run(script, tmp_path, environ=environ(1))
    assert ended.code == 0, ended.log
    assert "kgo: going on from step 5" in ended.log


def test_the_data_is_the_published_file() -> None:
    digest = hashlib.sha256((EXAMPLE / "data/digits.csv.gz").read_bytes()).hexdigest()
    source = (EXAMPLE / "data/SOURCE.md").read_text()
    assert digest in source
    assert "CC BY 4.0" in source


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "train.py").read_text().splitlines()) < 60
