"""docs/configuration.md names every key that is read, and no other, with the default it has."""

import re
import tomllib
from pathlib import Path

import pytest

from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.experiment.schema import TABLES, Document
from kaggle_orchestrator.experiment.selection import WRITTEN_BY_TRAINING, never_travels
from kaggle_orchestrator.experiment.values import ACCELERATORS, parse_duration
from kaggle_orchestrator.protocol.session import Variable
from tests.experiment.trees import tree

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = {
    key: [cell.strip() for cell in line.split("|")[2:4]]
    for line in TEXT.splitlines()
    if line.startswith("| `") and (key := line.split("`")[1]).partition(".")[0] in TABLES and "." in key
}
KEYS = {f"{table}.{key}" for table, model in TABLES.items() for key in model.model_fields}


def test_every_key_is_there_and_no_other() -> None:
    assert set(ROWS) == KEYS
    for table in set(Document.model_fields) - set(TABLES):
        assert f"`[{table}]`" in TEXT


@pytest.mark.parametrize("key", sorted(KEYS))
def test_its_default_is_the_one_that_is_told(key: str) -> None:
    table, _, name = key.partition(".")
    default = TABLES[table].model_fields[name].default
    told = re.fullmatch(r"`([^`]+)`", ROWS[key][0])
    if not told:
        return  # told in words
    value = tomllib.loads(f"x = {told[1]}")["x"]
    if name == "accelerator":
        value = ACCELERATORS[value]
    elif isinstance(default, float) and isinstance(value, str):
        value = parse_duration(value)
    elif value == "auto":
        value = None
    assert value == default or (isinstance(default, int) and parse_duration(str(value)) == default)


def test_what_is_not_yet_supported_is_told() -> None:
    """By the source: every key that refuses values for now."""
    source = (Path(load.__code__.co_filename).parent / "schema.py").read_text(encoding="utf-8")
    later = {m[1] for m in re.finditer(r"^    (\w+): .*_later", source, re.MULTILINE)}
    assert later
    for name in later:
        assert re.search(rf"`(\w+\.)?\[?{name}\]?`.*not yet", TEXT), name


def test_the_names_that_never_travel_never_do() -> None:
    section = TEXT.partition("Never, whatever these keys say")[2].partition("Links must")[0]
    names = [n.rstrip("/").replace("*", "x") for n in re.findall(r"`([^`]+)`", section)]
    assert len(names) > 8
    assert all(never_travels(name) or name == "kgo.toml" for name in names)
    assert all(f"`{name}/`" in TEXT for name in WRITTEN_BY_TRAINING)


def test_the_variables_are_those_that_are_set_and_read() -> None:
    section = TEXT.partition("\n## Variables\n")[2].partition("\n## ")[0]
    read, given = section.split("In a session", 1)
    assert {"KGO_PARAMS", "KGO_RESUME"} < set(re.findall(r"`(KGO_\w+)`", given)) <= set(Variable)
    cli = (Path(__file__).parents[2] / "kaggle_orchestrator" / "cli").glob("*.py")
    assert set(re.findall(r"`(KGO_\w+)`", read)) == {
        name for path in cli for name in re.findall(r"\bKGO_[A-Z]+\b", path.read_text(encoding="utf-8"))
    }


def test_the_example_is_valid(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert example
    tree(tmp_path, {"kgo.toml": example[1], "train.py": ""})
    assert load(tmp_path).chain is not None
