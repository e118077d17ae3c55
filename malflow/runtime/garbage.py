"""Fewer runs of Python's cyclic garbage collector while records are processed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["rarer_collections"]

_DEFAULTS = ((700, 10, 10), (2000, 10, 0), (2000, 10, 10), (700, 10, 0))
"""Python's default thresholds."""

_ALLOCATIONS = 50_000
"""How many more objects may be allocated than freed before the youngest generation is collected."""

_lock = Lock()
_users = 0
"""The contexts that are open now; the last one to close restores the thresholds."""

_before: tuple[int, int, int] | None = None


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Limit the garbage collector to one run in 50,000 allocations within the context.

    Records and results are many small objects that live for a while and have no cycles. By default, Python scans them
    once in 700 allocations. That is slow if there are many results. The thresholds are restored when the last of
    several overlapping contexts ends; thresholds set by the user stay.
    """
    global _users, _before  # noqa: PLW0603 - the process has one collector
    with _lock:
        _users += 1
        if _users == 1:
            found = gc.get_threshold()
            _before = found if found in _DEFAULTS else None
            if _before is not None:
                gc.set_threshold(_ALLOCATIONS, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _before is not None and gc.get_threshold()[0] == _ALLOCATIONS:
                gc.set_threshold(*_before)
