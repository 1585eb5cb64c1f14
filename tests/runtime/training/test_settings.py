"""Session variables are read once, and a bad one is named."""

import json
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import KgoError, Variable
from kaggle_orchestrator.runtime.training.settings import Settings

TOML = """
[train]
params = { lr = 0.1, layers = [1, 2] }
[local]
sources = { "me/digits" = "data/sample" }
"""


def test_in_a_session(tmp_path: Path) -> None:
    (tmp_path / "kgo.toml").write_text(TOML)  # not the session's
    settings = Settings.read(
        {
            Variable.CONTROL: str(tmp_path / "control"),
            Variable.RESUME: str(tmp_path / "in/checkpoints/step-00000009"),
            Variable.DEADLINE: "1900000000.5",
            Variable.KEEP: "4",
            Variable.SAVE_EVERY: "90",
            Variable.TOKEN: "abc",
            Variable.LEG: "3",
            Variable.DETERMINISTIC: "1",
            Variable.PARAMS: json.dumps({"lr": 0.5}),
            Variable.KAGGLE_ROOT: str(tmp_path),
        },
        tmp_path,
    )
    assert settings == Settings(
        working=tmp_path,
        control=tmp_path / "control",
        resume=tmp_path / "in/checkpoints/step-00000009",
        deadline=1900000000.5,
        keep=4,
        save_every_s=90.0,
        deterministic=True,
        token="abc",
        params={"lr": 0.5},
        kaggle_root=tmp_path,
    )


def test_on_a_laptop_kgo_toml_stands_in(tmp_path: Path) -> None:
    (tmp_path / "kgo.toml").write_text(TOML)
    for settings in (
        Settings.read({}, tmp_path),
        Settings.read({}, tmp_path / "elsewhere", script=tmp_path / "train.py"),
    ):
        assert settings.params == {"lr": 0.1, "layers": [1, 2]}
        assert settings.local_sources == {"me/digits": tmp_path / "data/sample"}
        assert (settings.control, settings.deadline, settings.keep) == (None, None, 2)


def test_two_checkpoints_at_least(tmp_path: Path) -> None:
    assert Settings.read({Variable.KEEP: "1"}, tmp_path).keep == 2


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({Variable.DEADLINE: "soon"}, "KGO_DEADLINE='soon' is not a number"),
        ({Variable.SAVE_EVERY: "10m"}, "KGO_SAVE_EVERY_S='10m' is not a number"),
        ({Variable.PARAMS: "{"}, "KGO_PARAMS is not JSON"),
        ({Variable.PARAMS: "[1]"}, "KGO_PARAMS is not a JSON object"),
        ({Variable.LEG: "2"}, "leg 2, but KGO_RESUME names no checkpoint"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    with pytest.raises(KgoError, match=message):
        Settings.read(environ, tmp_path)


def test_a_broken_kgo_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "kgo.toml").write_text("[train")
    with pytest.raises(KgoError, match=r"kgo\.toml: "):
        Settings.read({}, tmp_path)
