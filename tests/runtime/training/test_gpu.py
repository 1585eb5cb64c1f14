"""On a GPU in its deterministic mode a cut training ends on the same bits, too."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kaggle_orchestrator.protocol import ProgressState, Variable
from tests.runtime.training.legs import Chain, assert_same

ON = {Variable.DETERMINISTIC: "1", Variable.REPLAY: "30"}


@pytest.mark.gpu
@pytest.mark.timeout(300)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_deterministic_resume(tmp_path: Path, chain: Callable[..., Chain]) -> None:
    straight, cut = chain("on_a_gpu", name="straight"), chain("on_a_gpu")
    ended = straight.leg(environ=ON)
    assert ended.code == 0, ended.log
    for stop_at in (3, 4, 9, None):
        ended = cut.leg(environ=ON, stop_at=stop_at)
        assert ended.code == 0, ended.log
        resume = cut.progress.resume
        assert resume is None or (resume.mismatch, resume.bitwise) == ("", True)
    assert cut.progress.state is ProgressState.DONE
    assert_same(straight.legs[0], *cut.legs)
