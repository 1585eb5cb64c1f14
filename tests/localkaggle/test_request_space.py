"""Whatever is asked of it in whatever order, plausible or not: no 500, no exception, and its state stays whole."""

import json
import logging
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.localkaggle.app import SERVICES
from tests.localkaggle.client import DATASETS, KERNELS
from tests.localkaggle.stage import Stage, plain, staged

RPCS = sorted((service, rpc) for service, rpcs in SERVICES.items() for rpc in rpcs)
SLUGS = ["first-kernel", "second-kernel", "third-kernel"]
DATA = ["first-data", "second-data"]
USERS = ["me", "ann"]
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["", ".", "..", "../x", "/", "a/b/c", "v0", "v1", "v99", "1", "\x00", "\ud800", "é" * 300, "%2e%2e"]
    ),
    st.lists(st.one_of(st.text(max_size=5), st.integers(), st.none()), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)
names = st.sampled_from([f"{user}/{slug}" for user in USERS for slug in SLUGS])
pushes = st.fixed_dictionaries(
    {
        "slug": names,
        "newTitle": st.sampled_from(["First Kernel", "Second Kernel", "Third Kernel", "first-kernel", "No"]),
        "text": st.sampled_from(["pass", "print(1)", "", "x" * 1_000_001]),
        "language": st.sampled_from(["python", "r"]),
        "kernelType": st.sampled_from(["script", "script", "notebook"]),
    },
    optional={
        "isPrivate": st.booleans(),
        "enableGpu": st.booleans(),
        "enableInternet": st.booleans(),
        "machineShape": st.sampled_from(["NvidiaTeslaT4", "NvidiaTeslaP100", "nvidiateslat4", "TpuV5E8", ""]),
        "sessionTimeoutSeconds": st.sampled_from([0, -1, 60, 43_199, 43_200]),
        "kernelExecutionType": st.sampled_from(["QUICK_SAVE", "SAVE_AND_RUN_ALL"]),
        "kernelDataSources": st.lists(names, max_size=3),
        "datasetDataSources": st.lists(st.sampled_from([f"{u}/{d}" for u in USERS for d in DATA]), max_size=3),
        "dockerImage": st.text(max_size=5),
    },
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "userName": st.sampled_from(USERS),
        "ownerSlug": st.sampled_from(USERS),
        "kernelSlug": st.sampled_from(SLUGS),
        "datasetSlug": st.sampled_from(DATA),
        "slug": st.sampled_from(DATA),
        "title": st.sampled_from(["First Data", "Second Data", "x"]),
        "versionLabel": st.sampled_from(["v1", "v2", "v9", "1"]),
        "versionNumber": st.integers(-1, 3),
        "datasetVersionNumber": st.integers(-1, 3),
        "kernelSessionId": st.integers(1000, 1010),
        "pageSize": st.integers(-1, 300),
        "pageToken": st.sampled_from(["", "0", "1", "999", "x"]),
        "page": st.integers(-1, 3),
        "filePath": st.sampled_from(["result", "../result", "", "/etc/passwd"]),
        "fileName": st.sampled_from(["a.csv", "../x", ""]),
        "name": st.sampled_from(["a.csv", "b.zip", "..", ""]),
        "contentLength": st.integers(-1, 12),
        "group": st.sampled_from(["PROFILE", "EVERYONE"]),
        "search": st.text(max_size=3),
        "id": st.integers(-1, 5),
    },
)
ODD_FIELDS = ["slug", "newTitle", "text", "files", "body", "userName", "kernelSlug", "versionLabel", "pageSize"]
ODD_FIELDS += ["pageToken", "token", "kernelDataSources", "title", "ownerSlug", "datasetSlug", "kernelSessionId", "x"]
calls = st.one_of(
    st.tuples(st.just("SaveKernel"), pushes),
    st.tuples(st.sampled_from(RPCS), fields),
    st.tuples(st.sampled_from(RPCS), st.dictionaries(st.sampled_from(ODD_FIELDS), odd, max_size=5)),
    st.tuples(st.just("later"), st.sampled_from([1.0, 60.0, 90_000.0])),
    st.tuples(st.just("upload"), st.binary(max_size=12)),
    st.tuples(
        st.just("get"),
        st.sampled_from(
            [
                "/_kgo/output/1001/result?expires=99999999999&signature=x",
                "/v1/kernels/logs/stream/me/first-kernel",
                "/v1/kernels/logs/stream/me/first-kernel?versionLabel=v1",
                "/v1/kernels/logs/stream/me/%00",
                "/_kgo/blob/x",
                "/",
                "/v1/x/y",
            ]
        ),
    ),
)


def act(stage: Stage, user: str, call: Any, tokens: list[str]) -> None:
    client = stage.client if user == "me" else stage.other(user)
    what, value = call
    if what == "later":
        stage.later(value)
        return
    if what == "get":
        status = client.http.get(stage.kaggle.url + value, timeout=30).status_code
        assert status not in (500, 503), value
        return
    if what == "upload":
        upload(client, value, tokens)
        return
    service, rpc = (KERNELS, "SaveKernel") if what == "SaveKernel" else what
    body = dict(value)
    if rpc in ("CreateDataset", "CreateDatasetVersion") and tokens and "files" not in body:
        files = [{"token": token} for token in tokens[-2:]]
        body |= {"files": files, "body": {"files": files}}
    answer = client.http.post(f"{stage.kaggle.url}/v1/{service}/{rpc}", data=json.dumps(body), timeout=30)
    assert answer.status_code not in (500, 503), (rpc, body, answer.text)


def upload(client: Any, data: bytes, tokens: list[str]) -> None:
    started = client.post(
        "StartBlobUpload", {"type": "DATASET", "name": f"f{len(tokens)}.zip", "contentLength": len(data)},
        "blobs.BlobApiService",
    )  # fmt: skip
    place = started.json()
    half = len(data) // 2
    client.http.put(place["createUrl"], data=data[:half], timeout=30)
    client.http.put(place["createUrl"], headers={"Content-Range": f"bytes */{len(data)}"}, timeout=30)
    span = f"bytes {half}-{max(half, len(data) - 1)}/{len(data)}"
    status = client.http.put(
        place["createUrl"], data=data[half:], headers={"Content-Range": span}, timeout=30
    ).status_code
    assert status < 500
    tokens.append(place["token"])


def check_whole(stage: Stage, root: Path) -> None:
    """Every list still works for everybody, and the file is sound."""
    for client in (stage.client, stage.other("ann")):
        assert client.post("ListKernels", {"group": "PROFILE", "pageSize": 200}).status_code == 200
        assert client.post("ListDatasets", {"group": "MY", "pageSize": 200}, DATASETS).status_code == 200
        for kernel in client.rpc("ListKernels", group="PROFILE")["kernels"]:
            owner, slug = kernel["ref"].split("/")
            ref = {"userName": owner, "kernelSlug": slug}
            for rpc in ("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "ListKernelFiles"):
                assert client.post(rpc, ref).status_code == 200
    stage.kaggle.sessions()
    database = sqlite3.connect(root / "world.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    database.close()


def explore(script: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "world"
        with staged(root, plain(60, result="text")) as stage:
            tokens: list[str] = []
            for user, call in script:
                act(stage, user, call, tokens)
            check_whole(stage, root)
        assert sorted(path.name for path in Path(folder).iterdir()) == ["world"]


scripts = st.lists(st.tuples(st.sampled_from(USERS), calls), max_size=25)
quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=40, deadline=None, suppress_health_check=quiet)
@given(script=scripts)
def test_whatever_is_asked_in_whatever_order(script: list[tuple[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        explore(script)
    assert not caplog.records


@pytest.mark.soak
@settings(max_examples=600, deadline=None, suppress_health_check=quiet)
@given(script=scripts)
def test_whatever_is_asked_at_length(script: list[tuple[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        explore(script)
    assert not caplog.records
