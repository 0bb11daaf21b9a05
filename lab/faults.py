"""The only kind of error that the lab raises. Only `__main__` prints it."""


class LabError(Exception):
    """What was found and what is allowed, with a hint on what to do next.

    exit_status: 2 for wrong words on the command line, 1 otherwise.
    """

    def __init__(self, message: str, hint: str = "", exit_status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_status = exit_status


class UsageError(LabError):
    """A wrong word on the command line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, exit_status=2)
