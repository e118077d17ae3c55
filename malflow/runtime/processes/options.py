"""The options of a run in processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from malflow.checks import check_choice, check_whole_number
from malflow.runtime.options import RunOptions
from malflow.runtime.processes.cores import usable_cores
from malflow.runtime.processes.fork_server import fork
from malflow.runtime.processes.spawning import spawn
from malflow.runtime.processes.starting import Launch
from malflow.runtime.restarts import RestartPolicy
from malflow.snapshot.backend import FsspecBackend

__all__ = ["ProcessOptions"]

_LAUNCHES: Final[Mapping[str, Launch]] = {"spawn": spawn, "forkserver": fork}


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(RunOptions):
    """The options of a run in processes, documented at `malflow.MultiProcessRuntime`.

    Raises:
        GraphError: if an option is not valid.
    """

    processes: int | None = None
    restart: RestartPolicy | None = None
    start_method: str = "spawn"

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
