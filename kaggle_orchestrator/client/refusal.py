"""Kaggle's words for refusing a push, and what each means for the one who pushed."""

import re

from kaggle_orchestrator.errors import QuotaExhausted, Refused, SessionCap

_CAP = re.compile(r"session count of (\d+)", re.IGNORECASE)
_QUOTA = re.compile(r"weekly \w+ quota|quota of [\d.]+ hours", re.IGNORECASE)
_RESERVED = "currently running sessions are projected"
_HINTS = (
    (
        r"title is already in use",
        "Kaggle makes the slug from the title: choose another kernel.slug and title, or delete that notebook.",
    ),
    (
        r"less than \d+ megabyte|too large",
        "The bundle is too large for a kernel's source: narrow train.include, and carry data in a dataset.",
    ),
    (
        r"notebook not found",
        "The kernel isn't this account's, or was half created: look at it on kaggle.com, or choose another slug.",
    ),
    (r"verif|phone", "Verify the account (and its phone number) on kaggle.com, under Settings."),
    (r"docker", "kernel.docker_image must be an image that Kaggle knows."),
    (r"title", "A title has 5 to 50 characters, and gives the slug when lower-cased and hyphenated."),
)


def refusal(words: str, status: int, what: str) -> Refused:
    """The error for a refused push.

    Args:
        words: Kaggle's message, on one line.
        status: Of the answer; most refusals come as 200.
        what: Names the push, e.g. ``the push of me/x``.
    """
    message = f"Kaggle refused {what}: {words}"
    if cap := _CAP.search(words):
        return SessionCap(message, limit=int(cap[1]))
    if _QUOTA.search(words):
        return QuotaExhausted(message, reserved=_RESERVED in words)
    for pattern, hint in _HINTS:
        if re.search(pattern, words, re.IGNORECASE):
            return Refused(message, hint=hint)
    return Refused(message, hint=_BY_STATUS.get(status))


_BY_STATUS = {
    403: "The account needs to be verified on kaggle.com, or the kernel isn't its own.",
    404: "The kernel or one of its sources isn't there, or isn't this account's.",
    409: "A kernel of that slug or title exists: choose another slug and title.",
    413: "The bundle is too large for a kernel's source: narrow train.include, and carry data in a dataset.",
}
