"""Whether the run has been asked to stop, for code that waits for a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_stopping", "stops_if"]

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("malflow_is_stopping", default=None)


@contextmanager
def stops_if(asked: Callable[[], bool]) -> Iterator[None]:
    """Within the context, let a function answer `is_stopping` on this thread."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def is_stopping() -> bool:
    """Whether the run on this thread has been asked to stop; a wait for an unavailable server must then end."""
    asked = _asked.get()
    return asked is not None and asked()
