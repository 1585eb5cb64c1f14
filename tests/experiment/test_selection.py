"""Which files travel: what git says, what include says, and what never does."""

import os
from pathlib import Path

import pytest

from kaggle_orchestrator.errors import ConfigError
from kaggle_orchestrator.experiment import collect, load, select
from tests.experiment.trees import MINIMAL, experiment, git, tree

SECRETS = {
    ".env": "A=1",
    ".env.local": "A=1",
    "prod.env": "A=1",
    "kaggle.json": "{}",
    "deploy.pem": "key",
    "keys/id_rsa": "key",
    "keys/id_ed25519.old": "key",
    ".ssh/config": "x",
    ".kaggle/access_token": "x",
    "sub/.ENV": "A=1",
    "sub/Kaggle.JSON": "{}",
    ".netrc": "x",
}
CLUTTER = {
    ".kgo/journal.sqlite": "x",
    "outputs/leg.json": "x",
    ".venv/lib/x.py": "x",
    "other-env/pyvenv.cfg": "x",
    "other-env/lib/x.py": "x",
    "__pycache__/train.pyc": "x",
    "src/__pycache__/a.pyc": "x",
    ".ipynb_checkpoints/a": "x",
    ".gitignore": "",
    "checkpoints/step-00000001/manifest.json": "{}",
    "kgo/metrics.jsonl": "{}",
    "best/model.pt": "x",
    "final/model.pt": "x",
}
CODE = {"src/a.py": "", "src/outputs/head.py": "", "data/x.csv": "1", "README.md": "", "src/final/x.py": ""}


def paths(folder: Path, toml: str = MINIMAL, files: dict[str, str | bytes] | None = None) -> list[str]:
    found = collect(experiment(folder, toml, files))
    for path, file in found.items():
        assert file == folder.resolve() / path
    assert list(found) == sorted(found)
    return list(found)


def with_train(line: str) -> str:
    return f"{MINIMAL}{line}\n"


def test_without_git_all_but_secrets_and_clutter(tmp_path: Path) -> None:
    assert paths(tmp_path, files={**SECRETS, **CLUTTER, **CODE}) == sorted([*CODE, "train.py"])


def test_in_a_repository_what_git_tracks_or_would(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    tree(tmp_path, {".gitignore": "*.csv\nignored/\n", "ignored/x.py": "", "deleted.py": "", "kgo/own.py": "", **CODE})
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "deleted.py").unlink()
    found = paths(tmp_path, files={**SECRETS, **CLUTTER, ".gitignore": "*.csv\nignored/\n", "new file.py": ""})
    assert found == sorted([*(set(CODE) - {"data/x.csv"}), "train.py", "new file.py", "kgo/own.py"])


def test_a_folder_of_a_repository_is_its_own_root(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    tree(tmp_path, {"outside.py": ""})
    assert paths(tmp_path / "exp", files={"a.py": ""}) == ["a.py", "train.py"]


def test_a_folder_that_the_repository_around_it_ignores_is_taken_without_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    tree(tmp_path, {".gitignore": ".demo/\n"})
    assert paths(tmp_path / ".demo" / "digits", files={"a.py": "", ".env": ""}) == ["a.py", "train.py"]


def test_a_hook_s_environment_does_not_mislead_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    exp = tmp_path / "exp"
    exp.mkdir()
    git(exp, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert paths(exp, files={".gitignore": "secret.py\n", "secret.py": "", "a.py": ""}) == ["a.py", "train.py"]


def test_a_repository_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To go on without git could send away what it ignores."""
    git(tmp_path, "init", "-q")
    experiment(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="git isn't installed"):
        load(tmp_path)
    assert paths(tmp_path, with_train('include = ["train.py"]')) == ["train.py"]


def test_a_broken_repository_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, {".git": "gitdir: /nowhere/at/all\n", "train.py": "", "kgo.toml": MINIMAL})
    with pytest.raises(ConfigError, match="git can't list the files"):
        load(tmp_path)


def test_a_repository_inside_travels_with_its_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    inner = tree(tmp_path / "vendor" / "lib", {"x.py": "", ".env": ""})
    git(inner, "init", "-q")
    assert paths(tmp_path) == ["train.py", "vendor/lib/x.py"]


def test_include_replaces_the_default_even_git_s_word(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    found = paths(
        tmp_path,
        with_train('include = ["src/**", "data/*.csv", "final/**"]'),
        {".gitignore": "*.csv\n", **CODE, **CLUTTER},
    )
    assert found == ["data/x.csv", "final/model.pt", "src/a.py", "src/final/x.py", "src/outputs/head.py", "train.py"]


def test_include_never_brings_a_secret(tmp_path: Path) -> None:
    assert paths(tmp_path, with_train('include = ["**"]'), {**SECRETS, "a.py": ""}) == ["a.py", "train.py"]


@pytest.mark.parametrize("pattern", [".env", "keys/**", "*.pem", "kgo.toml", "outputs/**"])
def test_an_include_of_nothing_but_what_never_travels_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.include\[0\]: .* matches only what never travels"):
        experiment(tmp_path, with_train(f'include = ["{pattern}"]'), {**SECRETS, **CLUTTER})


def test_exclude_takes_away_but_never_the_entry(tmp_path: Path) -> None:
    assert paths(tmp_path, with_train('exclude = ["data", "*.py"]'), {"data/x": "", "a.py": "", "b/c.py": ""}) == [
        "b/c.py",
        "train.py",
    ]


def test_kgo_toml_stays_so_that_a_higher_budget_is_no_edit_of_the_code(tmp_path: Path) -> None:
    tree(tmp_path, {"small.toml": MINIMAL, "kgo.toml": MINIMAL, "train.py": ""})
    assert "small.toml" not in collect(load(tmp_path / "small.toml"))
    assert "kgo.toml" not in collect(load(tmp_path))


def test_data_stand_ins_and_pulled_artifacts_stay(tmp_path: Path) -> None:
    toml = MINIMAL.replace("[train]", 'datasets = ["me/digits"]\n[train]')
    toml += '[local]\nsources = { "me/digits" = "data/sample" }\n[pull]\ndir = "results"\n'
    files: dict[str, str | bytes] = {"data/sample/x.csv": "", "data/read.py": "", "results/final.pt": ""}
    assert paths(tmp_path, toml, files) == ["data/read.py", "train.py"]


def test_a_rendered_folder_stays(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"k/kgo_kernel.py": "", "k/kernel-metadata.json": "{}", "a.py": ""}
    assert paths(tmp_path, files=files) == ["a.py", "train.py"]


@pytest.mark.parametrize("in_git", [False, True])
def test_a_folder_that_an_output_was_pulled_to_stays(tmp_path: Path, in_git: bool) -> None:
    if in_git:
        git(tmp_path, "init", "-q")
    pulled = dict.fromkeys(("legs/2/kgo/leg.json", "legs/2/final/model.pt", "legs/2/notes.txt"), "x")
    assert paths(tmp_path, files={**pulled, "legs/plot.py": ""}) == ["legs/plot.py", "train.py"]


def test_code_stays_code_where_an_output_was_pulled_or_a_training_ran(tmp_path: Path) -> None:
    """Beside the entry, and beside what git tracks, only what was written there is left out."""
    toml = MINIMAL.replace("train.py", "src/train.py")
    git(tmp_path, "init", "-q")
    tree(tmp_path, {"kgo.toml": toml, "src/train.py": "", "src/net.py": "", "lib/a.py": ""})
    git(tmp_path, "add", "-A")
    written = ("kgo/leg.json", "best/model.pt", "checkpoints/step-00000001/manifest.json")
    tree(tmp_path, {f"{folder}/{name}": "x" for folder in ("src", "lib") for name in written})
    assert list(collect(load(tmp_path))) == ["lib/a.py", "src/net.py", "src/train.py"]


def test_links(tmp_path: Path) -> None:
    exp = tree(tmp_path / "exp", {"lib/a.py": "A", "lib/.env": "secret", "train.py": "", "kgo.toml": MINIMAL})
    (exp / "alias.py").symlink_to("lib/a.py")
    (exp / "linked").symlink_to("lib")
    (exp / "lib" / "up").symlink_to("..")
    (exp / "innocent.txt").symlink_to("lib/.env")
    found = collect(load(exp))
    assert {"alias.py", "lib/a.py", "linked/a.py", "train.py"} <= set(found)
    assert "innocent.txt" not in found, "a secret under another name"
    assert not any("up/lib/up" in path for path in found), "a link that leads up is not followed for ever"
    assert all(f.read_bytes() != b"secret" for f in found.values())


def test_links_in_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    tree(tmp_path, {"lib/a.py": "A", "train.py": "", "kgo.toml": MINIMAL})
    (tmp_path / "linked").symlink_to("lib")
    assert list(collect(load(tmp_path))) == ["lib/a.py", "linked/a.py", "train.py"]


@pytest.mark.parametrize("in_git", [False, True])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, in_git: bool) -> None:
    tree(tmp_path / "elsewhere", {"x.csv": "private"})
    exp = tree(tmp_path / "exp", {"train.py": "", "kgo.toml": MINIMAL})
    if in_git:
        git(exp, "init", "-q")
    (exp / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="data is a link that leaves the folder: exclude it"):
        load(exp)
    assert paths(exp, with_train('exclude = ["data"]')) == ["train.py"]


def test_an_entry_that_is_a_link_elsewhere_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, {"elsewhere.py": "x"})
    exp = tree(tmp_path / "exp", {"kgo.toml": MINIMAL})
    (exp / "train.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(ConfigError, match=r"train\.entry: train\.py is a link that leaves the folder"):
        load(exp)


def test_a_dangling_link_is_refused_by_name(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "kgo.toml": MINIMAL})
    (tmp_path / "gone.txt").symlink_to("nowhere.txt")
    with pytest.raises(ConfigError, match=r"gone\.txt is a link to nothing"):
        load(tmp_path)


def test_pipes_and_odd_names(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "kgo.toml": MINIMAL, "größe 1.txt": "", "葉/a b.py": ""})
    os.mkfifo(tmp_path / "pipe")
    assert list(collect(load(tmp_path))) == ["größe 1.txt", "train.py", "葉/a b.py"]
    (tmp_path / os.fsdecode(b"bad-\xff.txt")).write_text("")
    with pytest.raises(ConfigError, match="isn't printable UTF-8 text"):
        load(tmp_path)


def test_secrets_kept_back_are_named(tmp_path: Path) -> None:
    selection = select(experiment(tmp_path, files=SECRETS))
    assert ".env" in selection.held_back
    assert "keys/id_rsa" in selection.held_back
    assert ".ssh/" in selection.held_back
