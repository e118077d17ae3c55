"""The number of cores that this process may use."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["usable_cores"]

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_OLD_QUOTA = Path("/sys/fs/cgroup/cpu")


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its affinity and, on Linux, its group's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota() -> float | None:
    """Return the cores that the control group (cgroup) allows, of either version; None without a limit."""
    with suppress(OSError, ValueError):
        allowed, period = _QUOTA.read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    with suppress(OSError, ValueError):
        allowed_time = int((_OLD_QUOTA / "cpu.cfs_quota_us").read_text())
        if allowed_time > 0:
            return allowed_time / int((_OLD_QUOTA / "cpu.cfs_period_us").read_text())
    return None
