"""A simulated process crash."""

__all__ = ["Crash"]


class Crash(BaseException):
    """A simulated process crash. It is not an `Exception`, so that ``except Exception`` does not swallow it."""
