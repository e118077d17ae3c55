"""What a run changes in its process for a while: handlers of signals, and garbage collections.

A child that inherited the handler of a run would take a signal for a stop of its copy of the run, and not end:
`multiprocessing.Pool` ends its children by SIGTERM, and waits for them.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from malflow.failures import stops_if

__all__ = [
    "BROKEN_PIPE",
    "handle_stops",
    "handling",
    "rarer_collections",
    "signals_stop",
    "stops_blocked",
    "take_signal",
]

BROKEN_PIPE = 128 + 13
"""The exit code of a program that SIGPIPE has ended."""

STOPS: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a run: the coordinator handles them."""

Handler: TypeAlias = Callable[[int, FrameType | None], object]


class _Taken(NamedTuple):
    """A signal that has a handler of malflow's.

    Attributes:
        number: the signal.
        handler: the handler.
        before: that of before, as `signal.signal` takes it.
    """

    number: int
    handler: Handler
    before: Any


_TAKEN: Final[list[_Taken]] = []
_MASKS: Final = threading.local()


def take_signal(number: int, handler: Handler, before: Any = None) -> None:
    """Handle a signal in this process from now on.

    Args:
        number: the signal.
        handler: the handler.
        before: the handler of children that are forked; None for the present one.
    """
    present = signal.signal(number, handler)
    _TAKEN.append(_Taken(number, handler, present if before is None else before))


@contextmanager
def handling(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Handle signals in this process within the context, unless the script sets another handler meanwhile."""
    first = len(_TAKEN)
    for number in numbers:
        take_signal(number, handler)
    taken = _TAKEN[first:]
    try:
        yield
    finally:
        for it in reversed(taken):
            _give_back(it)


@contextmanager
def stops_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread and in processes that it launches, until these handle them.

    A new interpreter would die of a signal to the whole process group.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def handle_stops(handler: Callable[[int, FrameType | None], None]) -> None:
    """Handle the signals that `stops_blocked` has blocked, in the new process; its children have the usual handlers."""
    for number, usual in zip(STOPS, (signal.default_int_handler, signal.SIG_DFL), strict=True):
        take_signal(number, handler, usual)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _give_back(taken: _Taken) -> None:
    if signal.getsignal(taken.number) is taken.handler:
        signal.signal(taken.number, taken.before)
    if taken in _TAKEN:
        _TAKEN.remove(taken)


def _before_fork() -> None:
    """Hold the signals back: a child that gets one at once must not handle it as this process does."""
    if _TAKEN:
        _MASKS.before = signal.pthread_sigmask(signal.SIG_BLOCK, {it.number for it in _TAKEN})


def _after_fork() -> None:
    mask = _MASKS.__dict__.pop("before", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    for it in reversed([*_TAKEN]):
        _give_back(it)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)

_PATIENCE = 1.0
"""The seconds after a signal in which a tick may end without a word."""
_STILL = "stopping: the current tick has not ended yet; a second signal ends the run at once, without its last snapshot"
_log = logging.getLogger("malflow.runtime")


@contextmanager
def signals_stop(stop: Callable[[], object], is_stopping: Callable[[], bool]) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop, if called on the main thread, the only one that receives signals.

    A second signal, while the run is stopping, raises at once.

    Args:
        stop: stops the run.
        is_stopping: whether the run is stopping.

    Raises:
        KeyboardInterrupt, SystemExit: at a second signal.
    """
    if threading.current_thread() is not threading.main_thread():
        with stops_if(is_stopping):
            yield
        return

    patience = threading.Timer(_PATIENCE, _log.warning, [_STILL])
    patience.daemon = True

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if is_stopping() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if is_stopping():
            raise SystemExit(128 + number)
        stop()
        if patience.ident is None:
            patience.start()

    try:
        with handling((signal.SIGINT, signal.SIGTERM), on_signal), stops_if(is_stopping):
            yield
    finally:
        patience.cancel()


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
