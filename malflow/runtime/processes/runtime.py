"""The runtime in several processes of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.errors import GraphError
from malflow.runtime.attempts import Restarts
from malflow.runtime.host import TickingHost
from malflow.runtime.local import LocalRuntime
from malflow.runtime.options import NOTHING, RuntimeBuilder, lists_options, options_of
from malflow.runtime.processes.host import ProcessesHost, pickled_program
from malflow.runtime.processes.options import ProcessArguments, ProcessOptions
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider

__all__ = ["MultiProcessRuntime", "MultiProcessRuntimeBuilder"]


class MultiProcessRuntime(LocalRuntime):
    """Run a dataflow on all cores of this machine, in processes that exchange records; needs no Java and no server.

    The coordinator, listeners, and sinks that are `on_driver` are in this process, sources and everything else in the
    worker processes, so the dataflow must be picklable: see `malflow.SparkRuntime` (it has the same requirement). If a
    process dies, the run continues from its last snapshot.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it receives; called once per execution, in
            this process.
        persistence: where snapshots are saved, such as a `malflow.snapshot.FsspecBackend`. The worker processes write
            the data files themselves if they can reach the store.
        snapshots: the interval between snapshots. With None, one is taken only at the end of the run and on request.
        processes: the number of worker processes; None for the number of cores that this process may use, by its
            affinity and its control group. With 0, the workers run in this process, for a debugger.
        parallelism: the number of logical workers. They are spread evenly over the processes if it is a multiple of
            their number; None for one per process. With fewer workers than processes, fewer processes are started.
        start_method: ``"spawn"``, the default, starts a new interpreter for each process, ``"forkserver"`` one that
            forks all processes, including later runs; it is faster for many short runs.
        restart: the limits of restarts after the death of a process, or a failure of the store.
        restore, recovery, renamed, allow_dropped_state: as in `malflow.SingleThreadRuntime`.
        debug: as in `malflow.SingleThreadRuntime`. A value that changes after it was sent to another process is not an
            error: the other process does not see the change.
        listeners: as in `malflow.SingleThreadRuntime`; they are called in this process.
        sinks, at_end, move_parts, part_assignment, pinned: as in `malflow.SingleThreadRuntime`.

    Raises:
        GraphError: if an argument is not valid.
    """

    _options: ProcessOptions

    _kind = "processes"

    @lists_options(ProcessOptions)
    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = NOTHING,
        snapshots: Duration | None = None,
        parallelism: int | None = None,
        **options: Unpack[ProcessArguments],
    ) -> None:
        first = {"persistence": persistence, "snapshots": snapshots, "parallelism": parallelism}
        super().__init__(build_dataflow, options_of(self, ProcessOptions, **first, **options))
        self._pickled: tuple[Program, bytes] | None = None

    @classmethod
    def builder(cls) -> MultiProcessRuntimeBuilder:
        """Return a builder, as in Malstrom."""
        return MultiProcessRuntimeBuilder()

    def _built(self) -> Program:
        program = super()._built()
        if self._options.most:
            self._pickled = program, pickled_program(program)
        return program

    def _sinks(self, program: Program) -> RunSinks:
        return RunSinks(driver_sinks(program) if self._options.most else program.sinks, policy=program.policy)

    def _restarts(self, program: Program) -> Restarts | None:
        options = self._options
        if not options.most:
            return None
        return Restarts(program, options.restart, self._slot.current, keeps=options.persistence.is_enabled)

    def _host(self, program: Program, sinks: RunSinks, options: Any) -> TickingHost:
        if not self._options.most:
            return SingleThreadHost(
                program, sinks, parallelism=options.parallelism or 1, tracked=self._keeps, debug=options.debug
            )
        if self._pickled is None or self._pickled[0] is not program:
            raise GraphError("the program was not built by this runtime")
        return ProcessesHost(program, self._pickled[1], sinks, options)


class MultiProcessRuntimeBuilder(RuntimeBuilder):
    """Configure a `MultiProcessRuntime` step by step."""

    def processes(self, processes: int | None) -> MultiProcessRuntimeBuilder:
        """Set the number of worker processes."""
        return self._with("processes", processes)

    def start_method(self, method: Literal["spawn", "forkserver"]) -> MultiProcessRuntimeBuilder:
        """Set how processes are started."""
        return self._with("start_method", method)

    def restart(self, policy: RestartPolicy) -> MultiProcessRuntimeBuilder:
        """Set the limits of restarts after the death of a process."""
        return self._with("restart", policy)

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> MultiProcessRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return MultiProcessRuntime(build_dataflow, **self._options)
