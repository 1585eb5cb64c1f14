"""What counts as another code or another configuration, and what doesn't."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment import chain_id, code_sha256, collect, config_sha256, file_digests, load
from tests.experiment.trees import CHAIN, experiment, tree

FILES = {"a.py": "1", "b/c.py": "2"}


def code(folder: Path) -> str:
    return code_sha256(collect(load(folder)))


def test_code_is_names_and_bytes(tmp_path: Path) -> None:
    experiment(tmp_path, files=FILES)
    before = code(tmp_path)
    os.utime(tmp_path / "a.py", (1, 1))
    (tmp_path / "b/c.py").chmod(0o755)
    assert code(tmp_path) == before
    tree(tmp_path, {"a.py": "1\r\n"})
    assert code(tmp_path) != before
    tree(tmp_path, {"a.py": "1"})
    assert code(tmp_path) == before
    (tmp_path / "a.py").rename(tmp_path / "d.py")
    assert code(tmp_path) != before


def test_the_same_code_elsewhere_is_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        experiment(tmp_path / name, files=FILES)
    assert code(tmp_path / "one") == code(tmp_path / "two")


def test_contents_can_be_handed_over(tmp_path: Path) -> None:
    files = collect(experiment(tmp_path, files=FILES))
    assert code_sha256({path: file.read_bytes() for path, file in files.items()}) == code_sha256(files)
    assert list(file_digests(files)) == ["a.py", "b/c.py", "train.py"]


def test_the_boundary_between_name_and_content_counts() -> None:
    assert code_sha256({"ab": b"c"}) != code_sha256({"a": b"bc"})
    assert code_sha256({"a": b"", "b": b""}) != code_sha256({"a": b""})
    assert code_sha256({"a": b"x"}) != code_sha256({"b": b"x"})


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    files = collect(experiment(tmp_path, files=FILES))
    (tmp_path / "a.py").unlink()
    with pytest.raises(RenderError, match=r"a\.py can't be read"):
        code_sha256(files)


EDITS = [
    ("kernel", 'accelerator = "T4x2"'),
    ("kernel", "internet = true"),
    ("kernel", 'datasets = ["me/x"]'),
    ("kernel", 'kernels = ["me/other-kernel"]'),
    ("train", 'args = ["--x"]'),
    ("train", "params = { lr = 1 }"),
    ("checkpoint", 'paths = ["x"]'),
    ("checkpoint", 'done = "x"'),
    ("checkpoint", "deterministic = true"),
]
NO_EDITS = [
    ("kernel", 'title = "Digits CNN"'),
    ("kernel", "private = false"),
    ("chain", "max_legs = 99"),
    ("chain", "max_gpu_hours = 99"),
    ("chain", 'session_limit = "6h"'),
    ("chain", 'stop_before = "20m"'),
    ("checkpoint", "keep = 5"),
    ("checkpoint", 'save_every = "5m"'),
    ("guards", 'hung = "2h"'),
    ("pull", 'dir = "x"'),
    ("local", 'python = "x"'),
]


@pytest.mark.parametrize(("table", "line", "edit"), [(*e, True) for e in EDITS] + [(*e, False) for e in NO_EDITS])
def test_only_what_training_depends_on_is_an_edit(tmp_path: Path, table: str, line: str, edit: bool) -> None:
    before = config_sha256(experiment(tmp_path, CHAIN))
    head = f"[{table}]\n"
    toml = CHAIN.replace(head, head + line + "\n") if head in CHAIN else f"{CHAIN}{head}{line}\n"
    assert (config_sha256(experiment(tmp_path, toml)) != before) is edit


def test_order_of_keys_and_sources_does_not_count(tmp_path: Path) -> None:
    e = experiment(tmp_path)
    one = replace(e, train=replace(e.train, params={"a": 1, "b": {"c": 2, "d": 3}}))
    two = replace(e, train=replace(e.train, params={"b": {"d": 3, "c": 2}, "a": 1}))
    assert config_sha256(one) == config_sha256(two)


def test_chain_ids() -> None:
    assert chain_id("me", "digits-cnn", 1) == chain_id("ME", "digits-cnn", 1) == "3a0e9a7c82ec1213"
    assert len({chain_id("me", "digits-cnn", 1), chain_id("me", "digits-cnn", 2), chain_id("me", "digits", 1)}) == 3
