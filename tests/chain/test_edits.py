"""What is named when an experiment isn't what its chain was started with."""

from pathlib import Path

from kaggle_orchestrator.chain.edits import changes, settings, snapshot
from kaggle_orchestrator.chain.model import Fingerprint
from kaggle_orchestrator.experiment import load

TOML = '[kernel]\nslug = "edits"\n[train]\nentry = "train.py"\ninclude = ["*.py"]\nparams = {{ lr = {lr} }}\n[chain]\n'


def write(root: Path, lr: float = 0.1, **files: str) -> None:
    (root / "kgo.toml").write_text(TOML.format(lr=lr))
    for name, text in ({"train": "x = 1\n"} | files).items():
        (root / f"{name}.py").write_text(text)


def test_files_and_settings_are_named(tmp_path: Path) -> None:
    write(tmp_path, old="", same="")
    before = snapshot(load(tmp_path))
    assert changes(before.fingerprint, before.files, before.settings, snapshot(load(tmp_path))) == ()
    write(tmp_path, lr=0.2, train="x = 2\n", new="")
    (tmp_path / "old.py").unlink()
    named = changes(before.fingerprint, before.files, before.settings, snapshot(load(tmp_path)))
    assert named == ("new.py (new)", "old.py (gone)", "train.py", "train.params.lr (0.1 → 0.2)")


def test_after_a_rebuild_only_that_something_changed_is_known(tmp_path: Path) -> None:
    write(tmp_path)
    now = snapshot(load(tmp_path))
    other = Fingerprint("code then", "config then")
    assert changes(other, {}, {}, now) == ("the code (which files isn't known)", "kgo.toml")


def test_every_setting_behind_the_fingerprint_has_a_name(tmp_path: Path) -> None:
    """Each edit of kgo.toml that changes the fingerprint must be named by its key, and no other may be."""
    write(tmp_path)
    before = snapshot(load(tmp_path))
    text = (tmp_path / "kgo.toml").read_text()
    edits = {
        "kernel.accelerator": text.replace("[train]", 'accelerator = "T4x2"\n[train]'),
        "kernel.internet": text.replace("[train]", "internet = true\n[train]"),
        "kernel.docker_image": text.replace("[train]", 'docker_image = "gcr.io/x"\n[train]'),
        "kernel.datasets": text.replace("[train]", 'datasets = ["me/d"]\n[train]'),
        "kernel.competitions": text.replace("[train]", 'competitions = ["titanic"]\n[train]'),
        "kernel.kernels": text.replace("[train]", 'kernels = ["me/other"]\n[train]'),
        "train.args": text.replace("[chain]", 'args = ["--x"]\n[chain]'),
        "checkpoint.paths": text + '[checkpoint]\npaths = ["*.pt"]\n',
        "checkpoint.done": text + '[checkpoint]\ndone = "final.pt"\n',
        "checkpoint.deterministic": text + "[checkpoint]\ndeterministic = true\n",
    }
    assert edits.keys() <= settings(load(tmp_path)).keys()
    for key, edited in edits.items():
        (tmp_path / "kgo.toml").write_text(edited)
        now = snapshot(load(tmp_path))
        assert now.fingerprint != before.fingerprint, key
        assert [c.split(" ")[0] for c in changes(before.fingerprint, before.files, before.settings, now)] == [key]
    (tmp_path / "kgo.toml").write_text(text.replace("[chain]", '[chain]\nmax_legs = 40\nsession_limit = "9h"\n'))
    assert snapshot(load(tmp_path)).fingerprint == before.fingerprint, "bounds may be changed at any time"
