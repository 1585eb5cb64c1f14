"""What each call sends and what it makes of good answers; reads are repeated, listings end."""

import random
from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import BadAnswer, NotAccessible, SourcesDropped, Throttled, Unavailable
from kaggle_orchestrator.models import KernelRef, PushAnswer, PushRequest, SessionStatus, StatusReport
from tests.client.faulty import FaultyServer, Reply, answer, closed, reset, served

REF = KernelRef("me", "digits-b")
PUSH = PushRequest(
    REF,
    title="Digits B",
    source="# kgo-header: {}\nprint('ü')\n",
    machine_shape="NvidiaTeslaT4",
    datasets=("me/digits",),
    competitions=("mnist",),
    kernels=("me/digits",),
    models=("me/m/pytorch/1",),
    docker_image="gcr.io/x",
    session_timeout_s=600,
)
LANDED = {"ref": "me/digits-b", "url": "https://www.kaggle.com/code/me/digits-b", "versionNumber": 7, "kernelId": 1}


def test_a_push_says_everything(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("SaveKernel", answer(LANDED))
    assert kaggle.push(PUSH) == PushAnswer(REF, 7, "https://www.kaggle.com/code/me/digits-b")
    (seen,) = server.seen
    assert seen.json == {
        "slug": "me/digits-b",
        "newTitle": "Digits B",
        "text": "# kgo-header: {}\nprint('ü')\n",
        "language": "python",
        "kernelType": "script",
        "isPrivate": True,
        "enableGpu": True,
        "enableTpu": False,
        "enableInternet": False,
        "machineShape": "NvidiaTeslaT4",
        "datasetDataSources": ["me/digits"],
        "competitionDataSources": ["mnist"],
        "kernelDataSources": ["me/digits"],
        "modelDataSources": ["me/m/pytorch/1"],
        "dockerImage": "gcr.io/x",
        "sessionTimeoutSeconds": 600,
    }


def test_a_push_to_the_cpu(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("SaveKernel", answer(LANDED))
    kaggle.push(PushRequest(REF, "Digits B", "x", internet=True, private=False))
    sent = server.seen[0].json
    assert (sent["enableGpu"], sent["enableInternet"], sent["isPrivate"]) == (False, True, False)
    assert not {"machineShape", "sessionTimeoutSeconds", "dockerImage", "kernelDataSources"} & set(sent)


def test_a_push_has_a_connection_of_its_own(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    server.rpc("SaveKernel", answer(LANDED))
    kaggle.status(REF, 1)
    kaggle.push(PUSH)
    kaggle.push(PUSH)
    assert len({seen.connection for seen in server.seen}) == 3


@pytest.mark.parametrize(
    ("ref", "landed"),
    [("/me/other", "me/other"), ("/code/me/other", "me/other"), ("", "me/other"), ("odd", "me/other")],
)
def test_a_push_that_lands_elsewhere_says_so(server: FaultyServer, kaggle: Kaggle, ref: str, landed: str) -> None:
    server.rpc("SaveKernel", answer({**LANDED, "ref": ref, "url": "https://www.kaggle.com/code/me/other"}))
    assert str(kaggle.push(PUSH).ref) == landed


def test_a_push_without_ref_or_url_landed_where_it_was_sent(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("SaveKernel", answer({"versionNumber": 1, "error": None, "invalidDatasetSources": None}))
    assert kaggle.push(PUSH) == PushAnswer(REF, 1, "")


def test_dropped_sources_are_no_success(server: FaultyServer, kaggle: Kaggle) -> None:
    dropped = {"invalidDatasetSources": ["me/digits"], "invalidKernelSources": ["me/digits"], "invalidTags": ["x"]}
    server.rpc("SaveKernel", answer({**LANDED, **dropped}))
    with pytest.raises(SourcesDropped, match="version 7") as refused:
        kaggle.push(PUSH)
    assert (refused.value.sources, refused.value.version) == (("me/digits", "me/digits"), 7)


@pytest.mark.parametrize("key", ["invalidCompetitionSources", "invalidModelSources"])
def test_every_kind_of_dropped_source_counts(server: FaultyServer, kaggle: Kaggle, key: str) -> None:
    server.rpc("SaveKernel", answer({**LANDED, key: ["x"]}))
    with pytest.raises(SourcesDropped):
        kaggle.push(PUSH)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        *[(s.value, s) for s in SessionStatus],
        ("complete", SessionStatus.COMPLETE),
        ("cancelAcknowledged", SessionStatus.CANCEL_ACKNOWLEDGED),
        ("CANCELACKNOWLEDGED", SessionStatus.CANCEL_ACKNOWLEDGED),
        ("KERNEL_WORKER_STATUS_RUNNING", SessionStatus.RUNNING),
    ],
)
def test_status_words(server: FaultyServer, kaggle: Kaggle, word: str, status: SessionStatus) -> None:
    server.rpc("GetKernelSessionStatus", answer({"status": word, "failureMessage": "why\n"}))
    assert kaggle.status(REF, 12) == StatusReport(status, "why")
    assert server.seen[0].json == {"userName": "me", "kernelSlug": "digits-b", "versionLabel": "v12"}


def test_the_source_of_a_version(server: FaultyServer, kaggle: Kaggle) -> None:
    body = {"metadata": {"currentVersionNumber": 9, "ref": "me/digits-b"}, "blob": {"source": "print(1)"}}
    server.rpc("GetKernel", answer(body))
    one = kaggle.version(REF, 4)
    assert one is not None
    assert (one.source, one.current_version, one.ref) == ("print(1)", 9, REF)
    kaggle.version(REF)
    assert [s.json.get("versionLabel") for s in server.seen] == ["v4", None]


@pytest.mark.parametrize("status", [403, 404])
def test_a_version_that_is_not_accessible(server: FaultyServer, kaggle: Kaggle, status: int) -> None:
    server.rpc("GetKernel", answer({"code": status, "message": "no"}, status))
    assert kaggle.version(REF, 4) is None


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"currentVersionNumber": 9}},
        {"blob": {"source": "x"}},
        {"metadata": {}, "blob": {"source": "x"}},
        {"metadata": {"currentVersionNumber": 9}, "blob": {"source": 1}},
        {"metadata": [], "blob": []},
    ],
)
def test_half_a_version_is_none(server: FaultyServer, kaggle: Kaggle, body: object) -> None:
    server.rpc("GetKernel", answer(body))
    with pytest.raises(BadAnswer):
        kaggle.version(REF, 4)


def listed(*names: str, token: str | None = None, log: str | None = None) -> Reply:
    body: dict[str, object] = {"files": [{"fileName": n, "url": f"http://127.0.0.1/{n}"} for n in names]}
    return answer(body | ({"nextPageToken": token} if token else {}) | ({"log": log} if log else {}))


def test_all_pages_of_the_output_and_the_first_ones_log(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc(
        "ListKernelSessionOutput",
        listed("a", "b", token="1", log="one\ntwo\n"),
        listed("b", "c", token="2", log="other"),
        listed("d/e"),
    )
    listing = kaggle.outputs(REF, 3)
    assert [f.name for f in listing.files] == ["a", "b", "c", "d/e"]
    assert listing.log == ("one", "two")
    assert [s.json.get("pageToken") for s in server.seen] == ["", "1", "2"]
    assert all(s.json["pageSize"] == 200 and s.json["versionLabel"] == "v3" for s in server.seen)


@pytest.mark.parametrize("body", [{}, {"files": None, "log": None, "nextPageToken": None}, {"files": []}])
def test_no_output(server: FaultyServer, kaggle: Kaggle, body: object) -> None:
    server.rpc("ListKernelSessionOutput", answer(body))
    assert kaggle.outputs(REF, 3).files == ()


@pytest.mark.parametrize("files", [{}, [1], [{}], [{"fileName": "a"}], [{"fileName": "a", "url": None}], "a"])
def test_a_listing_that_is_none(server: FaultyServer, kaggle: Kaggle, files: object) -> None:
    server.rpc("ListKernelSessionOutput", answer({"files": files}))
    with pytest.raises(BadAnswer):
        kaggle.outputs(REF, 3)


def test_a_listing_that_goes_round(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("ListKernelSessionOutput", listed("a", token="1"), listed("b", token="2"), listed("c", token="1"))
    with pytest.raises(BadAnswer, match="has no end"):
        kaggle.outputs(REF, 3)
    assert len(server.seen) == 3


def test_a_listing_that_never_ends(server: FaultyServer, tmp_path: Path) -> None:
    server.rpc("ListKernelSessionOutput", *[listed(token=str(n)) for n in range(1, 20)])
    policy = Policy(pages=10)
    with (
        connect(server.url, environ={"HOME": str(tmp_path)}, policy=policy) as kaggle,
        pytest.raises(BadAnswer, match="more than 10 pages"),
    ):
        kaggle.outputs(REF, 3)
    assert len(server.seen) == 10


def test_a_listing_that_breaks_off_between_pages_goes_on(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("ListKernelSessionOutput", listed("a", token="1"), answer({"code": 500}, 500), reset, listed("b"))
    assert [f.name for f in kaggle.outputs(REF, 3).files] == ["a", "b"]
    assert [s.json.get("pageToken") for s in server.seen] == ["", "1", "1", "1"]


def test_reading_one_file_stops_at_its_page(server: FaultyServer, kaggle: Kaggle) -> None:
    url = server.on("/leg.json", served(b"{}"))
    page = answer({"files": [{"fileName": "kgo/leg.json", "url": url}], "nextPageToken": "2"})
    server.rpc("ListKernelSessionOutput", listed("a", token="1"), page)
    assert kaggle.read(REF, 3, "kgo/leg.json") == b"{}"
    assert len(server.calls("ListKernelSessionOutput")) == 2


def test_reading_a_file_that_is_not_there(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("ListKernelSessionOutput", listed("a", token="1"), listed("b"))
    assert kaggle.read(REF, 3, "kgo/leg.json") is None


def test_reading_signs_again_when_the_address_has_expired(server: FaultyServer, kaggle: Kaggle) -> None:
    old, new = server.on("/old", answer(b"<Error/>", 403)), server.on("/new", served(b"right"))
    server.rpc(
        "ListKernelSessionOutput",
        answer({"files": [{"fileName": "f", "url": old}]}),
        answer({"files": [{"fileName": "f", "url": new}]}),
    )
    assert kaggle.read(REF, 3, "f") == b"right"


def test_the_accounts_kernels(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc(
        "ListKernels",
        answer({"kernels": [{"ref": "me/a"}, {"ref": "me/b"}], "nextPageToken": "x"}),
        answer({"kernels": [{"ref": "/me/c"}, {"ref": "no kernel"}, {"ref": "me/b"}], "nextPageToken": ""}),
    )
    assert [str(k) for k in kaggle.kernels()] == ["me/a", "me/b", "me/c"]
    first, second = (s.json for s in server.seen)
    assert (first["group"], first["page"], first["pageSize"]) == ("PROFILE", 1, 100)
    assert second["pageToken"] == "x"
    assert "page" not in second


QUOTA = {
    "quotaRefreshTime": "2027-01-16T00:00:00.123456789Z",
    "gpuQuota": {"timeUsed": "3600.5s", "timeReserved": "600s", "totalTimeAllowed": "108000s"},
}


def test_the_quota(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("GetAcceleratorQuotaStatistics", answer(QUOTA))
    quota = kaggle.quota()
    assert (quota.used_s, quota.reserved_s, quota.total_s) == (3600.5, 600.0, 108000.0)
    assert quota.refresh_at == pytest.approx(1_800_057_600.123, abs=0.001)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-01-16T00:00:00", 1_800_057_600.0),
        ("2027-01-16T02:00:00+02:00", 1_800_057_600.0),
        ("0001-01-01T00:00:00Z", None),
        (None, None),
    ],
)
def test_when_the_quota_is_refreshed(
    server: FaultyServer, kaggle: Kaggle, text: str | None, seconds: float | None
) -> None:
    server.rpc("GetAcceleratorQuotaStatistics", answer({**QUOTA, "quotaRefreshTime": text}))
    assert kaggle.quota().refresh_at == seconds


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"gpuQuota": {}},
        {"gpuQuota": {"totalTimeAllowed": "30h"}},
        {"gpuQuota": {"totalTimeAllowed": 108000}},
        {**QUOTA, "quotaRefreshTime": "soon"},
    ],
)
def test_no_quota_is_not_zero(server: FaultyServer, kaggle: Kaggle, body: object) -> None:
    server.rpc("GetAcceleratorQuotaStatistics", answer(body))
    with pytest.raises(BadAnswer):
        kaggle.quota()


# How often, and after which wait.

RUNNING = answer({"status": "RUNNING"})


def test_a_read_is_repeated_with_growing_waits(server: FaultyServer, kaggle: Kaggle, clock: FakeClock) -> None:
    server.rpc("GetKernelSessionStatus", answer(b"", 500), closed, RUNNING)
    assert kaggle.status(REF, 1).status is SessionStatus.RUNNING
    first, second = clock.slept
    assert 0.5 <= first <= 1.0 <= second <= 2.0


def test_two_clients_do_not_wait_in_step(server: FaultyServer, tmp_path: Path) -> None:
    waits = []
    for seed in (1, 2):
        clock = FakeClock()
        server.rpc("GetKernelSessionStatus", answer(b"", 500), RUNNING)
        with connect(server.url, environ={"HOME": str(tmp_path)}, clock=clock, rng=random.Random(seed)) as kaggle:
            kaggle.status(REF, 1)
        waits += clock.slept
    assert waits[0] != waits[1]


def test_retry_after_is_honoured(server: FaultyServer, kaggle: Kaggle, clock: FakeClock) -> None:
    server.rpc("GetKernelSessionStatus", answer({"code": 429}, 429, {"Retry-After": "20"}), RUNNING)
    kaggle.status(REF, 1)
    assert len(clock.slept) == 1
    assert 20.0 <= clock.slept[0] <= 20.2


def test_who_should_wait_for_long_is_told(server: FaultyServer, kaggle: Kaggle, clock: FakeClock) -> None:
    server.rpc("GetKernelSessionStatus", answer({"code": 429}, 429, {"Retry-After": "3600"}))
    with pytest.raises(Throttled) as throttled:
        kaggle.status(REF, 1)
    assert throttled.value.retry_after_s == 3600.0
    assert (len(server.seen), clock.slept) == (1, [])


def test_a_read_is_given_up(server: FaultyServer, kaggle: Kaggle, clock: FakeClock) -> None:
    server.rpc("GetKernelSessionStatus", answer({"code": 503, "message": "down"}, 503))
    with pytest.raises(Unavailable, match="down"):
        kaggle.status(REF, 1)
    assert len(server.seen) == 3
    assert len(clock.slept) == 2


def test_what_is_not_there_is_not_asked_for_again(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("GetKernelSessionStatus", answer({"code": 404, "message": "no"}, 404))
    with pytest.raises(NotAccessible):
        kaggle.status(REF, 1)
    assert len(server.seen) == 1
