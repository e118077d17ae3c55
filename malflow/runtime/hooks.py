"""The hook of a command that runs a script, which may replace each run; and the listeners that every run gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, TypeAlias

from malflow.errors import GraphError
from malflow.events import Listener
from malflow.runtime.descendants import may_run

__all__ = ["Addition", "Call", "Hook", "add_to_all_runs", "chosen_by_hook", "hooked", "of_all_runs"]

Call: TypeAlias = Literal["execute", "start"]
"""The method of a runtime that was called."""

Hook: TypeAlias = Callable[[Any, Call], Any]
"""Returns the runtime that is to run in place of the one that was called, possibly the same; None to run nothing.

What it raises leaves the call, so that the script unwinds. It is called on the thread of the caller, which need not be
the main one.
"""

Addition: TypeAlias = Callable[[Sequence[Listener]], Sequence[Listener]]
"""Returns the listeners of a run, given its own."""


def _monitored(own: Sequence[Listener]) -> Sequence[Listener]:
    """Add a monitor to the listeners of a run, if the environment asks for it."""
    if not os.environ.get("MALFLOW_CONTROL"):
        return own
    # few programs need the monitor, and it stands above the runtimes
    monitored: Addition = import_module("malflow.monitor.monitor").monitored
    return monitored(own)


_additions: list[Addition] = [_monitored]
_installed: list[Hook] = []  # of the module, not of a context: scripts call execute() in threads of their own


def chosen_by_hook(runtime: Any, call: Call) -> Any:
    """Return the runtime that runs if `call` of one was called; None if nothing is to run.

    Raises:
        GraphError: if a command that only looked has started this process, and has ended.
    """
    chosen = _installed[0](runtime, call) if _installed else runtime
    return chosen if chosen is not None and may_run(call) else None


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Within the context, call a hook before each run of this process.

    Raises:
        GraphError: if there is a hook already, as in a script that is run by a command and calls another one.
    """
    if _installed:
        raise GraphError("a command of malflow runs in this process already; run the other one in a process of its own")
    _installed.append(hook)
    try:
        yield
    finally:
        _installed.remove(hook)


def add_to_all_runs(addition: Addition) -> None:
    """Call something at the start of each run of this process. It may add listeners."""
    _additions.append(addition)


def of_all_runs(own: Sequence[Listener]) -> Sequence[Listener]:
    """Return the listeners of a run: its own, and those that every run gets."""
    for addition in _additions:
        own = addition(own)
    return own
