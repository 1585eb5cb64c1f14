"""Notebooks are pushed, checked and executed as Kaggle does it."""

import json
import venv
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import Client
from tests.localkaggle.official import kaggle

SPEC = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def cell(source: object) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}


def notebook(*sources: object, metadata: object = SPEC) -> str:
    cells = [cell(source) for source in sources]
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4})


def test_it_runs_with_magics_and_a_failing_shell_line_is_no_error(client: Client) -> None:
    text = notebook(
        "x = 20\nprint('from a cell')",
        "%cd -q /tmp\n!python -c \"import sys; print('from a shell'); sys.exit(3)\"",
        "import os; os.chdir('/kaggle/working')\nopen('result.txt', 'w').write(str(x + 1))",
    )
    version = client.push("first-notebook", text, kernelType="notebook")
    assert client.wait("first-notebook", version) == {"status": "COMPLETE"}
    log = client.log("first-notebook")
    assert "from a cell\n" in log
    assert "from a shell" in log
    assert client.files("first-notebook") == {"result.txt": b"21"}
    blob = client.rpc("GetKernel", userName=client.user, kernelSlug="first-notebook")["blob"]
    assert (blob["kernelType"], blob["source"]) == ("notebook", text)


def test_its_executed_self_is_mounted_but_not_listed(client: Client) -> None:
    client.push("the-notebook", notebook("print('kept')"), kernelType="notebook")
    client.wait("the-notebook")
    seen = client.ran(
        "reads-it",
        "from pathlib import Path\nfolder = Path('/kaggle/input/the-notebook')\n"
        "print(sorted(p.name for p in folder.iterdir()))\nprint((folder / '__notebook__.ipynb').read_text())",
        kernelDataSources=[f"{client.user}/the-notebook"],
    )
    assert "['__notebook__.ipynb', '__output__.json', '__results__.html', 'custom.css']" in seen
    assert "kept" in seen


def test_a_cell_that_raises_ends_it(client: Client) -> None:
    text = notebook("print('before')", "1 / 0", "print('never')")
    client.push("bad-notebook", text, kernelType="notebook")
    assert client.wait("bad-notebook") == {"status": "ERROR"}
    log = client.log("bad-notebook")
    assert "ZeroDivisionError" in log
    assert "never\n" not in log.split("ZeroDivisionError")[-1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "no cells"),
        (notebook("pass", metadata={}), "no kernelspec"),
        (notebook(["a\n", "b"]), "cell 1 must be one string"),
        (json.dumps({"cells": [3], "metadata": SPEC}), "cell 1 must be one string"),
    ],
)
def test_what_kaggle_wants_of_one(client: Client, text: str, complaint: str) -> None:
    answer = client.post("SaveKernel", client.request("no-notebook", text, kernelType="notebook"))
    assert answer.status_code == 400
    assert complaint in answer.json()["message"]
    assert client.rpc("ListKernels", group="PROFILE") == {"kernels": []}


def test_an_interpreter_without_the_tools_says_what_to_install(
    server: LocalServer, client: Client, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    admin.configure_kernel(server.url, f"{client.user}/poor-notebook", tmp_path / "bare" / "bin" / "python")
    client.push("poor-notebook", notebook("pass"), kernelType="notebook")
    assert client.wait("poor-notebook") == {"status": "ERROR"}
    assert "install nbclient and ipykernel" in client.log("poor-notebook")


def test_the_official_command_pushes_and_pulls_one(server: LocalServer, tmp_path: Path) -> None:
    folder = tmp_path / "kernel"
    folder.mkdir()
    document: dict[str, Any] = json.loads(notebook(["print('joined ", "by the client')"]))
    (folder / "code.ipynb").write_text(json.dumps(document))
    metadata = {"id": "me/official-book", "title": "Official Book", "code_file": "code.ipynb"}
    metadata |= {"language": "python", "kernel_type": "notebook", "is_private": "true"}
    (folder / "kernel-metadata.json").write_text(json.dumps(metadata))
    pushed = kaggle(server.url, tmp_path / "home", "kernels", "push", "-p", str(folder))
    assert "Kernel version 1 successfully pushed." in pushed.stdout, pushed
    Client(server.url).wait("official-book")
    assert "joined by the client" in Client(server.url).log("official-book")
    pulled = kaggle(server.url, tmp_path / "home", "kernels", "pull", "me/official-book", "-p", str(tmp_path / "got"))
    assert pulled.returncode == 0, pulled
    assert json.loads((tmp_path / "got" / "official-book.ipynb").read_text())["cells"]
