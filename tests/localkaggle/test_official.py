"""The official command and the official SDK work against it unchanged but for the address."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import DATASETS, Client
from tests.localkaggle.official import kaggle


def folder(tmp_path: Path, source: str, **metadata: object) -> Path:
    path = tmp_path / "kernel"
    path.mkdir(exist_ok=True)
    (path / "code.py").write_text(source)
    document = {
        "id": "me/official-way",
        "title": "Official Way",
        "code_file": "code.py",
        "language": "python",
        "kernel_type": "script",
        "is_private": True,
        "enable_internet": False,
    }
    (path / "kernel-metadata.json").write_text(json.dumps(document | metadata))
    return path


@pytest.fixture(params=["a token", "a legacy key, and the other form of the routes"])
def account(request: pytest.FixtureRequest, server: LocalServer) -> tuple[Client, dict[str, str]]:
    """A new user, and the variables that make the official command be theirs."""
    user = f"user-{uuid4().hex[:8]}"
    variables = {"KAGGLE_API_TOKEN": f"kgo-local-{user}"}
    if request.param != "a token":
        variables = {"KAGGLE_API_TOKEN": "", "KAGGLE_USERNAME": user, "KAGGLE_KEY": "kgo-local"}
        variables["KAGGLE_API_ENVIRONMENT"] = "LOCALHOST"
    return Client(server.url, f"kgo-local-{user}"), variables


def commands(client: Client, home: Path, variables: dict[str, str], *lines: str) -> str:
    """What several commands print, one process for all."""
    done = kaggle(client.url, home, *" ; ".join(lines).split(), **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels(account: tuple[Client, dict[str, str]], tmp_path: Path) -> None:
    client, variables = account
    ref, home = f"{client.user}/official-way", tmp_path / "home"
    source = "print('hello')\nopen('a.txt', 'w').write('text')\n"
    kernel = folder(tmp_path, source, id=ref)
    (tmp_path / "new").mkdir()
    told = commands(client, home, variables, f"kernels init -p {tmp_path}/new", f"kernels push -p {kernel} -t 600")
    assert json.loads((tmp_path / "new" / "kernel-metadata.json").read_text())["id"].startswith(f"{client.user}/")
    assert "Kernel version 1 successfully pushed." in told
    client.wait("official-way")
    told = commands(
        client,
        home,
        variables,
        f"kernels status {ref}",
        f"kernels status {ref}/1",
        f"kernels output {ref} -p {tmp_path}/out",
        f"kernels logs {ref}",
        f"kernels logs {ref} --follow",
        f"kernels pull {ref} -m -p {tmp_path}/pulled",
        "kernels list -m",
        f"kernels files {ref}",
        "quota",
        f"kernels delete {ref} -y",
    )
    assert told.count('has status "KernelWorkerStatus.COMPLETE"') == 2
    assert (tmp_path / "out" / "a.txt").read_text() == "text"
    assert [r["data"] for r in json.loads((tmp_path / "out" / "official-way.log").read_text())] == ["hello\n"]
    assert told.count("hello") >= 2, "logs, and logs --follow"
    assert (tmp_path / "pulled" / "official-way.py").read_text() == source
    assert json.loads((tmp_path / "pulled" / "kernel-metadata.json").read_text())["id"] == ref
    for words in (ref, "a.txt", "30.00h"):
        assert words in told
    assert client.post("GetKernel", {"userName": client.user, "kernelSlug": "official-way"}).status_code == 403


def test_a_live_log_over_a_dropped_connection(
    account: tuple[Client, dict[str, str]], tmp_path: Path, turn: Callable[..., None]
) -> None:
    client, variables = account
    turn(log_drop_s=1.5)
    source = "import time\nfor n in range(12):\n    print('line', n, flush=True)\n    time.sleep(0.4)\n"
    client.push("talks-slowly", source)
    told = commands(client, tmp_path / "home", variables, f"kernels logs {client.user}/talks-slowly --follow")
    assert [line for line in told.splitlines() if line.startswith("line")] == [f"line {n}" for n in range(12)]


def test_datasets(account: tuple[Client, dict[str, str]], tmp_path: Path) -> None:
    client, variables = account
    ref, home, data = f"{client.user}/official-data", tmp_path / "home", tmp_path / "data"
    data.mkdir()
    metadata = {"title": "Official Data", "id": ref, "licenses": [{"name": "CC0-1.0"}]}
    (data / "dataset-metadata.json").write_text(json.dumps(metadata))
    (data / "a.csv").write_text("x,y\n1,2\n")
    (data / "empty").write_text("")
    (data / "sub").mkdir()
    (data / "sub" / "b.txt").write_text("below")
    told = commands(
        client,
        home,
        variables,
        f"datasets create -p {data} -r zip",
        f"datasets status {ref}",
        f"datasets files {ref}",
        "datasets list -m",
    )
    assert "Your private Dataset is being created" in told
    assert re.search(r"\bready", told)
    for words in ("a.csv", "empty", "sub/b.txt", ref):
        assert words in told, words
    (data / "a.csv").write_text("x,y\n1,2\n3,4\n")
    told = commands(
        client,
        home,
        variables,
        f"datasets version -p {data} -m more",
        f"datasets files {ref}",
        f"datasets download {ref} -f a.csv -p {tmp_path}/got",
        f"datasets download {ref} -p {tmp_path}/got --unzip",
        f"datasets delete {ref} -y",
    )
    assert "Dataset version is being created" in told
    assert "sub/b.txt" not in told, "a folder isn't uploaded unless it's zipped"
    assert (tmp_path / "got" / "a.csv").read_text() == "x,y\n1,2\n3,4\n"
    fields = {"ownerSlug": client.user, "datasetSlug": "official-data"}
    assert client.post("GetDatasetStatus", fields, DATASETS).status_code == 404


def test_it_prints_refusals_and_dropped_sources(server: LocalServer, tmp_path: Path) -> None:
    kernel = folder(tmp_path, "pass", dataset_sources=["me/not-there"], id="me/official-no", title="Official No")
    pushed = kaggle(server.url, tmp_path / "own", "kernels", "push", "-p", str(kernel))
    assert "not valid dataset sources and could not be added to the kernel: ['me/not-there']" in pushed.stdout
    folder(tmp_path, "pass", id="someone/official-no", title="Official No")
    refused = kaggle(server.url, tmp_path / "own", "kernels", "push", "-p", str(kernel))
    assert "Kernel push error: Notebook not found" in refused.stdout
    stranger = kaggle(server.url, tmp_path / "own", "kernels", "list", "-m", KAGGLE_API_TOKEN="KGAT_not_known")
    assert stranger.returncode != 0


@pytest.mark.parametrize("token", ["kgo-local-sdk-user"])
def test_the_sdk(server: LocalServer, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    from kagglesdk import KaggleClient, kaggle_env
    from kagglesdk.kernels.types import kernels_api_service as api

    monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    request = api.ApiSaveKernelRequest()
    request.slug, request.new_title, request.text = "sdk-user/by-the-sdk", "By the SDK", "print('by the sdk')"
    request.language, request.kernel_type, request.is_private = "python", "script", True
    request.session_timeout_seconds = 600
    with KaggleClient(env=kaggle_env.KaggleEnv.PROD, api_token=token) as kaggle_client:
        kernels = kaggle_client.kernels.kernels_api_client
        answer = kernels.save_kernel(request)
        assert (answer.version_number, answer.error, list(answer.invalid_kernel_sources)) == (1, "", [])
        Client(server.url, token).wait("by-the-sdk")
        ask = api.ApiGetKernelSessionStatusRequest()
        ask.user_name, ask.kernel_slug, ask.version_label = "sdk-user", "by-the-sdk", "v1"
        assert kernels.get_kernel_session_status(ask).status.name == "COMPLETE"
        quota = kernels.get_accelerator_quota_statistics()
        assert quota.gpu_quota.total_time_allowed.total_seconds() == 108_000
        assert quota.quota_refresh_time is not None
