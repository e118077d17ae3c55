"""Fewer runs of Python's cyclic garbage collector while records flow."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["rarer_collections"]

_DEFAULTS = ((700, 10, 10), (2000, 10, 0), (2000, 10, 10), (700, 10, 0))
"""The thresholds that Python starts with."""

_ALLOCATIONS = 50_000
"""How many objects may be allocated, beyond those freed, before the youngest are looked through."""

_lock = Lock()
_users = 0
_before: tuple[int, int, int] | None = None


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Limit the garbage collector to one run in 50,000 allocations for the time of the context.

    Records and results are many small objects that live for a while and are in no cycles. Python looks through them
    once in 700 allocations, which takes long where many results are made. The thresholds are restored
    when the last of the contexts ends that overlap; thresholds that the user has set are left alone.
    """
    global _users, _before  # noqa: PLW0603 - the collector is one for the process
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
