"""Where namespaces aren't allowed, sessions run through variables: same rules, and honest about what is missing."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import Client, processes, until
from tests.localkaggle.test_sessions import DAEMON


@pytest.fixture
def client(unboxed: LocalServer) -> Client:
    return Client(unboxed.url, f"kgo-local-user-{uuid4().hex[:8]}")


def test_a_session_through_variables(client: Client, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "row").write_text("data")
    name = f"{client.user}/some-rows"
    admin.put_dataset(client.url, name, tmp_path / "data")
    log = client.ran(
        "by-variables",
        """
        import json, os
        root = os.environ["KGO_KAGGLE_ROOT"]
        open("x", "w").write("1")
        print(json.dumps({"cwd": os.getcwd(), "root": root, "home": os.environ["HOME"],
                          "row": open(root + "/input/datasets/NAME/row").read(),
                          "token": os.environ.get("KAGGLE_API_TOKEN")}))
        """.replace("NAME", name),
        datasetDataSources=[name],
    )
    inside = json.loads(log)
    assert inside["cwd"] == inside["root"] + "/working"
    assert (inside["row"], inside["token"]) == ("data", None)
    assert inside["home"] != str(Path.home())
    assert client.files("by-variables") == {"x": b"1"}
    assert (client.push("by-variables", "pass")) == 2


def test_nothing_outlives_limit_or_end(client: Client) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    source = DAEMON.format(marker=marker)
    client.push("limited-there", source + "time.sleep(600)", sessionTimeoutSeconds=2)
    until(lambda: processes(marker))
    client.ran("ended-there", source.replace(marker, f"{marker}-2") + "time.sleep(0.2)")
    assert client.wait("limited-there")["status"] == "CANCEL_ACKNOWLEDGED"
    assert processes(marker) == []


def test_a_script_that_names_kaggle_outright_is_refused_with_the_line(client: Client) -> None:
    source = '"""Reads /kaggle/input/x."""\nimport os\nopen("/kaggle/input/x/train.csv")\n'
    error = client.rpc("SaveKernel", **client.request("names-kaggle", source))["error"]
    assert "line 3 names '/kaggle/input/x/train.csv'" in error
    assert "KGO_KAGGLE_ROOT" in error
    assert client.push("names-kaggle", '"""Reads /kaggle/input/x."""\n') == 1
