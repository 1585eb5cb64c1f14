"""Which sources a session finds, under each knob that reports of Kaggle contradict each other on."""

from pathlib import Path

import pytest

from tests.localkaggle.stage import Stage, plain, staged


def targets(stage: Stage) -> list[str]:
    return [mount.target for mount in stage.scenes[-1].mounts]


def ran(stage: Stage, slug: str, *sources: str) -> list[str]:
    """Push, wait for the end, and give what was mounted."""
    stage.client.push(slug, "pass", kernelDataSources=list(sources))
    stage.later(60)
    stage.client.status(slug)
    return targets(stage)


def test_a_kernel_can_not_mount_itself(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        ran(stage, "narcissus")
        assert ran(stage, "narcissus", "me/narcissus") == []
        metadata = stage.client.rpc("GetKernel", userName="me", kernelSlug="narcissus")["metadata"]
        assert metadata["kernelDataSources"] == []
        request = stage.client.request("new-one", "pass", kernelDataSources=["me/New-One"])
        first = stage.client.rpc("SaveKernel", **request)
        told = first["versionNumber"], first["invalidKernelSources"]
        assert told == (1, []), "it's dropped without a word, before there is such a kernel, too"


def test_or_it_can(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"self_mount": "mount"}) as stage:
        ran(stage, "narcissus")
        assert ran(stage, "narcissus", "me/narcissus") == ["narcissus", "notebooks/me/narcissus"]


def test_a_new_source_may_be_missing_in_its_first_session(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"first_mount": "empty", "mount_layout": "flat"}) as stage:
        ran(stage, "source-one")
        ran(stage, "source-two")
        assert ran(stage, "reader-one", "me/source-one") == []
        assert ran(stage, "reader-one", "me/source-one") == ["source-one"]
        assert ran(stage, "reader-one", "me/source-one", "me/source-two") == ["source-one"]
        assert ran(stage, "reader-one", "me/source-one", "me/source-two") == ["source-one", "source-two"]


def test_another_version_of_a_source_is_no_new_source(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"first_mount": "empty", "mount_layout": "flat"}) as stage:
        ran(stage, "the-source")
        assert ran(stage, "the-reader", "me/the-source") == []
        assert ran(stage, "the-reader", "me/The-Source/1") == ["the-source"]


@pytest.mark.parametrize(("knob", "found"), [("keep", ["the-source"]), ("mask", [])])
def test_a_version_that_was_only_saved(tmp_path: Path, knob: str, found: list[str]) -> None:
    with staged(tmp_path, knobs={"quick_save": knob, "mount_layout": "flat"}) as stage:
        ran(stage, "the-source")
        stage.client.push("the-source", "pass", kernelExecutionType="QUICK_SAVE")
        assert stage.client.status("the-source", 2) == {"status": "NEW_SCRIPT"}
        assert ran(stage, "the-reader", "me/the-source") == found
        ran(stage, "the-source")
        assert ran(stage, "the-reader", "me/the-source") == ["the-source"]


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ("flat", ["the-source"]),
        ("owner", ["notebooks/me/the-source"]),
        ("both", ["the-source", "notebooks/me/the-source"]),
    ],
)
def test_the_layout(tmp_path: Path, layout: str, found: list[str]) -> None:
    with staged(tmp_path, knobs={"mount_layout": layout}) as stage:
        ran(stage, "the-source")
        assert ran(stage, "the-reader", "me/the-source") == found


def test_too_many_files_are_lost(tmp_path: Path) -> None:
    files = {f"f{n:02}": "x" for n in range(30)}
    with staged(tmp_path, plain(60, **files), knobs={"working_files": 20}) as stage:
        ran(stage, "messy-one")
        assert sorted(stage.client.files("messy-one")) == sorted(files)[:20]


def test_too_many_bytes_are_lost(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x" * 50, b="x" * 60, c="x"), knobs={"working_bytes": 100}) as stage:
        ran(stage, "large-one")
        assert sorted(stage.client.files("large-one")) == ["a"]


def test_or_only_an_archive_of_them_is_mounted(tmp_path: Path) -> None:
    files = {f"f{n:02}": "x" for n in range(30)}
    with staged(tmp_path, plain(60, **files), knobs={"working_files": 20, "overflow": "zip"}) as stage:
        ran(stage, "messy-one")
        assert len(stage.client.files("messy-one")) == 30
        ran(stage, "the-reader", "me/messy-one")
        folder = Path(stage.scenes[-1].mounts[0].source)
        assert [path.name for path in folder.iterdir()] == ["_output_.zip"]


def test_another_account_s_private_kernel_and_dataset_are_refused(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        other = stage.other("somebody")
        other.push("their-secret", "pass")
        other.push("their-gift", "pass", isPrivate=False)
        stage.later(60)
        answer = stage.client.rpc(
            "SaveKernel",
            **stage.client.request(
                "the-reader",
                "pass",
                kernelDataSources=["somebody/their-secret", "somebody/their-gift"],
                datasetDataSources=["somebody/no-such"],
                modelDataSources=["a/b/c/d"],
            ),
        )
        assert answer["invalidKernelSources"] == ["somebody/their-secret"]
        assert answer["invalidDatasetSources"] == ["somebody/no-such"]
        assert answer["invalidModelSources"] == ["a/b/c/d"]
        assert answer["versionNumber"] == 1
        assert "notebooks/somebody/their-gift" in targets(stage)


def test_an_account_without_a_phone_gets_neither_gpu_nor_internet_and_is_not_told(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"verified": "no_phone"}) as stage:
        answer = stage.client.rpc(
            "SaveKernel",
            **stage.client.request(
                "wants-all", "pass", machineShape="NvidiaTeslaT4", enableGpu=True, enableInternet=True
            ),
        )
        assert "error" not in answer
        (scene,) = stage.scenes
        assert not scene.gpu
        assert not scene.settings.internet


def test_an_unverified_account_can_not_push(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"verified": "nothing"}) as stage:
        assert stage.client.post("SaveKernel", stage.client.request("nobody-s", "pass")).status_code == 403
        assert stage.client.rpc("ListKernels", group="PROFILE") == {"kernels": []}
