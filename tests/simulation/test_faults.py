"""A chain ends as if nothing had happened, whatever script Kaggle follows."""

from pathlib import Path

import pytest

from tests.simulation.lab import Lab
from tests.simulation.scripts import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_a_chain_bears_it(name: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    told = lab.run(faults=FAULTS[name], kernel='accelerator = "T4x2"')
    assert told.hours < 24 * 7
