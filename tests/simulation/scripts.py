"""What can go wrong at Kaggle, as fault scripts: each is borne by a chain, which ends as if nothing had happened."""

from typing import Any

QUOTA_HELD = (
    "Session cannot start because currently running sessions are projected to exceed maximum weekly GPU quota of 30."
)
FAULTS: dict[str, list[dict[str, Any]]] = {
    "the third push answers 500 after landing": [
        {"rpc": "SaveKernel", "number": 3, "status": 500, "after_landing": True}
    ],
    "two pushes answer 500 and never landed": [{"rpc": "SaveKernel", "first": 2, "status": 500}],
    "the connection is cut behind a push that landed": [
        {"rpc": "SaveKernel", "number": 2, "reset": True, "after_landing": True}
    ],
    "a push lands and is never answered": [{"rpc": "SaveKernel", "number": 2, "silence": True, "after_landing": True}],
    "a push lands and a web page answers": [
        {"rpc": "SaveKernel", "number": 1, "status": 200, "body": "html", "after_landing": True}
    ],
    "a push lands and its answer breaks off": [
        {"rpc": "SaveKernel", "number": 2, "status": 200, "body": "cut", "after_landing": True}
    ],
    "pushes are throttled": [{"rpc": "SaveKernel", "first": 3, "status": 429, "retry_after": 120}],
    "the session cap is reached for a while": [
        {"rpc": "SaveKernel", "first": 4, "refuse": "Maximum batch GPU session count of 2 reached."}
    ],
    "running sessions hold the quota": [{"rpc": "SaveKernel", "first": 2, "refuse": QUOTA_HELD}],
    "every fifth download breaks at 60 %": [{"download": "**", "every": 5, "break_at": 0.6}],
    "every third download's address has expired": [{"download": "**", "every": 3, "expire": True}],
    "one byte of a result differs once": [{"download": "kgo/leg.json", "number": 2, "flip": True}],
    "downloads answer 503": [{"download": "**", "every": 2, "status": 503}],
    "downloads fall silent": [{"download": "**", "every": 4, "silence": True}],
    "the status says COMPLETE for 90 s after each push": [
        {"lie": "COMPLETE", "every": 1, "for_s": 90, "from": "start"}
    ],
    "a finished session reads RUNNING for two hours": [{"lie": "RUNNING", "number": 2, "for_s": 7200, "from": "end"}],
    "a finished session reads CANCEL_ACKNOWLEDGED": [
        {"lie": "CANCEL_ACKNOWLEDGED", "number": 2, "for_s": 3600, "from": "end"}
    ],
    "every fourth call is throttled, with a wait": [{"rpc": "*", "every": 4, "status": 429, "retry_after": 7}],
    "every fourth call is throttled, without a word": [{"rpc": "*", "every": 4, "status": 429}],
    "every fourth read isn't JSON": [
        {"rpc": rpc, "every": 4, "status": 200, "body": "text"}
        for rpc in ("GetKernelSessionStatus", "ListKernelSessionOutput", "GetKernel")
    ],
    "every tenth call is never answered": [{"rpc": "*", "every": 10, "silence": True}],
    "every seventh call's connection is cut": [{"rpc": "*", "every": 7, "reset": True}],
    "a fifth of all calls fail": [{"rpc": "*", "chance": 0.2, "status": 502, "body": "html"}],
    "an outage of half an hour": [{"rpc": "*", "every": 1, "status": 503, "body": "nested", "for_s": 1800}],
    "a session is lost in mid-training": [{"kill_session": {"number": 2, "after_s": 500, "as": "error"}}],
    "a session is killed while it saves": [
        {"kill_session": {"number": 2, "when_output": "checkpoints/step-*/manifest.json", "as": "limit"}}
    ],
    "three sessions in a row are killed": [
        {"kill_session": {"number": number, "after_s": 300, "as": "error"}} for number in (2, 3, 4)
    ],
    "an accepted source isn't mounted": [{"no_mount": {"number": 2}}],
    "a complete session's checkpoint is missing": [{"lose_output": {"number": 2, "names": "checkpoints/**"}}],
    "a complete session's output is missing": [{"lose_output": {"number": 1}}],
    "a session comes without its GPU": [{"no_gpu": {"number": 2}}],
}
