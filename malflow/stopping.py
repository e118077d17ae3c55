"""Whether the run is asked to stop, for those who wait for a server meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_stopping", "stops_if"]

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("malflow_is_stopping", default=None)


@contextmanager
def stops_if(asked: Callable[[], bool]) -> Iterator[None]:
    """Answer `is_stopping` on this thread by a function, within the context."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def is_stopping() -> bool:
    """Whether the run on this thread is asked to stop: a wait for a server that is away must not hold it up."""
    asked = _asked.get()
    return asked is not None and asked()
