"""The options of a run in processes, and the number of cores that it may use."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from malflow.checks import check_choice, check_whole_number
from malflow.runtime.options import RunArguments, RunOptions
from malflow.runtime.processes.fork_server import fork
from malflow.runtime.processes.starting import Launch, spawn
from malflow.runtime.restarts import RestartPolicy
from malflow.snapshot.backend import FsspecBackend

__all__ = [
    "ProcessArguments",
    "ProcessOptions",
    "usable_cores",
]

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


_LAUNCHES: Final[Mapping[str, Launch]] = {"spawn": spawn, "forkserver": fork}


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(RunOptions):
    """The options of a run in processes, documented at `malflow.MultiProcessRuntime`.

    Raises:
        GraphError: if an option is not valid.
    """

    processes: int | None = None
    restart: RestartPolicy | None = None
    start_method: Literal["spawn", "forkserver"] = "spawn"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        if self.processes is not None:
            other = "None for the number of usable cores; 0 runs in this process"
            check_whole_number("MultiProcessRuntime", "processes", self.processes, least=0, or_else=other)
        check_choice("MultiProcessRuntime", "start_method", self.start_method, tuple(_LAUNCHES))

    @property
    def most(self) -> int:
        """The maximum number of processes."""
        return usable_cores() if self.processes is None else self.processes

    @property
    def workers(self) -> int:
        """The initial number of workers."""
        return self.parallelism or self.most

    @property
    def first_workers(self) -> int:
        """The number of workers that a run begins with; one without processes."""
        return self.workers or 1

    @property
    def launch(self) -> Launch:
        """Launches a worker process."""
        return _LAUNCHES[self.start_method]

    @property
    def keeps_in_memory(self) -> bool:
        """Whether snapshots may be in the memory of this process. No other one reaches it."""
        backend = self.persistence
        return isinstance(backend, FsspecBackend) and (backend.is_in_memory or backend.has_given_filesystem)


class ProcessArguments(RunArguments, total=False):
    """The `ProcessOptions` that a runtime takes by keyword only."""

    processes: int | None
    restart: RestartPolicy | None
    start_method: Literal["spawn", "forkserver"]
