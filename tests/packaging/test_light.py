"""``kgo --help`` and ``import kaggle_orchestrator`` stay quick because they load nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = ["torch", "kaggle", "kagglesdk", "starlette", "uvicorn", "rich", "pydantic", "jinja2", "tenacity", "requests"]

ASK = """
import sys
try:
    {code}
except SystemExit as left:
    assert not left.code, left.code
print("LOADED", sorted({heavy} & {{name.split(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    "code",
    [
        "import kaggle_orchestrator",
        "import kaggle_orchestrator; kaggle_orchestrator.KgoError",
        "import kaggle_orchestrator.cli",
        "sys.argv[1:] = ['--help']; from kaggle_orchestrator.cli import main; main()",
        "sys.argv[1:] = ['--version']; from kaggle_orchestrator.cli import main; main()",
        "import kaggle_orchestrator.protocol",
        "import kaggle_orchestrator.runtime.supervisor",
    ],
)
def test_it_loads_nothing_heavy(code: str) -> None:
    ask = ASK.format(code=code, heavy=set(HEAVY))
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "LOADED []"


def test_it_would_notice() -> None:
    ask = ASK.format(code="import kaggle_orchestrator.experiment", heavy=set(HEAVY))
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "LOADED ['pydantic']"
