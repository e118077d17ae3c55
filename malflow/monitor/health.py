"""Whether a run is alive, and whether it is ready: for tools that restart it or wait for it."""

from __future__ import annotations

import time
from typing import Final

from malflow.monitor.meters import Meters
from malflow.runtime.progress.progress import Progress

__all__ = ["is_alive", "is_ready"]

_LONGEST_TICK: Final = 60.0
"""The most seconds since the last tick of a live run. Half of it lets a probe restart runs with slow external calls,
double leaves a hung one for another minute."""

_INTERVALS: Final = 3
"""The number of snapshot intervals for which a record may be in no snapshot."""


def is_alive(progress: Progress, meters: Meters) -> bool:
    """Whether a run does not hang: its last tick ended less than a minute ago, or it has a reason to wait.

    Args:
        progress: its progress.
        meters: the measurements of its monitor.
    """
    match progress.status:
        case "running" | "stopping":
            return time.monotonic() - meters.tick_at < _LONGEST_TICK
        case "starting" | "resting" | "blocked" | "restarting" | "ended":
            return True
        case _:
            return False


def is_ready(progress: Progress, meters: Meters) -> bool:
    """Whether a run has its state, is alive, and has no record that has waited too long for a snapshot.

    Args:
        progress: its progress.
        meters: the measurements of its monitor.
    """
    if progress.status not in ("running", "resting") or not is_alive(progress, meters):
        return False
    unsaved, interval = meters.unsaved_since, progress.snapshot_interval
    return unsaved is None or interval is None or time.monotonic() - unsaved < _INTERVALS * interval
