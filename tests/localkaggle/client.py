"""What the tests talk to the local Kaggle with: plain HTTP, as the official client's requests look on the wire."""

import json
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from requests.adapters import BaseAdapter

from kaggle_orchestrator.localkaggle import admin

KERNELS = "kernels.KernelsApiService"
DATASETS = "datasets.DatasetApiService"
FINAL = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
"""Holds a script up until the test lets it go."""
SLEEPS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', '{marker}'])"
"""A script whose child is found by its marker."""


class Client:
    """One account at one address."""

    def __init__(self, url: str, token: str = "kgo-local", adapter: BaseAdapter | None = None) -> None:
        self.url = url
        self.user = token.removeprefix("kgo-local-") if token != "kgo-local" else "me"
        self.http = requests.Session()
        self.http.trust_env = False  # no proxy, no .netrc
        if adapter is not None:
            self.http.mount("http://", adapter)
        self.http.headers["Authorization"] = f"Bearer {token}"

    def post(self, rpc: str, fields: object, service: str = KERNELS, prefix: str = "/v1") -> requests.Response:
        return self.http.post(f"{self.url}{prefix}/{service}/{rpc}", json=fields, timeout=30)

    def rpc(self, rpc: str, service: str = KERNELS, **fields: Any) -> dict[str, Any]:
        response = self.post(rpc, fields, service)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert isinstance(answer, dict)
        return answer

    def request(self, slug: str, source: str, **fields: Any) -> dict[str, Any]:
        """A push as the official client sends it."""
        push = {
            "slug": f"{self.user}/{slug}",
            "newTitle": slug.replace("-", " ").title(),
            "text": textwrap.dedent(source),
            "language": "python",
            "kernelType": "script",
            "isPrivate": True,
        }
        return push | fields

    def push(self, slug: str, source: str, **fields: Any) -> int:
        answer = self.rpc("SaveKernel", **self.request(slug, source, **fields))
        assert "error" not in answer, answer
        return int(answer["versionNumber"])

    def status(self, slug: str, version: int | None = None) -> dict[str, Any]:
        label = {} if version is None else {"versionLabel": f"v{version}"}
        return self.rpc("GetKernelSessionStatus", userName=self.user, kernelSlug=slug, **label)

    def let_go(self, slug: str) -> None:
        """Lets a script go on that ``WAITS``."""
        (session,) = (s for s in admin.sessions(self.url) if s.kernel == f"{self.user}/{slug}")
        (session.output / "go").touch()

    def wait(self, slug: str, version: int | None = None) -> dict[str, Any]:
        """Until the session is over."""
        until(lambda: self.status(slug, version)["status"] in FINAL)
        return self.status(slug, version)

    def output(self, slug: str, version: int | None = None, **fields: Any) -> dict[str, Any]:
        if version is not None:
            fields["versionLabel"] = f"v{version}"
        return self.rpc("ListKernelSessionOutput", userName=self.user, kernelSlug=slug, **fields)

    def files(self, slug: str, version: int | None = None) -> dict[str, bytes]:
        listed = self.output(slug, version, pageSize=200)["files"]
        return {f["fileName"]: self.get(f["url"]).content for f in listed}

    def get(self, url: str, **headers: str) -> requests.Response:
        """A download, without credentials."""
        return self.http.get(url, headers={"Authorization": None, **headers}, timeout=30)

    def log(self, slug: str, version: int | None = None, stream: str | None = None) -> str:
        records = json.loads(self.output(slug, version).get("log") or "[]")
        return "".join(r["data"] for r in records if stream in (None, r["stream_name"]))

    def ran(self, slug: str, source: str, **fields: Any) -> str:
        """Push, wait for a good end, and give the log."""
        version = self.push(slug, source, **fields)
        status = self.wait(slug, version)
        assert status == {"status": "COMPLETE"}, (status, self.log(slug, version))
        return self.log(slug, version)


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for something that another process brings about."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.03)


def processes(marker: str) -> list[int]:
    """Processes, also those in other PID namespaces, whose command line holds ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
