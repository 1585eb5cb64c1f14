"""Templates of one's own, and what is said of a broken one."""

from pathlib import Path

import pytest

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment.shipped import shipped
from kaggle_orchestrator.protocol import parse_header
from kaggle_orchestrator.render import bundle_of
from tests.experiment.trees import MINIMAL, experiment
from tests.render.attempts import rendered

OWN = MINIMAL.replace("[train]", 'template = "./mine"\n[train]')
SCRIPT = (shipped("kernel_templates") / "script" / "kernel.py.jinja").read_text(encoding="utf-8")


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
        (SCRIPT.replace("{{ bundle }}", ""), "bundle in the source is damaged"),
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
