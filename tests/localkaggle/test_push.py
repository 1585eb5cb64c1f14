"""What SaveKernel accepts and refuses, in Kaggle's words; who may read what; how listings page."""

import io
import zipfile
from collections.abc import Callable
from functools import partial

import pytest
import requests

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import Client, until

SLEEP = "import time; time.sleep(600)"


def test_a_push_makes_a_version_at_either_address(client: Client) -> None:
    names = {"userName": client.user, "kernelSlug": "both-forms"}
    for number, prefix in enumerate(("/v1", "/api/v1"), 1):
        answer = client.post("SaveKernel", client.request("both-forms", "pass"), prefix=prefix).json()
        assert answer["versionNumber"] == number
        assert answer["ref"] == f"{client.user}/both-forms"
        assert answer["url"] == f"{client.url}/code/{client.user}/both-forms"
        assert client.post("GetKernelSessionStatus", names, prefix=prefix).status_code == 200
        client.wait("both-forms")


def test_the_slug_is_made_from_the_title(client: Client) -> None:
    answer = client.rpc("SaveKernel", **client.request("asked-slug", "pass", newTitle="Another  Título, 2"))
    assert answer["ref"] == f"{client.user}/another-titulo-2"
    response = client.post("SaveKernel", client.request("asked-slug", "pass", newTitle="Another Titulo 2"))
    assert response.status_code == 409
    taken = "The requested title is already in use by a notebook. Please choose another title."
    assert response.json() == {"code": 409, "message": taken}


@pytest.mark.parametrize(("title", "status"), [("abcd", 400), ("x" * 51, 500), ("—————", 400), ("", 400)])
def test_titles_that_do_not_do(client: Client, title: str, status: int) -> None:
    response = client.post("SaveKernel", client.request("abc", "pass", newTitle=title))
    assert response.status_code == status
    assert client.rpc("ListKernels", group="PROFILE") == {"kernels": []}


def test_refusals_come_as_a_success_with_an_error(client: Client) -> None:
    push = client.request("not-mine", "pass")
    for change in ({"slug": "someone/not-mine"}, {"slug": "", "id": 1 << 40}):
        assert client.rpc("SaveKernel", **(push | change)) == {"error": "Notebook not found"}


def test_a_source_near_a_megabyte(client: Client) -> None:
    response = client.post("SaveKernel", client.request("too-large", "#" * 1_000_000))
    assert response.status_code == 400
    assert response.json()["message"] == "The kernel source must be less than 1 megabytes in size."
    assert client.push("large-enough", "#" * 999_000) == 1


def test_limits_must_be_below_the_maximum(client: Client) -> None:
    for seconds in (43_200, 0, -1):
        push = client.request("time-limit", "pass", sessionTimeoutSeconds=seconds)
        assert client.post("SaveKernel", push).status_code == 400
    assert client.push("time-limit", "pass", sessionTimeoutSeconds=43_199) == 1


def test_an_image_that_kaggle_does_not_provide(client: Client) -> None:
    known = "gcr.io/kaggle-images/python@sha256:f4b6dd72"
    push = client.request("own-image", "pass", dockerImage="docker.io/me/mine:latest")
    response = client.post("SaveKernel", push)
    assert response.status_code == 400
    assert "docker" in response.json()["message"]
    client.push("own-image", "pass", dockerImage=known)
    answer = client.rpc("GetKernel", userName=client.user, kernelSlug="own-image")
    assert answer["metadata"]["dockerImage"] == known


def test_a_quick_save_runs_nothing(client: Client) -> None:
    assert client.push("quick-save", SLEEP, kernelExecutionType="QUICK_SAVE") == 1
    assert client.status("quick-save") == {"status": "NEW_SCRIPT"}
    assert client.output("quick-save") == {"files": []}


def test_what_is_not_run_here_says_so(client: Client) -> None:
    for change in ({"language": "r"}, {"enableTpu": True}):
        response = client.post("SaveKernel", client.request("not-here", "pass", **change))
        assert response.status_code == 501, response.text


def test_session_caps_and_the_weekly_quota(client: Client, turn: Callable[..., None]) -> None:
    for kind, most, fields in (("gpu", 2, {"machineShape": "NvidiaTeslaT4"}), ("cpu", 5, {})):
        for number in range(most):
            client.push(f"{kind}-session-{number}", SLEEP, sessionTimeoutSeconds=3600, **fields)
        answer = client.rpc("SaveKernel", **client.request(f"{kind}-session-x", SLEEP, **fields))
        assert answer == {"error": f"Maximum batch {kind.upper()} session count of {most} reached."}
    refused = client.post("GetKernel", {"userName": client.user, "kernelSlug": "gpu-session-x"})
    assert refused.status_code == 403, "a refused push leaves nothing behind"

    quota = client.rpc("GetAcceleratorQuotaStatistics")
    assert quota["gpuQuota"]["totalTimeAllowed"] == "108000s"
    reserved = float(quota["gpuQuota"]["timeReserved"].removesuffix("s"))
    assert 7000 < reserved <= 7200
    assert quota["quotaRefreshTime"].endswith("T00:00:00.000Z")

    turn(gpu_sessions=9, gpu_quota_hours=2)
    gpu = client.request("one-more", SLEEP, machineShape="NvidiaTeslaT4")
    assert client.rpc("SaveKernel", **gpu)["error"].startswith(
        "Session cannot start because currently running sessions are projected to exceed maximum weekly GPU quota of 2."
    )
    client.rpc("DeleteKernel", userName=client.user, kernelSlug="gpu-session-0")
    turn(gpu_quota_hours=0.0000001)
    assert client.rpc("SaveKernel", **gpu) == {"error": "Maximum weekly GPU quota of 0.00 hours reached."}


def _answers(url: str, status: int) -> bool:
    return requests.get(url, timeout=30).status_code == status


def test_signed_urls_expire(client: Client, turn: Callable[..., None]) -> None:
    client.ran("old-file", "open('x', 'w').close()")
    for seconds, status in ((3600, 200), (0, 403)):
        turn(url_ttl_s=seconds)
        url = client.output("old-file")["files"][0]["url"]
        until(partial(_answers, url, status))


def test_machines(client: Client) -> None:
    show = "import os; e = os.environ; print(e.get('KGO_SIMULATED_ACCELERATOR'), e.get('CUDA_VISIBLE_DEVICES') == '')"
    asked = {"NvidiaTeslaP100": "NvidiaTeslaT4 False\n", "NvidiaTeslaT4": "NvidiaTeslaT4 False\n"}
    asked["nvidiat4"] = "None True\n"
    for number, (shape, got) in enumerate(asked.items()):
        assert client.ran(f"machine-{number}", show, machineShape=shape) == got
    assert client.ran("machine-default", show, enableGpu=True) == "NvidiaTeslaT4 False\n"


def test_who_may_read_what(client: Client, server: LocalServer) -> None:
    other = Client(server.url, "kgo-local-reader")
    client.push("for-me-only", "pass")
    client.push("for-everyone", "pass", isPrivate=False)
    for rpc in ("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "ListKernelFiles"):
        private = {"userName": client.user, "kernelSlug": "for-me-only"}
        assert other.post(rpc, private).status_code == 403
        assert other.post(rpc, private | {"kernelSlug": "no-such-slug"}).status_code == 403
        assert other.post(rpc, private | {"kernelSlug": "for-everyone"}).status_code == 200
    assert other.post("DeleteKernel", {"userName": client.user, "kernelSlug": "for-everyone"}).status_code == 403
    assert [k["ref"] for k in client.rpc("ListKernels", group="PROFILE")["kernels"]] == [
        f"{client.user}/for-everyone",
        f"{client.user}/for-me-only",
    ]
    assert [k["slug"] for k in other.rpc("ListKernels", user=client.user)["kernels"]] == ["for-everyone"]
    stranger = requests.post(f"{client.url}/v1/kernels.KernelsApiService/ListKernels", json={}, timeout=30)
    assert stranger.status_code == 401


def test_outputs_page(client: Client) -> None:
    client.ran("many-files", "for n in range(205): open(f'{n:03}', 'w').close()")
    names: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        page = client.output("many-files", pageSize=1000, pageToken=token)
        names += [f["fileName"] for f in page["files"]]
        assert ("log" in page) == (pages == 0)
        token, pages = page.get("nextPageToken", ""), pages + 1
    assert pages == 2
    assert names == [f"{n:03}" for n in range(205)]
    assert len(client.output("many-files")["files"]) == 20


def test_one_output_by_redirect(client: Client) -> None:
    client.ran("one-output", "open('a b', 'w').write('text')")
    names = {"ownerSlug": client.user, "kernelSlug": "one-output", "versionNumber": 1}
    response = client.post("DownloadKernelOutput", names | {"filePath": "a b"})
    assert response.text == "text"
    assert [(r.status_code, "/_kgo/output/" in r.headers["location"]) for r in response.history] == [(302, True)]
    assert client.post("DownloadKernelOutput", names | {"filePath": "../log.jsonl"}).status_code == 404


def test_all_outputs_as_one_archive(client: Client, server: LocalServer) -> None:
    client.ran("all-outputs", "import os; os.mkdir('d'); open('d/a', 'w').write('text')")
    (session,) = (s for s in admin.sessions(server.url) if s.kernel == f"{client.user}/all-outputs")
    response = client.post("DownloadKernelOutputZip", {"kernelSessionId": session.id})
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"d/a": b"text"}
    stranger = Client(server.url, "kgo-local-reader")
    assert stranger.post("DownloadKernelOutputZip", {"kernelSessionId": session.id}).status_code == 403


def test_ranges_and_signatures(client: Client) -> None:
    client.ran("signed-file", "open('digits', 'w').write('0123456789')")
    url = client.output("signed-file")["files"][0]["url"]
    part = requests.get(url, headers={"Range": "bytes=3-5"}, timeout=30)
    assert (part.status_code, part.text) == (206, "345")
    assert requests.get(url, headers={"Range": "bytes=99-"}, timeout=30).status_code == 416
    assert requests.get(url[:-1] + ("0" if url[-1] != "0" else "1"), timeout=30).status_code == 403
    assert requests.get(url.replace("expires=1", "expires=2"), timeout=30).status_code == 403
    assert requests.get(url.replace("/digits?", "/..%2f..%2flog.jsonl?"), timeout=30).status_code == 403


def test_other_routes_say_that_they_are_not_served(client: Client) -> None:
    assert "models.ModelApiService/GetModel" in client.post("GetModel", {}, "models.ModelApiService").text
    response = client.http.get(f"{client.url}/api/v1/competitions/list", timeout=30)
    assert response.status_code == 501
    assert "GET /api/v1/competitions/list" in response.json()["message"]
