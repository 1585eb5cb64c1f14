"""The official command and the official SDK work against it unchanged but for the address."""

import json
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import Client
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


def test_push_status_output_and_the_rest(server: LocalServer, tmp_path: Path) -> None:
    url, home = server.url, tmp_path / "own"
    kernel = folder(tmp_path, "print('hello')\nopen('a.txt', 'w').write('text')\n")
    pushed = kaggle(url, home, "kernels", "push", "-p", str(kernel), "--timeout", "600")
    assert pushed.returncode == 0, pushed.stderr
    assert "Kernel version 1 successfully pushed." in pushed.stdout
    Client(url).wait("official-way")
    status = kaggle(url, home, "kernels", "status", "me/official-way")
    assert 'has status "KernelWorkerStatus.COMPLETE"' in status.stdout, status
    local = kaggle(url, home, "kernels", "status", "me/official-way/1", KAGGLE_API_ENVIRONMENT="LOCALHOST")
    assert "COMPLETE" in local.stdout, local
    got = kaggle(url, home, "kernels", "output", "me/official-way", "-p", str(tmp_path / "out"))
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "out" / "a.txt").read_text() == "text"
    log = json.loads((tmp_path / "out" / "official-way.log").read_text())
    assert [r["data"] for r in log] == ["hello\n"]
    commands = (
        "kernels files me/official-way ; kernels list -m ; quota ; "
        f"kernels pull me/official-way -m -p {tmp_path}/pulled ; "
        "kernels logs me/official-way -f ; kernels delete me/official-way -y"
    )
    rest = kaggle(url, home, *commands.split())
    assert rest.returncode == 0, rest.stderr
    for told in ("a.txt", "me/official-way", "30.00h", "hello"):
        assert told in rest.stdout
    assert "print('hello')" in (tmp_path / "pulled" / "official-way.py").read_text()
    assert Client(url).post("GetKernel", {"userName": "me", "kernelSlug": "official-way"}).status_code == 403


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
