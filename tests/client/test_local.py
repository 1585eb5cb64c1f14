"""The client against a real local Kaggle: scripts run, outputs and logs come back, refusals are understood."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.errors import (
    CredentialsError,
    NotAccessible,
    QuotaExhausted,
    Refused,
    SessionCap,
    SourcesDropped,
    UnclearPush,
)
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.models import KernelRef, SessionStatus
from tests.client.local import ended, ran, request, user, writing


@pytest.fixture
def ann(local: LocalServer, tmp_path: Path) -> Iterator[Kaggle]:
    with user(local, "ann", tmp_path) as kaggle:
        yield kaggle


def test_who_one_is(local: LocalServer, ann: Kaggle, tmp_path: Path) -> None:
    assert ann.owner() == "ann"
    with user(local, "ann.not.a.name", tmp_path) as stranger, pytest.raises(CredentialsError):
        stranger.owner()


def test_each_version_has_its_own_status_source_output_and_log(ann: Kaggle, tmp_path: Path) -> None:
    ref = KernelRef("ann", "two-versions")
    one = ran(
        ann, ref, {"data/a.txt": b"first", "empty": b""}, "print('one', flush=True); print('err', file=sys.stderr)"
    )
    two = ran(ann, ref, {"data/a.txt": b"second"}, "print('two')")
    assert (one, two) == (1, 2)
    assert ref in ann.kernels()
    assert ann.status(ref, 1).status is SessionStatus.COMPLETE
    source = ann.version(ref, 1)
    latest = ann.version(ref)
    assert source is not None
    assert latest is not None
    assert "print('one'" in source.source
    assert "print('two'" in latest.source
    assert (source.current_version, latest.current_version) == (2, 2)
    listing = ann.outputs(ref, 1)
    assert [f.name for f in listing.files] == ["data/a.txt", "empty"]
    assert listing.log == ("one", "err")
    assert ann.outputs(ref, 2).log == ("two",)
    assert ann.read(ref, 1, "data/a.txt") == b"first"
    assert ann.read(ref, 2, "data/a.txt") == b"second"
    assert ann.read(ref, 2, "empty") is None
    artifacts = ann.download(listing.files, tmp_path / "out", {})
    assert [(a.name, a.size) for a in artifacts] == [("data/a.txt", 5), ("empty", 0)]


def test_a_failed_session_says_so(ann: Kaggle) -> None:
    ref = KernelRef("ann", "fails")
    version = ran(ann, ref, {"a": b"x"}, "sys.exit(3)")
    assert ann.status(ref, version).status is SessionStatus.ERROR


def test_a_long_listing_is_complete(ann: Kaggle, tmp_path: Path) -> None:
    ref = KernelRef("ann", "many-files")
    version = ran(ann, ref, {f"d/{n:03}": str(n).encode() for n in range(430)})
    files = ann.outputs(ref, version).files
    assert [f.name for f in files] == [f"d/{n:03}" for n in range(430)]
    assert ann.read(ref, version, "d/429") == b"429"
    artifacts = ann.download(files, tmp_path / "out", {})
    assert [Path(a.path).read_text() for a in artifacts] == [str(n) for n in range(430)]


def test_expired_addresses_are_signed_again(local: LocalServer, ann: Kaggle, tmp_path: Path) -> None:
    ref = KernelRef("ann", "expires")
    version = ran(ann, ref, {str(n): b"x" for n in range(10)})
    admin.set_knobs(local.url, {"url_ttl_s": 0})
    try:
        files = ann.outputs(ref, version).files
    finally:
        admin.set_knobs(local.url, {"url_ttl_s": 3600})
    artifacts = ann.download(
        files, tmp_path / "out", {}, resign=lambda: {f.name: f.url for f in ann.outputs(ref, version).files}
    )
    assert len(artifacts) == 10


def test_what_is_not_there_or_not_ones_own(local: LocalServer, ann: Kaggle, tmp_path: Path) -> None:
    ref = KernelRef("ann", "private-one")
    ran(ann, ref, {})
    with user(local, "bob", tmp_path) as bob:
        assert bob.version(ref) is None
        assert ref not in bob.kernels()
        for call in (bob.status, bob.outputs):
            with pytest.raises(NotAccessible):
                call(ref, 1)
        with pytest.raises(Refused, match="Notebook not found"):
            bob.push(request(ref, "print(1)\n"))
    assert ann.version(ref, 2) is None
    with pytest.raises(NotAccessible):
        ann.status(ref, 2)


def test_refusals(local: LocalServer, ann: Kaggle) -> None:
    good = request(KernelRef("ann", "refused"), "print(1)\n")
    ran(ann, KernelRef("ann", "the-first"), {})
    with pytest.raises(Refused, match="already in use"):
        ann.push(replace(request(KernelRef("ann", "the-second"), "print(1)\n"), title="The First"))
    with pytest.raises(Refused, match="less than 1 megabytes"):
        ann.push(replace(good, source="#" * 1_000_001))
    knobs = admin.set_knobs(local.url, {"cpu_sessions": 0, "gpu_quota_hours": 0})
    assert knobs["cpu_sessions"] == 0
    try:
        with pytest.raises(SessionCap) as cap:
            ann.push(good)
        assert cap.value.limit == 0
        with pytest.raises(QuotaExhausted):
            ann.push(replace(good, machine_shape="NvidiaTeslaT4"))
    finally:
        admin.set_knobs(local.url, {"cpu_sessions": 5, "gpu_quota_hours": 30})
    assert ann.version(good.ref) is None


def test_a_dropped_source(ann: Kaggle) -> None:
    good = request(KernelRef("ann", "sourceless"), "print(1)\n")
    with pytest.raises(SourcesDropped) as dropped:
        ann.push(replace(good, datasets=("ann/nowhere",)))
    assert (dropped.value.sources, dropped.value.version) == (("ann/nowhere",), 1)
    ended(ann, good.ref, 1)


def test_a_push_whose_answer_is_lost_is_sent_once_and_can_be_read_back(local: LocalServer, ann: Kaggle) -> None:
    ref = KernelRef("ann", "unclear")
    admin.add_faults(local.url, [{"rpc": "SaveKernel", "number": 1, "status": 500, "after_landing": True}])
    with pytest.raises(UnclearPush):
        ann.push(request(ref, writing({}, "# token-17")))
    found = ann.version(ref, 1)
    assert found is not None
    assert "# token-17" in found.source
    assert found.current_version == 1
    ended(ann, ref, 1)


def test_a_read_gets_over_a_failure(local: LocalServer, ann: Kaggle) -> None:
    admin.add_faults(local.url, [{"rpc": "GetAcceleratorQuotaStatistics", "number": 1, "status": 503}])
    quota = ann.quota()
    assert quota.total_s == 108_000.0
    assert quota.refresh_at is not None
