"""Checks of the options that all runtimes share."""

from __future__ import annotations

from datetime import timedelta

from malflow.callables import deferred
from malflow.diagnostics import describe, shown
from malflow.errors import GraphError, require_methods
from malflow.snapshot.persistence import NoPersistence, Persistence, RestoreOptions

__all__ = ["NOTHING", "check_build", "check_interval", "check_parallelism", "check_start"]

NOTHING = NoPersistence()
"""The default persistence of a runtime."""


def check_interval(snapshots: object, persistence: Persistence) -> float | None:
    """Check the interval between snapshots and that there is a persistence for them; return the seconds.

    Raises:
        GraphError: if the interval is not a positive timedelta, or no persistence was given.
    """
    require_methods(persistence, "persistence", ("open",))
    if snapshots is None:
        return None
    if not isinstance(snapshots, timedelta) or snapshots <= timedelta(0):
        raise GraphError(f"snapshots needs a timedelta above zero; got {shown(snapshots)}")
    if persistence is NOTHING:
        raise GraphError(
            f"snapshots={snapshots!r} needs a persistence; pass persistence=FsspecBackend(...), or NoPersistence() to "
            "keep nothing"
        )
    return snapshots.total_seconds()


def check_build(build_dataflow: object, runtime: str) -> None:
    """Check the function that builds the dataflow.

    Raises:
        GraphError: if it is not callable, or is a generator or coroutine function, whose call would run nothing.
    """
    if not callable(build_dataflow):
        raise GraphError(f"{runtime} needs a function that builds the dataflow; got {shown(build_dataflow)}")
    kind = deferred(build_dataflow)
    if kind is not None:
        raise GraphError(
            f"{runtime} needs a plain function that builds the dataflow; got {kind}, {describe(build_dataflow)}, whose "
            "body does not run when it is called"
        )


def check_parallelism(parallelism: object, name: str = "parallelism") -> int:
    """Check a number of workers, or another positive integer.

    Raises:
        GraphError: if it is not a positive integer.
    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise GraphError(f"{name} must be a positive integer; got {shown(parallelism)}")
    return parallelism


def check_start(start: RestoreOptions) -> None:
    """Check the options for restoring state.

    Raises:
        GraphError: if an option is not valid.
    """
    restore = start.restore
    if restore is not None and restore != "latest" and (isinstance(restore, bool) or not isinstance(restore, int)):
        raise GraphError(f"restore needs 'latest', the id of a snapshot, or None; got {shown(restore)}")
    if start.recovery not in ("strict", "previous"):
        raise GraphError(f"recovery must be 'strict' or 'previous'; got {shown(start.recovery)}")
    if isinstance(start.allow_dropped_state, str):
        raise GraphError(f"allow_dropped_state needs a list of names; got {start.allow_dropped_state!r}")
