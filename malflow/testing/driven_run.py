"""A run in this process whose ticks, snapshots and rescales are triggered one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from malflow.engine.idle_epochs import QuietSources
from malflow.engine.parts import Place, place_parts, places_of
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import states_of
from malflow.engine.ticks import Ticks, first_limit
from malflow.engine.workers import Workers
from malflow.errors import release_all
from malflow.failures import Replay
from malflow.runtime.coordination.snapshots import RunSnapshots
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.snapshot.persistence import NoPersistence, Persistence, RestoredState, RestoreOptions

__all__ = ["DrivenRun"]


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
        self.ticks = Ticks(program, self.parts, first_limit=first_limit(debug=debug))
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
        self.load(RestoredState(0, tick, parallelism, ours, dict(versions), dict(placements)))
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
        self.ticks.place(self.parts)
        if self._is_open:
            self.ticks.start(self.live)

    def add_parts(self, new: Mapping[str, Sequence[Any]]) -> None:
        """Continue with parts of sources that have appeared; see `Workers.add_parts`."""
        super().add_parts(new)
        self.ticks.add(self.parts, places_of(place_parts(new, range(self.parallelism))))

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
