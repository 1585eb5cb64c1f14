"""A training that knows nothing of kgo: it saves one file now and then, and goes on from the one it's given."""

import argparse
import hashlib
import json
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--step-s", type=float, required=True)
parser.add_argument("--resume")
args = parser.parse_args()

step, state = 0, ""
if args.resume:
    saved = json.loads(Path(args.resume).read_text())
    step, state = saved["step"], saved["state"]
Path("saved").mkdir(exist_ok=True)
while step < args.steps:
    time.sleep(args.step_s)
    step += 1
    state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
    if step % 5 == 0:
        Path("saved/last.tmp").write_text(json.dumps({"step": step, "state": state}))
        Path("saved/last.tmp").replace("saved/last.json")
Path("final").mkdir(exist_ok=True)
Path("final/state.txt").write_text(state)
