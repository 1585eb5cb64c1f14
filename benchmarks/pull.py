"""Pulling: 200 small files beside the official command and curl, and one of 1 GiB from nginx beside curl and sha256sum.

All against the same server in the same run, interleaved; medians, and their ratio.
"""

import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kaggle_orchestrator.client import connect
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.models import KernelRef

FILES, SIZE, LATENCY_MS = 200, 256 << 10, 30
LEAST_TIMES_FASTER = 6.0
LARGE = 1 << 30
MOST_TIMES_SLOWER = 1.5
ROUNDS = 5
SLUG = "pull-bench"
SCRIPT = f"""
import random
from pathlib import Path
Path("data").mkdir()
for n in range({FILES}):
    Path(f"data/{{n:03}}.bin").write_bytes(random.Random(n).randbytes({SIZE}))
"""
CONFIG = f"""
[kernel]
slug = "{SLUG}"
[train]
entry = "train.py"
include = ["train.py"]
[pull]
patterns = ["data/**"]
"""
OFFICIAL = """
import os, sys
import kagglesdk.kaggle_env as env
for name in (env.KaggleEnv.PROD, env.KaggleEnv.LOCAL):
    env._env_to_endpoint[name] = os.environ["KGO_BENCH_URL"]
from kaggle.cli import main
sys.exit(main())
"""
DOWNLOAD = """
import sys
from pathlib import Path
from kaggle_orchestrator.client import connect
from kaggle_orchestrator.models import OutputFile
from kaggle_orchestrator.protocol import FileDigest
url, folder, sha256, size = sys.argv[1:]
with connect(url) as kaggle:
    kaggle.download([OutputFile("large", f"{url}/large")], Path(folder), {"large": FileDigest(sha256, int(size))})
"""


def seconds(command: list[str], **options: object) -> float:
    """Wall time of a whole process that ends well."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    return time.perf_counter() - start


def medians(*runs: Callable[[], float]) -> list[float]:
    """Of each, run in turn."""
    for run in runs:
        run()  # bytecode and caches
    rounds = [[run() for run in runs] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def small_files(root: Path) -> bool:
    """Many small files, each answer 30 ms late; whether kgo is as much faster as it promises."""
    home, exp = root / "home", root / "exp"
    exp.mkdir(parents=True)
    (exp / "train.py").write_text(SCRIPT)
    (exp / "kgo.toml").write_text(CONFIG)
    kgo = str(Path(sys.executable).with_name("kgo"))
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))}
    environ |= {"KGO_HOME": str(home), "KGO_LOCAL": "1", "HOME": str(root), "NO_PROXY": "127.0.0.1"}
    url = background.ensure(home, idle_s=900).url
    try:
        seconds([kgo, "run", str(exp), "--json"], env=environ)
        admin.set_knobs(url, {"latency_ms": LATENCY_MS})
        with connect(url, environ={}) as kaggle:
            ref = KernelRef("me", SLUG)
            listed = [file for file in kaggle.outputs(ref, 1).files if file.name.startswith("data/")]
        assert len(listed) == FILES
        urls = root / "urls"
        urls.write_text("".join(f'url = "{f.url}"\noutput = "{root}/curl/{f.name}"\n' for f in listed))
        official = environ | {"KGO_BENCH_URL": url, "KAGGLE_API_TOKEN": "kgo-local"}

        def into(name: str, command: list[str], variables: dict[str, str]) -> Callable[[], float]:
            def run() -> float:
                shutil.rmtree(root / name, ignore_errors=True)
                spent = seconds(command, env=variables, cwd=root)
                got = sorted(p.name for p in (root / name).rglob("*.bin"))
                assert len(got) == FILES, f"{name}: {len(got)} files"
                return spent

            return run

        ours, theirs, floor = medians(
            into("kgo", [kgo, "pull", str(ref), "-o", str(root / "kgo")], environ),
            into(
                "official",
                [sys.executable, "-c", OFFICIAL, "kernels", "output", str(ref), "-p", str(root / "official"), "-q"],
                official,
            ),
            into(
                "curl",
                ["curl", "-s", "--parallel", "--parallel-max", "32", "--create-dirs", "--config", str(urls)],
                environ,
            ),
        )
    finally:
        background.stop(home)
    times = theirs / ours
    print(
        f"pull: {FILES} files of {SIZE >> 10} KiB at {LATENCY_MS} ms: kgo pull {ours:.2f} s, kaggle kernels output "
        f"{theirs:.2f} s, {times:.1f} times (at least {LEAST_TIMES_FASTER:g}); curl --parallel {floor:.2f} s"
    )
    return times >= LEAST_TIMES_FASTER


@contextmanager
def nginx(root: Path) -> Iterator[str]:
    """nginx over a folder; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = root / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""  # else its worker may not enter a private folder
    config.write_text(
        f"{user}daemon off; pid {root}/nginx.pid; error_log {root}/error.log; worker_processes 1;\n"
        f"events {{}}\nhttp {{ access_log off; sendfile on; client_body_temp_path {root}/t1; proxy_temp_path {root}/t2;"
        f" fastcgi_temp_path {root}/t3; uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}/served; }} }}\n"
    )
    process = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def large_file(root: Path) -> bool:
    """One large file, verified; whether kgo is hardly slower than the two tools that do nothing else."""
    served = root / "served"
    served.mkdir(parents=True)
    block, sha256 = os.urandom(1 << 20), hashlib.sha256()
    with (served / "large").open("wb") as file:
        for _ in range(LARGE >> 20):
            file.write(block)
            sha256.update(block)
    with nginx(root) as url:
        target = root / "got"

        def kgo() -> float:
            shutil.rmtree(target, ignore_errors=True)
            arguments = [url, str(target), sha256.hexdigest(), str(LARGE)]
            return seconds([sys.executable, "-c", DOWNLOAD, *arguments])

        def tools() -> float:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            command = f"curl -s -o {target}/large {url}/large && sha256sum {target}/large"
            return seconds(["sh", "-c", command])

        ours, theirs = medians(kgo, tools)
    print(
        f"pull: 1 GiB from nginx, verified: kgo {ours:.2f} s, curl and sha256sum {theirs:.2f} s, "
        f"{ours / theirs:.2f} times (at most {MOST_TIMES_SLOWER:g})"
    )
    return ours / theirs <= MOST_TIMES_SLOWER


def main() -> bool:
    """Print a line each; whether both hold."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        held = small_files(root / "small")
        if shutil.which("nginx") is None:
            print("pull: 1 GiB from nginx: not measured, since there is no nginx (Debian: apt install nginx-light)")
            return held
        return large_file(root / "large") and held
