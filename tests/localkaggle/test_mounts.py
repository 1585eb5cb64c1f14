"""Which output or dataset a session finds below /kaggle/input, and which it doesn't."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import DATASETS, Client

LOOK = """
import json, os
root = os.environ.get("KGO_KAGGLE_ROOT", "/kaggle") + "/input"
print(json.dumps(sorted(os.path.relpath(os.path.join(p, f), root)
                        for p, _, fs in os.walk(root, followlinks=True) for f in fs)))
"""
EXTRAS = {"__output__.json", "__results__.html", "__script__.py", "custom.css"}


def seen(client: Client, slug: str, **fields: object) -> set[str]:
    return set(json.loads(client.ran(slug, LOOK, **fields)))


def test_two_kernels_mount_each_other_and_nothing_mounts_itself(client: Client) -> None:
    a, b = f"{client.user}/chain-a", f"{client.user}/chain-b"
    client.ran("chain-a", "open('step-1', 'w').write('1')")
    assert {"chain-a/step-1", f"notebooks/{a}/step-1"} <= seen(client, "chain-b", kernelDataSources=[a])
    client.ran("chain-b", "open('step-2', 'w').write('2')", kernelDataSources=[a])
    found = seen(client, "chain-a", kernelDataSources=[a, b])
    assert {"chain-b/step-2", f"notebooks/{b}/step-2"} <= found
    assert not [f for f in found if "chain-a" in f]
    metadata = client.rpc("GetKernel", userName=client.user, kernelSlug="chain-a")["metadata"]
    assert metadata["kernelDataSources"] == [b]


def test_only_the_last_good_version_mounts_with_kaggle_s_extras(client: Client) -> None:
    slug, sources = "good-source", [f"{client.user}/good-source"]
    client.ran(slug, "open('old', 'w').close()")
    client.ran(slug, "open('good', 'w').close()")
    client.push(slug, "open('bad', 'w').close(); raise SystemExit(1)")
    client.wait(slug)
    found = {Path(f).name for f in seen(client, "reads-good", kernelDataSources=sources) if f.startswith(slug)}
    assert found == {"good"} | EXTRAS
    assert set(client.files(slug, 2)) == {"good"}, "the listing doesn't have the extras"


def test_a_mounted_output_is_not_changed_by_its_reader(client: Client) -> None:
    client.ran("kept-source", "open('kept', 'w').write('as it was')")
    client.push(
        "bad-reader",
        "open(__import__('os').environ.get('KGO_KAGGLE_ROOT', '/kaggle') + '/input/kept-source/kept', 'w').write('!')",
        kernelDataSources=[f"{client.user}/kept-source"],
    )
    assert client.wait("bad-reader")["status"] == "ERROR"
    assert client.files("kept-source") == {"kept": b"as it was"}


def test_what_is_not_there_or_not_yours_is_named_and_the_session_runs_without_it(
    client: Client, server: LocalServer
) -> None:
    other = Client(server.url, f"kgo-local-other-{client.user[-8:]}")
    other.ran("other-private", "open('secret', 'w').close()")
    other.ran("other-public", "open('public', 'w').close()", isPrivate=False)
    answer = client.rpc(
        "SaveKernel",
        **client.request(
            "reads-others",
            LOOK,
            kernelDataSources=[f"{other.user}/other-private", f"{other.user}/other-public", "no/such", "nonsense"],
            datasetDataSources=["no/dataset", "../../etc/x"],
            competitionDataSources=["no-competition"],
            modelDataSources=["a/model/pytorch/x/1"],
        ),
    )
    assert answer["invalidKernelSources"] == [f"{other.user}/other-private", "no/such", "nonsense"]
    assert answer["invalidDatasetSources"] == ["no/dataset", "../../etc/x"]
    assert answer["invalidCompetitionSources"] == ["no-competition"]
    assert answer["invalidModelSources"] == ["a/model/pytorch/x/1"]
    assert answer["versionNumber"] == 1
    assert client.wait("reads-others") == {"status": "COMPLETE"}
    assert "other-public/public" in client.log("reads-others")
    assert "secret" not in client.log("reads-others")


def test_datasets_are_snapshots_and_unchanged_content_makes_no_version(
    client: Client, server: LocalServer, tmp_path: Path
) -> None:
    name = f"{client.user}/some-rows"
    source = tmp_path / "source"
    (source / "train").mkdir(parents=True)
    (source / "train" / "a.csv").write_text("1")
    assert admin.put_dataset(server.url, name, source) == 1
    assert admin.put_dataset(server.url, name, source) == 1
    found = seen(client, "reads-rows", datasetDataSources=[name])
    assert found == {"some-rows/train/a.csv", f"datasets/{name}/train/a.csv"}
    (source / "b.csv").write_text("22")
    assert admin.put_dataset(server.url, name, source) == 2
    names = {"ownerSlug": client.user, "datasetSlug": "some-rows"}
    assert client.rpc("GetDatasetStatus", DATASETS, **names) == {"status": "READY"}
    listed = client.rpc("ListDatasetFiles", DATASETS, **names)["datasetFiles"]
    assert [(f["name"], f["totalBytes"]) for f in listed] == [("b.csv", 2), ("train/a.csv", 1)]
    pinned = seen(client, "reads-rows", datasetDataSources=[f"{name}/1"])
    assert "some-rows/b.csv" not in pinned
    assert client.post("GetDatasetStatus", names | {"datasetSlug": "none"}, DATASETS).status_code == 404
    with pytest.raises(Exception, match="doesn't exist"):
        admin.put_dataset(server.url, name, tmp_path / "nowhere")


def test_competitions_data(client: Client, server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1")
    slug = f"cup-{client.user[-8:]}"
    admin.put_dataset(server.url, f"competitions/{slug}", tmp_path)
    found = seen(client, "reads-cup", competitionDataSources=[slug])
    assert found == {f"{slug}/train.csv", f"competitions/{slug}/train.csv"}


def test_layouts(client: Client, turn: Callable[..., None]) -> None:
    client.ran("layout-source", "open('x', 'w').close()")
    for layout, place in (("flat", "layout-source"), ("owner", f"notebooks/{client.user}/layout-source")):
        turn(mount_layout=layout)
        found = seen(client, "layout-reader", kernelDataSources=[f"{client.user}/layout-source"])
        assert {Path(f).parent.as_posix() for f in found} == {place}
