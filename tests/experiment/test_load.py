"""kgo.toml: what is read, what is refused, and in which words."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.errors import ConfigError, UsageError
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.experiment.schema import TABLES
from kaggle_orchestrator.models import Accelerator
from kaggle_orchestrator.protocol import KgoError
from tests.experiment.trees import CHAIN, MINIMAL, experiment, tree

EVERYTHING = """
[kernel]
slug = "digits-cnn"
title = "Digits CNN"
template = "script"
accelerator = "T4x2"
internet = true
private = false
datasets = ["me/digits"]
competitions = ["titanic"]
models = ["google/gemma/pyTorch/2b-it/3"]
kernels = ["me/other-kernel"]
docker_image = "gcr.io/kaggle-images/python:v1"
[train]
entry = "./train.py"
args = ["--lr", "{params.lr}", "--resume", "{resume}", "{epoch:02d}"]
include = ["train.py"]
exclude = ["notes/**"]
launch = "python"
params = { lr = 0.1, nested = { a = [1, "x"] } }
[chain]
session_limit = "6h"
stop_before = "90s"
quota_reserve = "1.5h"
max_legs = 7
max_gpu_hours = 20
retries = 0
min_leg = "10m"
out_of_quota = "wait"
rescue_limit = "1GB"
[checkpoint]
keep = 3
save_every = "5m"
paths = ["checkpoints/**"]
done = "final.pt"
deterministic = true
on_mismatch = "warn"
[guards]
gpu_idle = "30m"
hung = "1h"
[pull]
dir = "artifacts"
patterns = ["final*"]
[local]
python = ".venv/bin/python"
sources = { "me/digits" = "data/sample" }
"""


def faults(folder: Path, toml: str, **files: str) -> list[str]:
    tree(folder, {"train.py": "", "kgo.toml": toml, **files})
    with pytest.raises(ConfigError) as caught:
        load(folder)
    return [str(fault) for fault in caught.value.faults]


def test_every_key_arrives(tmp_path: Path) -> None:
    e = experiment(tmp_path, EVERYTHING)
    assert e.root == tmp_path.resolve()
    assert e.kernel.slug == "digits-cnn"
    assert e.kernel.title == "Digits CNN"
    assert e.kernel.accelerator == Accelerator("T4x2", "NvidiaTeslaT4", 2)
    assert (e.kernel.internet, e.kernel.private) == (True, False)
    assert e.kernel.datasets == ("me/digits",)
    assert e.kernel.competitions == ("titanic",)
    assert e.kernel.models == ("google/gemma/pyTorch/2b-it/3",)
    assert e.kernel.kernels == ("me/other-kernel",)
    assert e.kernel.docker_image == "gcr.io/kaggle-images/python:v1"
    assert e.train.entry == "train.py"
    assert e.train.args[-1] == "{epoch:02d}"
    assert (e.train.include, e.train.exclude) == (("train.py",), ("notes/**",))
    assert e.train.params == {"lr": 0.1, "nested": {"a": [1, "x"]}}
    assert e.chain is not None
    assert (e.chain.session_limit_s, e.chain.stop_before_s, e.chain.quota_reserve_s) == (21600, 90, 5400)
    assert (e.chain.max_legs, e.chain.max_gpu_hours, e.chain.retries, e.chain.min_leg_s) == (7, 20.0, 0, 600)
    assert (e.checkpoint.keep, e.checkpoint.save_every_s) == (3, 300)
    assert (e.checkpoint.paths, e.checkpoint.done, e.checkpoint.deterministic) == (
        ("checkpoints/**",),
        "final.pt",
        True,
    )
    assert e.guards.hung_s == 3600
    assert (e.pull.dir, e.pull.patterns) == ("artifacts", ("final*",))
    assert (e.local.python, e.local.sources) == (".venv/bin/python", {"me/digits": "data/sample"})


def test_defaults(tmp_path: Path) -> None:
    one_off = experiment(tmp_path)
    assert one_off.chain is None
    assert one_off.kernel.title == "digits-cnn"
    assert one_off.kernel.private
    assert not one_off.kernel.internet
    assert one_off.kernel.accelerator.machine_shape is None
    chained = experiment(tmp_path, CHAIN)
    assert chained.chain is not None
    assert chained.chain.session_limit_s == 12 * 3600
    assert chained.chain.min_leg_s == 1800
    assert chained.checkpoint.save_every_s is None


def test_min_leg_defaults_to_half_a_short_session(tmp_path: Path) -> None:
    e = experiment(tmp_path, CHAIN + 'session_limit = "20s"\nstop_before = "5s"\n')
    assert e.chain
    assert e.chain.min_leg_s == 10


def test_a_file_or_its_folder_and_any_name(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "kgo.toml": MINIMAL, "small.toml": MINIMAL})
    assert load(tmp_path) == load(tmp_path / "kgo.toml")
    assert load(tmp_path / "small.toml").file == "small.toml"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "kgo.toml": b"\xef\xbb\xbf" + MINIMAL.encode()})
    assert load(tmp_path).kernel.slug == "digits-cnn"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"digits-cnn"', '"Digits CNN"', "kernel.slug: a slug has lower-case letters a-z, digits and single hyphens"),
        ('"digits-cnn"', f'"{"x" * 41}"', "kernel.slug: at most 40 characters, this has 41"),
        ('"digits-cnn"', '"abc"', "kernel.slug: at least 5 characters, this has 3"),
        ('"digits-cnn"', '"digits--cnn"', "kernel.slug: a slug has"),
        ('"digits-cnn"', '"größe-eins"', "kernel.slug: a slug has"),
        ('"digits-cnn"', "5", "kernel.slug: expected text in quotes, got 5"),
        ('slug = "digits-cnn"', "", "kernel.slug: missing"),
        ('entry = "train.py"', "", "train.entry: missing"),
        ('"train.py"', '"trian.py"', "train.entry: there is no file trian.py in"),
        ('"train.py"', '"../train.py"', "train.entry: it would leave the folder of kgo.toml"),
        ('"train.py"', '"/train.py"', "train.entry: write it relative to the folder of kgo.toml"),
        ('"train.py"', '"src\\\\train.py"', "train.entry: write / between folders"),
        ('"train.py"', '"folder"', "train.entry: folder is a folder; name the script in it"),
        ('"train.py"', '"a.ipynb"', "train.entry: a.ipynb is a notebook; notebooks are not yet supported"),
        ('"train.py"', '"run.sh"', "train.entry: expected a Python script (.py), got run.sh"),
        ('"train.py"', '".env.py"', "train.entry: .env.py is on the list of what never travels"),
    ],
)
def test_one_wrong_value(tmp_path: Path, old: str, new: str, fault: str) -> None:
    tree(tmp_path, {"folder/x.py": "", "a.ipynb": "{}", "run.sh": "", ".env.py": ""})
    found = faults(tmp_path, MINIMAL.replace(old, new))
    assert len(found) == 1
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    ("table", "line", "fault"),
    [
        ("kernel", 'title = "abc"', "kernel.title: Kaggle wants 5 to 50 characters, this has 3"),
        ("kernel", f'title = "{"x" * 51}"', "kernel.title: Kaggle wants 5 to 50 characters, this has 51"),
        (
            "kernel",
            'title = "Other name"',
            'kernel.title: Kaggle makes the slug from the title: this one gives "other-',
        ),
        ("kernel", 'title = "two\\nlines"', "kernel.title: must be one line of printable text"),
        (
            "kernel",
            'accelerator = "P100"',
            "kernel.accelerator: Kaggle has retired the P100 and runs such a session on",
        ),
        ("kernel", 'accelerator = "NvidiaTeslaP100"', "kernel.accelerator: Kaggle has retired the P100"),
        ("kernel", 'accelerator = "TpuV5E8"', 'kernel.accelerator: "TpuV5E8" is a TPU; TPUs are not yet supported'),
        ("kernel", 'accelerator = "t4X2"', 'kernel.accelerator: no accelerator "t4X2"; did you mean "T4x2"?'),
        (
            "kernel",
            'accelerator = "gpu"',
            "kernel.accelerator: \"gpu\" doesn't name one; Kaggle's usual GPU is two T4s",
        ),
        ("kernel", 'accelerator = "cpu"', 'kernel.accelerator: for CPU write "none"'),
        ("kernel", "accelerator = true", "kernel.accelerator: expected text in quotes, got true"),
        ("kernel", 'accelerater = "T4x2"', "kernel.accelerater: unknown key; did you mean accelerator?"),
        ("kernel", "enable_gpu = true", "kernel.enable_gpu: unknown key; did you mean kernel.accelerator?"),
        ("kernel", "max_legs = 3", "kernel.max_legs: unknown key; did you mean chain.max_legs?"),
        ("kernel", "x = 3", "kernel.x: unknown key; known: slug, title, template"),
        ("kernel", 'internet = "yes"', 'kernel.internet: expected true or false, got "yes"'),
        ("kernel", 'datasets = ["digits"]', 'kernel.datasets[0]: expected a dataset as owner/slug, got "digits"'),
        ("kernel", 'datasets = ["me/digits/3"]', "kernel.datasets[0]: expected a dataset as owner/slug"),
        (
            "kernel",
            'datasets = ["https://www.kaggle.com/datasets/me/digits"]',
            'kernel.datasets[0]: expected a dataset as owner/slug, got "https://www.kaggle.com/datasets/me/digits"; '
            'write "me/digits"',
        ),
        ("kernel", 'datasets = "me/digits"', 'kernel.datasets: expected a list, got "me/digits"'),
        ("kernel", 'kernels = ["me/abc"]', "kernel.kernels[0]: a kernel's slug has at least 5 characters"),
        ("kernel", 'competitions = ["c/titanic"]', "kernel.competitions[0]: expected a competition's slug"),
        ("kernel", 'models = ["google/gemma"]', "kernel.models[0]: expected a model as owner/model/framework/"),
        ("kernel", 'template = "scirpt"', 'kernel.template: no template "scirpt"; did you mean "script"?'),
        ("kernel", 'template = "lightning"', 'kernel.template: "lightning" is not yet supported; use "script"'),
        (
            "kernel",
            'template = "./mine"',
            "kernel.template: there is no kernel.py.jinja or kernel.ipynb.jinja in ./mine/",
        ),
        ("kernel", 'docker_image = " "', "kernel.docker_image: must not be empty"),
        (
            "train",
            'args = ["{params.rate}"]\nparams = { rates = 1 }',
            "train.args[0]: there is no params.rate; did you mean",
        ),
        ("train", 'args = ["a\\u0000b"]', "train.args[0]: holds a NUL character"),
        ("train", "args = [1]", "train.args[0]: expected text in quotes, got 1"),
        ("train", "params = { when = 2020-01-01 }", "train.params: when is a date or time: write it as a string"),
        ("train", "params = { a = { b = [nan] } }", "train.params: a.b[0] is nan: must be a finite number"),
        ("train", 'include = ["src/**"]', 'train.include[0]: "src/**" matches no file'),
        ("train", 'include = ["../x"]', "train.include[0]: it would leave the folder of kgo.toml"),
        ("train", 'include = [""]', "train.include[0]: an empty pattern"),
        ("train", 'requirements = "r.txt"', 'train.requirements: "r.txt" is not yet supported; leave it out'),
        ("train", 'launch = "torchrun"', 'train.launch: "torchrun" is not yet supported; leave it out or at "python"'),
        ("train", 'launch = "bash"', 'train.launch: expected "python" or "torchrun", got "bash"'),
        ("train", 'secrets = ["A"]', "train.secrets: not yet supported; leave it out"),
        ("chain", 'session_limit = "13h"', 'chain.session_limit: at most 12h, which is Kaggle\'s limit; got "13h"'),
        ("chain", 'session_limit = "0s"', 'chain.session_limit: at least 1s, got "0s"'),
        (
            "chain",
            "session_limit = 600",
            'chain.session_limit: expected a duration such as "90s", "10m" or "12h", got 600',
        ),
        ("chain", 'stop_before = "10 minutes"', 'chain.stop_before: expected a duration such as "90s", "10m" or "12h"'),
        ("chain", 'stop_before = "12h"', "chain.stop_before: 12h leaves no time of a session_limit of 12h"),
        (
            "chain",
            'session_limit = "5m"',
            "chain.stop_before: 10m, the default, leaves no time of a session_limit of 5m",
        ),
        ("chain", 'session_limit = "1h"\nmin_leg = "2h"', "chain.min_leg: 2h is more than a session_limit of 1h"),
        ("chain", "max_legs = 0", "chain.max_legs: must be at least 1, got 0"),
        ("chain", "max_legs = 2.5", "chain.max_legs: expected a whole number, got 2.5"),
        ("chain", "max_gpu_hours = inf", "chain.max_gpu_hours: must be more than 0, got inf"),
        ("chain", "retries = -1", "chain.retries: must be at least 0, got -1"),
        ("chain", "retries = true", "chain.retries: expected a whole number, got true"),
        ("chain", 'out_of_quota = "cpu"', 'chain.out_of_quota: "cpu" is not yet supported; leave it out or at "wait"'),
        ("chain", 'rescue_limit = "2GB"', 'chain.rescue_limit: "2GB" is not yet supported; leave it out or at "1GB"'),
        ("chain", 'rescue_limit = "1 gig"', 'chain.rescue_limit: expected a size such as "500MB" or "1GB"'),
        ("checkpoint", "keep = 0", "checkpoint.keep: must be at least 1, got 0"),
        ("checkpoint", 'save_every = "often"', "checkpoint.save_every: expected a duration"),
        ("checkpoint", 'on_mismatch = "halt"', 'checkpoint.on_mismatch: expected "warn" or "stop", got "halt"'),
        ("checkpoint", 'done = "/final.pt"', "checkpoint.done: write it relative to the folder of kgo.toml"),
        ("guards", 'gpu_idle = "10m"', 'guards.gpu_idle: "10m" is not yet supported; leave it out or at "30m"'),
        ("guards", 'gpu_idle = "soon"', "guards.gpu_idle: expected a duration"),
        ("notify", 'command = ["x"]', "notify: not yet supported; leave it out"),
        ("sweep", "lr = [1, 2]", "sweep: not yet supported; leave it out"),
        ("pull", 'dir = "."', "pull.dir: artifacts among the code would count as edits of it"),
        ("local", 'sources = { "me/x" = "d" }', 'local.sources."me/x": [kernel] has no such source'),
        ("local", "python = 3", "local.python: expected text in quotes, got 3"),
        ("chian", "max_legs = 3", "chian: unknown table; did you mean chain?"),
        ("logging", "level = 3", "logging: unknown table; known: kernel, train, chain"),
    ],
)
def test_one_wrong_line(tmp_path: Path, table: str, line: str, fault: str) -> None:
    head = f"[{table}]\n"
    toml = MINIMAL.replace(head, head + line + "\n") if head in MINIMAL else f"{MINIMAL}{head}{line}\n"
    found = faults(tmp_path, toml)
    assert len(found) == 1, found
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[kernel]\nslug = \n", "line 2, column 8: not valid TOML: invalid value"),
        ("[kernel\n", "line 1, column 8: not valid TOML: expected ']' at the end of a table declaration"),
        ("a = 1\na = 2\n", "line 2, column 6: not valid TOML: cannot overwrite a value"),
        ('slug = "', "end of document: not valid TOML: unterminated string"),
        (b"[kernel]\nslug = '\xff'\n", "line 2: not UTF-8 text"),
        ("x = " + "[" * 50_000, "file: can't be read as TOML: nested too deeply"),
        ("x = " + "1" * 5000, "file: can't be read as TOML: Exceeds the limit (4300 digits)"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_line(tmp_path: Path, text: str | bytes, fault: str) -> None:
    tree(tmp_path, {"kgo.toml": text})
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value.faults[0]).startswith(fault)


def test_folders_for_models_and_kernels_are_refused_by_name(tmp_path: Path) -> None:
    """On the local Kaggle a push with such a source would fail, whatever folder stands in for it."""
    for key, name in (("models", "google/gemma/pyTorch/2b-it/3"), ("kernels", "me/other-kernel")):
        toml = MINIMAL.replace("[train]", f'{key} = ["{name}"]\n[train]')
        found = faults(tmp_path, toml + f'[local]\nsources = {{ "{name}" = "data" }}\n')
        assert found == [f'local.sources."{name}": folders for models and kernels are not yet supported']


def test_home_is_meant_by_a_tilde_where_any_folder_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    e = experiment(tmp_path, MINIMAL + '[pull]\ndir = "~/out"\n[local]\npython = "~/venv/bin/python"\n')
    assert e.place(e.pull.dir) == Path("/home/someone/out")
    assert e.place(e.local.python or "") == Path("/home/someone/venv/bin/python")
    assert e.place("data") == e.root / "data"
    assert faults(tmp_path, MINIMAL + '[pull]\ndir = "~nobody-there/x"\n') == [
        'pull.dir: "~nobody-there/x": there is no such home folder'
    ]


def test_no_file_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert "There is no" in caught.value.message
    assert caught.value.hint
    assert "kgo init" in caught.value.hint


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kgo.toml")
    with pytest.raises(UsageError, match="isn't a file"):
        load(tmp_path)


def test_all_faults_come_at_once_in_the_order_of_the_tables(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        kernle = 1
        [chain]
        session_limit = "5m"
        max_legs = 0
        [kernel]
        slug = "Bad Slug"
        datasets = ["digits", 5]
        [train]
        entry = "missing.py"
        include = ["nothing/**"]
        [local]
        python = 1
        """,
    )
    assert [f.split(":")[0] for f in found] == [
        "kernle",
        "kernel.slug",
        "kernel.datasets[0]",
        "kernel.datasets[1]",
        "train.entry",
        "chain.max_legs",
        "chain.stop_before",
        "local.python",
    ]


def test_a_table_that_is_no_table_is_one_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, 'kernel = 5\n[train]\nentry = "train.py"\n') == ["kernel: expected a table, got 5"]


JARGON = ("input should", "value error", "pydantic", "type=", "extra inputs", "instance", "dictionary")


@given(data=st.binary(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_an_error_of_ours(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "kgo.toml").write_bytes(data)
    with pytest.raises(KgoError):
        load(tmp_path)


NUMBERS = ["1", "-1", "true", "1.5", "nan", "inf", "1979-05-27", "07:32:00"]
TEXTS = ['""', '"x"', '"10m"', '"1GB"', '"T4x2"', '"none"', '"train.py"', '"../x"', '"\\u0000"']
OTHERS = ["[]", "[1]", "[[]]", '["a/b"]', '["me/digits"]', '["**"]', "{}", "{a = 1}", '{"me/x" = 1}']
LITERALS = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
KEYS = st.sampled_from([(table, key) for table, model in TABLES.items() for key in model.model_fields])


@given(values=st.dictionaries(KEYS, LITERALS, max_size=8))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_load_or_are_refused_in_plain_words(tmp_path: Path, values: dict[tuple[str, str], str]) -> None:
    tables = {t: [f"{key} = {v}" for (table, key), v in values.items() if table == t] for t, _ in values}
    toml = "\n".join(line for table, lines in tables.items() for line in [f"[{table}]", *lines])
    tree(tmp_path, {"kgo.toml": toml, "train.py": ""})
    try:
        load(tmp_path)
    except ConfigError as error:
        for fault in error.faults:
            assert not any(word in fault.message.casefold() for word in JARGON), fault
            assert fault.message.isprintable()
