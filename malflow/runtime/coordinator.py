"""The coordinator of a run, on every runtime: what happens between two ticks, and when."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from malflow.engine.discovery import Discovery
from malflow.engine.parts import place_parts, places_of
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.rescale import refuse_local
from malflow.engine.sinks import RunSinks
from malflow.engine.states import states_of
from malflow.engine.ticks import Ticks
from malflow.errors import OperatorError, SnapshotError
from malflow.event_time.tick import Tick
from malflow.events import DiscoveryFailed, PartsDiscovered, Rescaled, RescaleRefused, TickFinished
from malflow.operators.waiting import OperatorTime, Waiting, merge_held
from malflow.runtime.answers import Request, abandon, fail
from malflow.runtime.host import Host, PartsChanged, Rescale, Step, TickingHost
from malflow.runtime.options import RunOptions
from malflow.runtime.progress import (
    Progress,
    counts_of,
    lag_of,
    lags_of,
    late_of,
    records_of,
    unread_late,
    written_of,
)
from malflow.runtime.requests import RunRequests
from malflow.runtime.snapshots import RunSnapshots
from malflow.runtime.starting import RestartGuard, started
from malflow.runtime.time_table import explain
from malflow.runtime.time_watch import TimeWatch

__all__ = ["Coordinator", "drive"]

_SHORTEST_REST = 0.001
_LONGEST_REST = 0.05


class Coordinator:
    """Decides what a run does next; a host does it.

    Between two ticks it works in this order:

    1. *Check.* A snapshot that is done is announced, its sinks are committed, and its positions are confirmed to the
       readers; then the requests for it are answered. Whoever has the answer finds all of that done. This comes first,
       since a failed commit must end the run before anything else is begun.
    2. *Serve.* Requests for snapshots and rescales, in the order in which they were made. They come before the run's
       own business, so that a rescale that is asked for because of a new part finds the old workers.
    3. *End.* If every source has ended, or the run is to stop: the last snapshot, and the end of the input.
    4. *Discover.* Parts of sources that have appeared. A snapshot that is due then has them.
    5. *Explain* the run's time, if somebody asks, or now and then to see whether it stands still.
    6. *Keep.* A snapshot if one is due. It comes last, so that it has all that was changed before.
    7. *Pause*, if nothing came. A request cuts the pause short.

    Args:
        program: the program.
        host: the workers.
        sinks: the sinks that are in this process.
        options: the options of the run.
        requests: the requests to the run, and its listeners.
        guard: refuses a restart that would count records twice; None where nothing restarts the run.
        restarts: how often the run was restarted before.

    Attributes:
        ticks: the ticks of the run.
        snapshots: its snapshots.
        hurries: whether pauses are cut short; may be set from another thread, since the ticks are about to end.
    """

    def __init__(
        self,
        program: Program,
        host: Host,
        sinks: RunSinks,
        options: RunOptions,
        requests: RunRequests,
        *,
        guard: RestartGuard | None = None,
        restarts: int = 0,
    ) -> None:
        self.ticks = Ticks(program, host.parts)
        self.snapshots = RunSnapshots(
            options.persistence,
            states_of(program),
            options.restore_options,
            host,
            self.ticks,
            sinks,
            interval=options.interval,
            listeners=requests.listeners,
        )
        self.hurries = False
        self._program = program
        self._host = host
        self._sinks = sinks
        self._options = options
        self._requests = requests
        self._guard = guard
        self._restarts = restarts
        self._discovery = Discovery(program, host.listed)
        self._watch = TimeWatch()
        self._unread_late = unread_late(program)
        self._tick = Tick()
        self._asked: list[Request] = []
        self._rescaling: Request | None = None
        self._wants_times = False
        self._rest = _SHORTEST_REST

    # From any thread

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        ticks, counts = self.ticks, self.ticks.counts.copy()
        own = counts_of(self._program, counts, ticks.gauges)
        return Progress(
            tick=ticks.number,
            parallelism=self._host.parallelism,
            records=records_of(counts),
            polled=ticks.polled,
            snapshot=self.snapshots.snapshot,
            restarts=self._restarts,
            late=late_of(self._program, counts),
            lateness=dict(ticks.lateness),
            unfinished=ticks.unfinished,
            patterns={name: own[name] for name in self._program.patterns},
            lag=lag_of(ticks.lags),
            lag_by_part=lags_of(ticks.lags),
            counts=own,
        )

    # The run

    def restore(self) -> None:
        """Claim the job, and restore its last snapshot.

        Raises:
            SnapshotError: if it can't be read, does not fit the program, or is older than the last commit of a sink.
            OperatorError: if user code fails.
        """
        restored = self.snapshots.restore()
        if self._guard is not None:
            self._guard.check(None if restored is None else restored.snapshot)
        self.snapshots.take_over()
        self._requests.listeners.notify(started(self._program, self._host.parallelism, restored, self._restarts))

    def begin(self) -> Step | None:
        """Open the workers, and return the first step; None if there is nothing to do.

        Raises:
            OperatorError: if user code fails.
            SnapshotError: if a snapshot can't be written.
        """
        self._host.open(self.ticks.number)
        self.snapshots.begin()
        self.ticks.start(self._host.live())
        return self._end() if self._is_ending else self._next()

    def next(self, reports: Sequence[Report], seconds: float = 0.0) -> Step | None:
        """Handle the reports of a tick, whose output is with the sinks, and return the next step; None at the end.

        Args:
            reports: the reports of all workers and stages.
            seconds: how long the tick took.

        Raises:
            MalflowError: if the run can't continue.
        """
        tick = self._tick
        self._note(tick, reports, seconds)
        if tick.final:
            self.snapshots.finish_sinks()
            return None
        if tick.asks_held and self._is_kept:
            self._keep_open(_held_in(reports))
            return None
        return self._decide()

    def apply(self, change: Rescale | PartsChanged) -> Step | None:
        """Make a change that `next` returned, by the host, and return the step that follows.

        Raises:
            MalflowError: if the run can't continue.
        """
        if isinstance(change, Rescale):
            self._rescale(change)
        else:
            self._change_parts(change)
        return self._decide()

    def close(self, error: BaseException | None) -> None:
        """Close the snapshots, and answer the requests that were taken.

        Args:
            error: the error that ended the run, if any.
        """
        try:
            self.snapshots.close(error)
        finally:
            asked, self._asked = self._asked, []
            abandon(asked, error)
            if self._rescaling is not None:
                abandon([self._rescaling], error)

    def give_back(self) -> list[Request]:
        """Return the requests for snapshots that were taken and not begun, so that a restart can serve them."""
        asked, self._asked = self._asked, []
        return asked

    # After a tick

    def _note(self, tick: Tick, reports: Sequence[Report], seconds: float) -> None:
        ticks = self.ticks
        ticks.end(tick, reports)
        if ticks.polled:
            self._sinks.note_records()
        late = late_of(self._program, ticks.counts)
        self._watch.note_late(ticks.counts, late, ticks.lateness, self._unread_late)
        if tick.explains:
            self._explain(_times_in(reports))
        self._requests.listeners.notify(TickFinished(ticks.number, self._host.parallelism, ticks.polled, seconds))

    # Between two ticks

    def _decide(self) -> Step | None:
        snapshots = self.snapshots
        while True:
            snapshots.check()
            if self._sinks.reader_is_gone:
                self._requests.stop()
            if (step := self._serve()) is not None:
                return step
            if self._is_ending:
                return self._end()
            if (step := self._discover()) is not None:
                return step
            if self._requests.explanations or self._watch.is_due(self.ticks.clock.now):
                self._look()
            if snapshots.is_due and not snapshots.is_busy and not self._keep():
                return self._next(polls=not snapshots.is_blocked)
            if snapshots.is_blocked and not (self._wants_times or self.hurries):
                snapshots.wait(self._longer_rest())
                continue
            self._pause()
            if not self._is_ending:
                return self._next(polls=not snapshots.is_blocked)

    @property
    def _is_ending(self) -> bool:
        return self.ticks.is_finished or self._requests.stopping

    @property
    def _is_kept(self) -> bool:
        """Whether the input has ended, and open results are kept for the next run."""
        return self.ticks.is_finished and not self._requests.stopping and not self._options.finishes

    def _serve(self) -> Step | None:
        """Serve the requests, in their order; a snapshot waits for the one that is being written."""
        pending = self._requests.pending
        while pending or self._asked:
            if self._is_ending:
                self._take_last()
                return None
            if not self._asked and pending[0].parallelism is not None:
                if (step := self._serve_rescale()) is not None:
                    return step
                continue
            while pending and pending[0].parallelism is None:
                self._asked.append(pending[0])  # before it leaves the queue, lest a signal comes in between
                pending.popleft()
            if self.snapshots.is_busy:
                return None
            if not self._keep():
                return self._next(polls=not self.snapshots.is_blocked)
        return None

    def _take_last(self) -> None:
        """Take all requests: the last snapshot answers those for snapshots, and no rescale is made any more."""
        pending = self._requests.pending
        while pending:
            if pending[0].parallelism is None:
                self._asked.append(pending[0])
            else:
                abandon([pending[0]])
            pending.popleft()

    def _serve_rescale(self) -> Rescale | None:
        """Take the oldest request, which is for a rescale; return the step if there is one to take."""
        request = self._requests.pending.popleft()
        if request.parallelism is None or not request.answer.set_running_or_notify_cancel():
            return None
        tick = self.ticks.number
        if request.parallelism == self._host.parallelism:
            self._requests.listeners.notify(Rescaled(tick, request.parallelism, request.parallelism))
            request.answer.set_result(None)
            return None
        try:
            refuse_local(self._program)
        except SnapshotError as error:
            self._requests.listeners.notify(RescaleRefused(tick, request.parallelism, error))
            request.answer.set_exception(error)
            return None
        self._rescaling = request
        return Rescale(request.parallelism)

    def _rescale(self, change: Rescale) -> None:
        previous, request = self._host.parallelism, self._rescaling
        self._host.rescale(change.parallelism)
        self.ticks.place(self._host.parts)
        self.ticks.start(self._host.live())
        self._requests.listeners.notify(Rescaled(self.ticks.number, previous, change.parallelism))
        if request is not None:
            self._rescaling = None
            request.answer.set_result(None)

    def _discover(self) -> PartsChanged | None:
        """Find the sources whose parts have changed."""
        changes = {}
        for name, found in self._discovery.find():
            if isinstance(found, OperatorError):
                self._requests.listeners.notify(DiscoveryFailed(self.ticks.number, name, found))
            else:
                changes[name] = found
        return PartsChanged(changes) if changes else None

    def _change_parts(self, change: PartsChanged) -> None:
        self._host.change_parts(change.changes)
        new = {name: it.new for name, it in change.changes.items() if it.new}
        self.ticks.add(self._host.parts, places_of(place_parts(new, range(self._host.parallelism))))
        for name, parts in new.items():
            self._requests.listeners.notify(PartsDiscovered(self.ticks.number, name, tuple(parts)))

    def _keep(self, *, ending: bool = False) -> bool:
        """Begin a snapshot, for all that have asked for one; return whether that was possible before the next tick."""
        if not self._options.persistence.is_enabled:
            abandon(self._asked)
            self._asked.clear()
            return True
        try:
            made = self.snapshots.take(self._asked, ending=ending)
        except Exception as error:
            fail(self._asked, error)
            raise
        if made is not None:
            self._asked.clear()
        return made is not None

    def _explain(self, times: Mapping[int, Mapping[int, OperatorTime]]) -> None:
        now, ticks = self.ticks.clock.now, self.ticks
        rows = explain(self._program, times, ticks.heard, now)
        self._watch.note(now, rows, written_of(self._program, ticks.counts))
        self._requests.explain(now, rows)
        self._wants_times = False

    def _look(self) -> None:
        """Explain the run's time, now or with the next tick."""
        times = self._host.times()
        self._wants_times = times is None
        if times is not None:
            self._explain(times)

    # The end

    def _end(self) -> Step | None:
        """Return the step after the last tick that polled: one more for the host to tell what is open, or the final."""
        self._look()
        if not self._keep(ending=True):
            return self._next(polls=False)
        if self._requests.stopping:
            return None
        if self._is_kept:
            held = self._host.held()
            if held is None:
                return self._next(polls=False, asks_held=True)
            self._keep_open(held)
            return None
        self._requests.listeners.notify(self._options.input_ended(self.ticks.number, {}))
        return self._next(final=True)

    def _keep_open(self, held: Mapping[str, Waiting]) -> None:
        """End a run that keeps what is held; its last snapshot has all state, and answers requests made meanwhile."""
        if self.snapshots.snapshot is not None:
            self._serve()
            self.snapshots.answer_with_last(self.give_back())
        self._requests.listeners.notify(self._options.input_ended(self.ticks.number, held))

    # Ticks

    def _next(self, *, polls: bool = True, asks_held: bool = False, final: bool = False) -> Tick:
        self._tick = self.ticks.begin(polls=polls, explains=self._wants_times, asks_held=asks_held, final=final)
        return self._tick

    def _pause(self) -> None:
        """Pause if nothing was polled, or the host wants it; requests cut it short."""
        left = self._host.pause()
        if self.ticks.polled:
            self._rest = _SHORTEST_REST
            if left <= 0:
                return
        else:
            left = max(left, self._longer_rest())
        deadline = time.monotonic() + left
        while not self._is_wanted and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST_REST))

    def _longer_rest(self) -> float:
        rest, self._rest = self._rest, min(2 * self._rest, _LONGEST_REST)
        return rest

    @property
    def _is_wanted(self) -> bool:
        requests = self._requests
        return self.hurries or requests.stopping or bool(requests.pending) or bool(requests.explanations)


def drive(coordinator: Coordinator, host: TickingHost) -> None:
    """Run to the end on a host whose ticks can be called for.

    Raises:
        MalflowError: if the run can't continue.
    """
    step = coordinator.begin()
    while step is not None:
        if isinstance(step, Tick):
            began = time.perf_counter()
            reports = host.run(step)
            step = coordinator.next(reports, time.perf_counter() - began)
        else:
            step = coordinator.apply(step)


def _held_in(reports: Sequence[Report]) -> dict[str, Waiting]:
    held: dict[str, Waiting] = {}
    for it in reports:
        merge_held(held, it.held)
    return held


def _times_in(reports: Sequence[Report]) -> dict[int, dict[int, OperatorTime]]:
    times: dict[int, dict[int, OperatorTime]] = {it.worker: {} for it in reports}
    for it in reports:
        times[it.worker].update(it.times)
    return times
