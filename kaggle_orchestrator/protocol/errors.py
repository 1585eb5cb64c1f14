"""The root of every error kgo raises on purpose."""


class KgoError(Exception):
    """Something went wrong that the message explains.

    Attributes:
        message: What happened and why, one or two sentences.
        hint: What to do next, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
