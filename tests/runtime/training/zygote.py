"""A process that has imported torch once and forks a training process for each request on its stdin.

A fresh process pays two to three seconds for ``import torch``; a fork starts at once and is a process of its own all
the same: it can be killed, and shares no state with the next.
"""

import importlib
import json
import os
import sys
import traceback
import warnings
from typing import Any, NoReturn


def child(request: dict[str, Any]) -> NoReturn:
    """Become the training process of ``request``."""
    os.setsid()
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [n for n in os.environ if n.startswith("KGO_")]:
        del os.environ[name]
    os.environ.update(request["environ"])
    code = 0
    try:
        module, _, function = request["training"].partition(":")
        getattr(importlib.import_module(module), function)(**request["options"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    """Serve requests until stdin ends: answers with the pid at once, and with the wait status at the end."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch

    torch.set_num_threads(1)
    import kaggle_orchestrator.runtime.training  # noqa: F401

    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    torch.optim.AdamW([weight]).step()  # the first step of an optimizer imports torch._dynamo: a second

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(request)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": status}), flush=True)


if __name__ == "__main__":
    main()
