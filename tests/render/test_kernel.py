"""What a push says: settings, plan, header; and what is refused before Kaggle would."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import LegRecord, Outcome, Parent, parse_header
from kaggle_orchestrator.render import bundle_of, first_attempt, metadata, render, write_folder
from tests.experiment.trees import CHAIN, MINIMAL, experiment, tree
from tests.render.attempts import plan_of, rendered

FULL = """
[kernel]
slug = "digits-cnn"
title = "Digits CNN"
accelerator = "T4x2"
datasets = ["me/digits", "other/more-digits"]
competitions = ["titanic"]
models = ["google/gemma/pyTorch/2b-it/3"]
kernels = ["me/features"]
docker_image = "gcr.io/kaggle-images/python:v1"
[train]
entry = "train.py"
args = ["--lr", "{params.lr}", "--resume", "{resume}"]
params = { lr = 0.1 }
[chain]
session_limit = "6h"
stop_before = "15m"
[checkpoint]
keep = 3
save_every = "5m"
paths = ["ckpt/**"]
done = "final.pt"
deterministic = true
[guards]
hung = "1h"
"""


def test_the_golden_metadata(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp", FULL)
    meta, code = write_folder(rendered(e), tmp_path / "k")
    assert code.name == "kgo_kernel.py"
    assert meta.read_text() == (
        """{
  "id": "me/digits-cnn",
  "title": "Digits CNN",
  "code_file": "kgo_kernel.py",
  "language": "python",
  "kernel_type": "script",
  "is_private": true,
  "enable_gpu": true,
  "enable_tpu": false,
  "enable_internet": false,
  "machine_shape": "NvidiaTeslaT4",
  "dataset_sources": [
    "me/digits",
    "other/more-digits"
  ],
  "competition_sources": [
    "titanic"
  ],
  "kernel_sources": [
    "me/features"
  ],
  "model_sources": [
    "google/gemma/pyTorch/2b-it/3"
  ],
  "docker_image": "gcr.io/kaggle-images/python:v1"
}
"""
    )


def test_a_cpu_kernel_says_everything_too(tmp_path: Path) -> None:
    document = metadata(rendered(experiment(tmp_path)))
    assert document["machine_shape"] == ""
    assert document["enable_gpu"] is False
    assert document["enable_internet"] is False
    assert document["is_private"] is True
    assert json.loads(json.dumps(document)) == document


def test_the_plan_holds_what_the_session_needs(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp", FULL)
    lineage = (LegRecord(1, 1, "t", Outcome.CONTINUE, 0, 10, 1.0, 2.0),)
    request = rendered(e, mounts=("me/digits-cnn-b",), lineage=lineage, leave_after_s=1000.0)
    plan = plan_of(request, tmp_path)
    assert plan.header == first_attempt(e, "me").header == parse_header(request.source)
    assert (plan.entry, plan.launch, plan.params) == ("train.py", "python", {"lr": 0.1})
    assert plan.args == ("--lr", "0.1", "--resume", "{resume}")
    assert (plan.session_limit_s, plan.leave_after_s) == (21600, 1000)
    assert (plan.keep, plan.save_every_s, plan.paths, plan.done) == (3, 300, ("ckpt/**",), "final.pt")
    assert (plan.accelerator, plan.gpu_count, plan.deterministic, plan.hung_s) == ("NvidiaTeslaT4", 2, True, 3600)
    assert plan.sources == ("digits", "more-digits", "features", "digits-cnn-b", "gemma", "titanic")
    assert plan.lineage == lineage
    assert request.kernels == ("me/features", "me/digits-cnn-b")
    assert request.docker_image == "gcr.io/kaggle-images/python:v1"
    assert request.session_timeout_s == 21600


def test_the_first_attempt_of_a_chain_and_of_a_one_off(tmp_path: Path) -> None:
    one_off = first_attempt(experiment(tmp_path), "me")
    assert (one_off.leave_after_s, one_off.session_limit_s) == (None, 12 * 3600)
    chained = first_attempt(experiment(tmp_path, CHAIN), "me")
    assert (chained.leave_after_s, chained.session_limit_s) == (12 * 3600 - 600, 12 * 3600)
    assert (chained.header.leg, chained.header.attempt, chained.header.parent) == (1, 1, None)
    assert one_off.header.token == chained.header.token, "it depends on chain, leg and attempt alone"


def test_a_one_off_is_never_asked_to_leave(tmp_path: Path) -> None:
    assert plan_of(rendered(experiment(tmp_path / "e"), leave_after_s=5.0), tmp_path).leave_after_s is None


@pytest.mark.parametrize(("limit", "timeout"), [(12 * 3600.0, None), (99_999.0, None), (43_199.9, 43_199), (0.5, 1)])
def test_kaggle_gets_whole_seconds_below_its_maximum_and_the_plan_the_same(
    tmp_path: Path, limit: float, timeout: int | None
) -> None:
    request = rendered(experiment(tmp_path / "e", CHAIN), session_limit_s=limit)
    assert request.session_timeout_s == timeout
    assert plan_of(request, tmp_path).session_limit_s == (timeout or 12 * 3600)


def test_the_header_is_the_first_line(tmp_path: Path) -> None:
    e = experiment(tmp_path)
    parent = Parent("me/digits-cnn-b", 3, "0123456789abcdef", 1200, "f" * 64)
    header = replace(first_attempt(e, "me").header, leg=4, attempt=6, parent=parent)
    source = rendered(e, header=header).source
    assert source.split("\n")[0] == header.line()
    assert parse_header(source) == header
    assert "me/digits-cnn, leg 4, attempt 6" in source


def test_a_title_that_gives_another_slug_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="doesn't give the slug of me/digits-cnn-b"):
        rendered(experiment(tmp_path), kernel=KernelRef("me", "digits-cnn-b"))


def test_a_kernel_that_mounts_itself_is_refused(tmp_path: Path) -> None:
    e = experiment(tmp_path, MINIMAL.replace("[train]", 'kernels = ["me/digits-cnn"]\n[train]'))
    with pytest.raises(RenderError, match="me/digits-cnn names itself as a source"):
        rendered(e)


def test_code_that_changes_while_it_is_rendered_is_refused(tmp_path: Path) -> None:
    """Else the header would vouch for a code that isn't in the bundle."""
    e = experiment(tmp_path)
    attempt = first_attempt(e, "me")
    tree(tmp_path, {"train.py": "changed"})
    with pytest.raises(RenderError, match="changed while the kernel was made"):
        render(e, attempt)


def test_a_kernel_beyond_a_megabyte_names_its_largest_files(tmp_path: Path) -> None:
    from random import Random

    files = {f"{name}.bin": Random(n).randbytes(n * 100_000) for n, name in enumerate("abcdefgh")}
    e = experiment(tmp_path, files=files)
    with pytest.raises(RenderError) as caught:
        rendered(e)
    lines = caught.value.message.splitlines()
    assert "Kaggle takes a source of less than 1,000,000" in lines[0]
    assert [line.split()[-1] for line in lines[1:]] == ["h.bin", "g.bin", "f.bin", "e.bin", "d.bin"]
    assert "700,000" in lines[1]
    assert caught.value.hint
    assert "train.exclude" in caught.value.hint


def test_a_huge_file_is_refused_without_being_compressed(tmp_path: Path) -> None:
    e = experiment(tmp_path)
    attempt = first_attempt(e, "me")
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(10**11)
    with pytest.raises(RenderError, match=r"100,000,000,\d+ bytes"):
        render(e, attempt)


def test_a_kernel_below_the_limit_is_taken_and_one_of_that_size_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = experiment(tmp_path)
    size = len(rendered(e).source.encode())
    monkeypatch.setattr("kaggle_orchestrator.render.kernel.MAX_SOURCE", size + 1)
    rendered(e)
    monkeypatch.setattr("kaggle_orchestrator.render.kernel.MAX_SOURCE", size)
    with pytest.raises(RenderError, match="less than"):
        rendered(e)


def test_a_source_without_a_bundle_or_with_a_damaged_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="holds no bundle"):
        bundle_of("print(1)\n")
    source = rendered(experiment(tmp_path)).source
    at = source.index('BUNDLE = """') + 200
    with pytest.raises(RenderError, match="damaged"):
        bundle_of(source[:at] + ("A" if source[at] != "A" else "B") + source[at + 1 :])
