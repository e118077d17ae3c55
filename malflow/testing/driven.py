"""Runs, in this process or in worker processes, whose ticks and snapshots are triggered one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from malflow.engine.idle_epochs import QuietSources
from malflow.engine.parts.places import PartMove, Parts, Place, only, places_of
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import states_of
from malflow.engine.states.loading import load_into
from malflow.engine.ticks import Ticks, first_limit
from malflow.engine.workers import Workers
from malflow.errors import release_all
from malflow.failures import Replay
from malflow.runtime.coordination.snapshots import RunSnapshots
from malflow.runtime.processes.host import ProcessesHost, pickled_program
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.snapshot.persistence import NoPersistence, Persistence, RestoredState, RestoreOptions
from malflow.states.keyed import Delta, StateDelta

__all__ = [
    "DrivenProcesses",
    "DrivenRun",
]

_ANY_SIZE = 1 << 62
"""The limit of the state that moves with parts. Tests decide themselves whether parts move."""


class DrivenRun(Workers):
    """The workers of a program, with their ticks and snapshots.

    Args:
        program: the program.
        parallelism: the number of workers in each stage.
        tracked: whether to track changes for `deltas` and snapshots.
        debug: whether to run checks that are too slow for normal runs.
        persistence: the store of snapshots, if any.
        start: how the run restores state.

    Attributes:
        ticks: the ticks.
        sinks: the sinks.
        snapshots: the snapshots.
    """

    def __init__(
        self,
        program: Program,
        *,
        parallelism: int,
        tracked: bool = True,
        debug: bool = False,
        persistence: Persistence | None = None,
        start: RestoreOptions | None = None,
    ) -> None:
        super().__init__(program, parallelism=parallelism, tracked=tracked, debug=debug)
        self.sinks = RunSinks(program.sinks, policy=program.policy)
        self.ticks = Ticks(program, self.parts, self.listed, first_limit=first_limit(debug=debug))
        host = SingleThreadHost(program, self.sinks, parallelism=parallelism, tracked=tracked, workers=self)
        self.snapshots = RunSnapshots(
            NoPersistence() if persistence is None else persistence,
            states_of(program),
            RestoreOptions() if start is None else start,
            host,
            self.ticks,
            self.sinks,
        )
        self._host = host

    @property
    def is_finished(self) -> bool:
        """Whether every source has emitted its last record."""
        return self.ticks.is_finished

    def load_snapshot(
        self,
        tick: int,
        parallelism: int,
        states: dict[str, dict[int, dict[Any, Any]]],
        versions: Mapping[str, int],
        placements: Mapping[str, str | None],
    ) -> None:
        """Load the state of a run after a tick; see `Workers.load`."""
        self.sinks.restore(states)
        ours = {name: it for name, it in states.items() if name not in self.sinks.names}
        restored = RestoredState(0, tick, parallelism, ours, dict(versions), dict(placements))
        load_into(self, self._program, restored)
        self.ticks.place(self.parts, self.listed)
        self.ticks.number = tick

    def resume(self) -> RestoredState | None:
        """Claim the job, restore its last snapshot, and build the readers; return the restored state."""
        restored = self.snapshots.restore()
        self.snapshots.take_over()
        self._host.open(self.ticks.number)
        self.snapshots.begin()
        self.ticks.start(self.live)
        return restored

    def open(self) -> None:
        """Build the readers of the parts."""
        super().open()
        self.ticks.start(self.live)

    def tick(self, replays: Sequence[Replay] = ()) -> int:
        """Poll every source once, carry the records through every stage, and return their number.

        Args:
            replays: requests to replay dead letters, which are served first.
        """
        tick = self.ticks.begin(replays=tuple(replays))
        self.ticks.end(tick, self.run(tick))
        if self.ticks.polled:
            self.sinks.note_records()
        return self.ticks.polled

    def end(self) -> None:
        """Send the epoch `MAX` through the dataflow."""
        tick = self.ticks.begin(final=True)
        self.ticks.end(tick, self.run(tick))

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers; see `Workers.rescale`."""
        super().rescale(parallelism)
        self.ticks.place(self.parts, self.listed)
        if self._is_open:
            self.ticks.start(self.live)

    def move_parts(self, move: PartMove) -> None:
        """Continue with parts on another worker; a tick must follow before the next snapshot, as in a run."""
        self._host.move_parts(move, _ANY_SIZE)
        self.ticks.move(self.parts, move, self.live)

    def add_parts(self, new: Mapping[str, Sequence[Any]]) -> None:
        """Continue with parts of sources that have appeared; see `Workers.add_parts`."""
        super().add_parts(new)
        self.ticks.add(self.parts, places_of(only(self.parts, new)))

    def close(self, error: BaseException | None = None) -> None:
        """Close the operators, then the snapshots; errors are noted in `error`."""
        release_all((partial(super().close, error), partial(self.snapshots.close, error)), error)

    def continue_ticks(self, quiet: QuietSources, finished: frozenset[Place]) -> None:
        """Continue as if this run had executed the ticks of an earlier one, with no time in between.

        Args:
            quiet: the quiet sources after the last tick.
            finished: the sources and workers that had finished before it.
        """
        self.ticks.resume(quiet, finished)
        self.ticks.follow(self.live, self.make_up_ticks(finished))


_PROCESSES = 2
"""The fewest processes between which records are exchanged; more only take longer to start."""


class DrivenProcesses:
    """Two worker processes of a program, with their ticks and snapshots; used as a `DrivenRun`.

    Args:
        program: the program.
        parallelism: the number of workers in each stage.
        persistence: the store of snapshots.
        start: how the run restores state.

    Attributes:
        ticks: the ticks.
        sinks: the sinks in this process.
        snapshots: the snapshots.
    """

    def __init__(
        self,
        program: Program,
        *,
        parallelism: int,
        persistence: Persistence,
        start: RestoreOptions | None = None,
    ) -> None:
        options = ProcessOptions(
            processes=_PROCESSES, parallelism=parallelism, persistence=persistence, start_method="forkserver"
        )
        self.sinks = RunSinks(driver_sinks(program), policy=program.policy)
        self._host = ProcessesHost(program, pickled_program(program), self.sinks, options)
        self.ticks = Ticks(program, self._host.parts, self._host.listed)
        self.snapshots = RunSnapshots(
            persistence,
            states_of(program),
            RestoreOptions() if start is None else start,
            self._host,
            self.ticks,
            self.sinks,
        )

    @property
    def parallelism(self) -> int:
        """The number of workers."""
        return self._host.parallelism

    @property
    def parts(self) -> Parts:
        """The parts of each source that each worker holds."""
        return self._host.parts

    def resume(self) -> RestoredState | None:
        """Claim the job, restore its last snapshot, and start the processes; return the restored state."""
        restored = self.snapshots.restore()
        self.snapshots.take_over()
        self._host.open(self.ticks.number)
        self.snapshots.begin()
        self.ticks.start(self._host.live())
        return restored

    def tick(self, replays: Sequence[Replay] = ()) -> int:
        """Poll every source once, carry the records through every stage, and return their number.

        Args:
            replays: requests to replay dead letters; they are served first.
        """
        tick = self.ticks.begin(replays=tuple(replays))
        self.ticks.end(tick, self._host.run(tick))
        if self.ticks.polled:
            self.sinks.note_records()
        return self.ticks.polled

    def end(self) -> None:
        """Send the epoch `MAX` through the dataflow."""
        tick = self.ticks.begin(final=True)
        self.ticks.end(tick, self._host.run(tick))

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers; with the same one, nothing moves, as in a run."""
        if parallelism == self.parallelism:
            return
        self._host.rescale(parallelism)
        self.ticks.place(self.parts, self._host.listed)
        self.ticks.start(self._host.live())

    def move_parts(self, move: PartMove) -> None:
        """Continue with parts on another worker; a tick must follow before the next snapshot, as in a run."""
        self._host.move_parts(move, _ANY_SIZE)
        self.ticks.move(self.parts, move, self._host.live())

    def continue_ticks(self, quiet: QuietSources, finished: frozenset[Place]) -> None:
        """Continue as if this run had executed the ticks of an earlier one, with no time in between.

        Args:
            quiet: the quiet sources after the last tick.
            finished: the sources and workers that had finished before it.
        """
        self.ticks.resume(quiet, finished)
        self.ticks.follow(*self._host.make_up_ticks(finished))

    def states(self) -> dict[str, dict[int, Mapping[Any, Any]]]:
        """Return copies of all states, by name and worker."""
        states: dict[str, dict[int, Mapping[Any, Any]]] = {}
        for (worker, name), state in self._host.states().items():
            states.setdefault(name, {})[worker] = state
        return states

    def deltas(self, whole: bool = True) -> Sequence[StateDelta]:
        """Return all state."""
        del whole
        states = self._host.states().items()
        return [StateDelta(*place, Delta(state, whole=True), len(state)) for place, state in states]

    def close(self, error: BaseException | None = None) -> None:
        """End the processes, then close the snapshots; errors are noted in `error`."""
        release_all((partial(self._host.close, error), partial(self.snapshots.close, error)), error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        self.close(error)
