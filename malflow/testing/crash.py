"""A simulated process crash."""

__all__ = ["Crash"]


class Crash(BaseException):
    """A simulated process crash. It is not an `Exception`. ``except Exception`` thus does not swallow it."""
