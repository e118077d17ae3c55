"""The end of a process, as far as a test can have it."""

__all__ = ["Crash"]


class Crash(BaseException):
    """A process died here. It is no `Exception`, so that nothing on the way swallows it and goes on."""
