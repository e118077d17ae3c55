"""Checks of what a runtime is asked to do, the same for all of them."""

from __future__ import annotations

from datetime import timedelta

from malflow.callables import deferred
from malflow.diagnostics import describe, shown
from malflow.errors import GraphError, require_methods
from malflow.snapshot.persistence import NoPersistence, Persistence, Start

__all__ = ["NOTHING", "check_build", "check_interval", "check_parallelism", "check_start"]

NOTHING = NoPersistence()
"""The persistence of a runtime that was given none."""


def check_interval(snapshots: object, persistence: Persistence) -> float | None:
    """Check how often to take snapshots of a run, and whether there is a place for them; return the seconds.

    Raises:
        GraphError: if it is no time, or no place was given.
    """
    require_methods(persistence, "persistence", ("open",))
    if snapshots is None:
        return None
    if not isinstance(snapshots, timedelta) or snapshots <= timedelta(0):
        raise GraphError(f"snapshots needs a timedelta above zero; got {shown(snapshots)}")
    if persistence is NOTHING:
        raise GraphError(
            f"snapshots={snapshots!r} has nowhere to keep them; give persistence=FsspecBackend(...), or "
            "NoPersistence() to keep nothing"
        )
    return snapshots.total_seconds()


def check_build(build_dataflow: object, runtime: str) -> None:
    """Check the function that builds the dataflow.

    Raises:
        GraphError: if it is none, or one of which nothing runs when it is called, which would build nothing.
    """
    if not callable(build_dataflow):
        raise GraphError(f"{runtime} needs a function that builds the dataflow; got {shown(build_dataflow)}")
    kind = deferred(build_dataflow)
    if kind is not None:
        raise GraphError(
            f"{runtime} needs a plain function that builds the dataflow; got {kind}, {describe(build_dataflow)}, of "
            "which nothing runs when it is called"
        )


def check_parallelism(parallelism: object, name: str = "parallelism") -> int:
    """Check a number of workers, or of something else of which there is one at least.

    Raises:
        GraphError: if it is no whole number of one or more.
    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise GraphError(f"{name} needs a whole number of one or more; got {shown(parallelism)}")
    return parallelism


def check_start(start: Start) -> None:
    """Check how a run is to begin.

    Raises:
        GraphError: if an option is not what it must be.
    """
    restore = start.restore
    if restore is not None and restore != "latest" and (isinstance(restore, bool) or not isinstance(restore, int)):
        raise GraphError(f"restore needs 'latest', the id of a snapshot, or None; got {shown(restore)}")
    if start.recovery not in ("strict", "previous"):
        raise GraphError(f"recovery is 'strict' or 'previous'; got {shown(start.recovery)}")
    if isinstance(start.allow_dropped_state, str):
        raise GraphError(f"allow_dropped_state needs a list of names; got {start.allow_dropped_state!r}")
