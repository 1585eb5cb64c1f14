"""Templates of one's own, and what is said of a broken one."""

import ast
import json
from pathlib import Path

import nbformat
import pytest

from kaggle_orchestrator.errors import ConfigError, RenderError
from kaggle_orchestrator.experiment import code_sha256, collect
from kaggle_orchestrator.experiment.shipped import shipped
from kaggle_orchestrator.experiment.template import known_templates
from kaggle_orchestrator.models import KernelType
from kaggle_orchestrator.protocol import parse_header
from kaggle_orchestrator.render import bundle_of, write_folder
from tests.experiment.trees import MINIMAL, experiment
from tests.render.attempts import rendered

OWN = MINIMAL.replace("[train]", 'template = "./mine"\n[train]')
SCRIPT = (shipped("kernel_templates") / "script" / "kernel.py.jinja").read_text(encoding="utf-8")
UNPACK = '{% include "unpack.py.jinja" %}'
EMPTY = 'BUNDLE_SHA256 = "{{ bundle_sha256 }}"\nBUNDLE = """\n\n"""\n'


def test_a_template_of_one_s_own(tmp_path: Path) -> None:
    e = experiment(tmp_path, OWN, {"mine/kernel.py.jinja": SCRIPT + "# größer: {{ kernel }}\n"})
    source = rendered(e).source
    assert source.endswith("# größer: me/digits-cnn\n")
    assert parse_header(source)
    assert "src/train.py" in bundle_of(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCRIPT + "{{ nothing }}", "'nothing' is undefined"),
        (SCRIPT + "{% if %}", r"kernel\.py\.jinja, line \d+: "),
        (SCRIPT + "def broken(:\n", "doesn't make valid Python: invalid syntax"),
        (SCRIPT.replace("{{ header_line }}", ""), "leaves out the header"),
        (SCRIPT.replace(UNPACK, EMPTY), "bundle in the source is damaged"),
        ("{{ header_line }}\n", "holds no bundle"),
        (b"\xff\xfe", "can't be read"),
    ],
)
def test_a_broken_template_is_told(tmp_path: Path, text: str | bytes, message: str) -> None:
    e = experiment(tmp_path, OWN, {"mine/kernel.py.jinja": text})
    with pytest.raises(RenderError, match=message):
        rendered(e)


def test_the_user_s_words_are_values_and_never_template_text(tmp_path: Path) -> None:
    """Every word that the configuration can hold, with template syntax in it."""
    hostile = "{{ 7 * 7 }}{% raw %}"
    toml = MINIMAL + f"args = ['{hostile}']\nparams = {{ x = '{hostile}' }}\n[checkpoint]\npaths = ['{hostile}']\n"
    name = "{{ 7 * 7 }}.py"
    e = experiment(tmp_path, toml.replace('"train.py"', f"'{name}'"), {name: ""})
    source = rendered(e).source
    plan = bundle_of(source)["plan.json"].data.decode()
    assert plan.count(hostile) == 3
    assert f"starts with '{name}'" in source
    assert "49" not in source.partition("BUNDLE_SHA256")[0].partition("\n")[2]


def test_an_entry_can_not_break_out_of_its_comment(tmp_path: Path) -> None:
    name = "größe 'x' #.py"
    e = experiment(tmp_path, MINIMAL.replace("train.py", name), {name: ""})
    assert "gr\\xf6\\xdfe" in rendered(e).source


@pytest.mark.parametrize("name", known_templates())
def test_each_template_that_ships(tmp_path: Path, name: str) -> None:
    toml = MINIMAL.replace("[train]", f'template = "{name}"\n[train]')
    e = experiment(tmp_path, toml)
    request = rendered(e)
    assert parse_header(request.source)
    assert bundle_of(request.source)["src/train.py"].data == (tmp_path / "train.py").read_bytes()
    assert rendered(e).source == request.source


def test_a_template_s_own_training_travels_as_it_is(tmp_path: Path) -> None:
    toml = MINIMAL.replace("[train]", 'template = "pytorch"\n[train]').replace('entry = "train.py"', "")
    e = experiment(tmp_path, toml, {"notes.md": "mine"}, entry=False)
    own = (shipped("kernel_templates") / "pytorch" / "train.py").read_bytes()
    files = bundle_of(rendered(e).source)
    assert files["src/train.py"].data == own
    assert files["src/notes.md"].data == b"mine"
    ast.parse(own, feature_version=(3, 11))
    before = code_sha256(collect(e))
    assert code_sha256({"notes.md": b"mine", "train.py": own}) == before, "an edit of it is an edit of the chain"


def test_a_training_here_and_one_in_the_template(tmp_path: Path) -> None:
    toml = MINIMAL.replace("[train]", 'template = "pytorch"\n[train]').replace('entry = "train.py"', "")
    with pytest.raises(ConfigError, match=r'the template "pytorch" brings a train\.py, and there is one here, too'):
        experiment(tmp_path, toml)


def test_a_notebook(tmp_path: Path) -> None:
    e = experiment(tmp_path, MINIMAL.replace("[train]", 'template = "notebook"\n[train]'))
    request = rendered(e)
    assert request.kernel_type is KernelType.NOTEBOOK
    notebook = nbformat.reads(request.source, as_version=4)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code", "code", "code"]
    assert notebook.metadata.kernelspec.name == "python3"
    assert "leg 1, attempt 1" in notebook.cells[0].source.lower()
    meta, code = write_folder(request, tmp_path / "out")
    assert (json.loads(meta.read_text())["code_file"], code.name) == ("kgo_kernel.ipynb", "kgo_kernel.ipynb")
    write_folder(request, tmp_path / "out")  # it is kgo's own, so it may be overwritten


@pytest.mark.parametrize(
    ("base", "block", "text"),
    [
        ("script/kernel.py.jinja", "about", "# größer"),
        ("script/kernel.py.jinja", "before", "\n    print('first')"),
        ("notebook/kernel.ipynb.jinja", "about", '# "größer"'),
        ("notebook/kernel.ipynb.jinja", "before", "print('first')\n"),
        ("notebook/kernel.ipynb.jinja", "curves", 'print("no curves")'),
    ],
)
def test_blocks_of_a_template_that_ships_can_be_replaced(tmp_path: Path, base: str, block: str, text: str) -> None:
    own = f'{{% extends "{base}" %}}{{% block {block} %}}{text}{{% endblock %}}'
    e = experiment(tmp_path, OWN, {f"mine/{Path(base).name}": own})
    source = rendered(e).source
    shown = json.loads(source)["cells"] if base.endswith("ipynb.jinja") else [{"source": source}]
    assert any(text.strip() in cell["source"] for cell in shown)
    assert "src/train.py" in bundle_of(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ header_line | json }}", "leaves out the header|holds no bundle"),
        ('{"x": {{ header_line | json }}', "doesn't make a notebook that Kaggle takes"),
        (
            '{"cells": [{"cell_type": "code", "source": [{{ header_line | json }}]}], "metadata": {}}',
            "notebook that Kaggle",
        ),
    ],
)
def test_a_broken_notebook_is_told(tmp_path: Path, text: str, message: str) -> None:
    e = experiment(tmp_path, OWN, {"mine/kernel.ipynb.jinja": text})
    with pytest.raises(RenderError, match=message):
        rendered(e)
