"""The coordinator of a run, on every runtime: the work between two ticks and its order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from malflow.engine.parts.discovery import Discovery
from malflow.engine.parts.places import only, places_of
from malflow.engine.plan import Program
from malflow.engine.reports import Report, held_in
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import states_of
from malflow.engine.states.rescale import check_placed
from malflow.engine.ticks import Ticks, first_limit
from malflow.errors import GraphError, OperatorError, SnapshotError
from malflow.event_time.tick import Tick
from malflow.events import DiscoveryFailed, PartsDiscovered, Rescaled, RescaleRefused, TickFinished
from malflow.operators.waiting import Waiting
from malflow.runtime.coordination.budgets import Budgets
from malflow.runtime.coordination.part_mover import PartMover
from malflow.runtime.coordination.queries import QueryService, ReplayService
from malflow.runtime.coordination.snapshots import RunSnapshots
from malflow.runtime.host import Host, PartsChanged, PartsMove, Rescale, Step, TickingHost
from malflow.runtime.options import RunOptions
from malflow.runtime.progress.hot_keys import HotKeyWatch
from malflow.runtime.progress.made_rows import MadeRowsWatch
from malflow.runtime.progress.progress import Progress, Status, progress_of
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.requests.pauses import Pauses
from malflow.runtime.restarts import RestartGuard, started, warn_of_idle_readers, warn_of_letters, warn_without_sink
from malflow.runtime.why.time_watch import TimeExplainer

__all__ = ["Coordinator", "drive"]


class Coordinator:
    """Decides the next step of a run; a host executes it.

    Between two ticks it works in this order:

    1. *Check.* Announce a finished snapshot, commit its sinks, confirm its positions to the readers, then answer the
        requests for it: an answer means that all of this is done. This is first, since a failed commit must end the run
        before it begins anything else.
    2. *Serve.* Serve requests for snapshots and rescales, in order. They precede the run's own work: a rescale
    requested because of a new part finds the old workers. 3. *End.* If every source has ended, or the run should stop:
    the last snapshot, and the end of the input. 4. *Discover.* Find new parts of sources. A snapshot due now then
    includes them. Then *move* a part from a busy worker to an idle one, at most one a minute. The next tick follows at
    once, so that the tick of a snapshot has no move. 5. *Explain* the run's time, on request, or periodically to see
    whether it stands still. 6. *Keep.* Take a snapshot if one is due. It is late in the order, to include all changes.
    7. *Pause* if there was no input. A request cuts the pause short. 8. *Answer* questions to states, or let the next
    tick answer them. A pause comes before, to keep them from waiting.

    Args:
        program: the program.
        host: the workers.
        sinks: the sinks that are in this process.
        options: the options of the run.
        requests: the requests to the run, and its listeners.
        guard: rejects a restart that would count records twice; None if nothing restarts the run.
        restarts: the number of earlier restarts.

    Attributes:
        ticks: the ticks of the run.
        snapshots: its snapshots.
        hurries: whether pauses are cut short, since the ticks are about to end; may be set from another thread.
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
        self.ticks = Ticks(program, host.parts, host.listed, first_limit=first_limit(debug=options.debug))
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
        self._mailbox = mailbox = requests.mailbox
        self._explainer = TimeExplainer(program, host, self.ticks, requests)
        self._hot = HotKeyWatch(program, host)
        self._made = MadeRowsWatch(program)
        self._queries = QueryService(host, self.ticks, mailbox.queries, sinks)
        self._replays = ReplayService(mailbox.replays, sinks)
        self._budgets = Budgets(program, requests.listeners.notify)
        self._mover = PartMover(program, host, self.ticks, requests.listeners.notify, is_on=options.move_parts)
        self._pauses = Pauses(lambda: self.hurries or requests.has_new, mailbox.wake)
        self._tick = Tick()

    # From any thread

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        snapshots = self.snapshots
        progress = progress_of(
            self._program,
            self.ticks,
            restarts=self._restarts,
            parts=self._host.parts,
            lanes=self._host.lanes,
            sizes=snapshots.sizes,
            status=self._status,
            running=self._host.running(),
        )
        return snapshots.stamped(progress)

    @property
    def _status(self) -> Status:
        if self.snapshots.is_blocked:
            return "blocked"
        return "resting" if self._pauses.is_long else "running"

    # The run

    def restore(self) -> None:
        """Claim the job, and restore its last snapshot.

        Raises:
            SnapshotError: if the snapshot can't be read, does not fit the program, or is older than the last commit of
                a sink.
            OperatorError: if user code fails.
        """
        restored = self.snapshots.restore()
        if self._guard is not None:
            self._guard.check(None if restored is None else restored.snapshot)
        self.snapshots.take_over()
        self._requests.phase = None
        self._requests.listeners.notify(started(self._program, self._host.parallelism, restored, self._restarts))
        if not self._restarts:
            warn_without_sink(self._program)
            if len({*self._host.lanes}) > 1 and not self.ticks.hands_out:
                warn_of_idle_readers(self._program, self._host.parts)
        if not self._options.persistence.is_enabled and not self._restarts:
            warn_of_letters(self._program)

    def begin(self) -> Step | None:
        """Open the workers, and return the first step; None if there is nothing to do.

        Raises:
            OperatorError: if user code fails.
            SnapshotError: if a snapshot can't be written.
        """
        self._host.open(self.ticks.number)
        self.snapshots.begin()
        self.ticks.start(self._host.live())
        replays_first = bool(self._mailbox.replays.waiting) and not self._requests.stopping
        return self._end() if self._is_ending and not replays_first else self._next()

    def next(self, reports: Sequence[Report], seconds: float = 0.0) -> Step | None:
        """Handle the reports of a tick once its output has reached the sinks; return the next step, None at the end.

        Args:
            reports: the reports of all workers and stages.
            seconds: the duration of the tick.

        Raises:
            MalflowError: if the run can't continue.
        """
        tick = self._tick
        if (refused := self._sinks.report()) is not None:
            reports = [*reports, refused]
        self._note(tick, reports, seconds)
        self._queries.read()
        self._replays.answer(reports)
        self._budgets.note(tick.number, tick.now, reports)
        if tick.final:
            self.snapshots.finish_sinks()
            return None
        if tick.asks_held and self._is_kept:
            self._keep_open(held_in(reports))
            return None
        return self._decide()

    def apply(self, change: Rescale | PartsChanged | PartsMove) -> Step | None:
        """Make a change that `next` returned, through the host, and return the step that follows.

        Raises:
            MalflowError: if the run can't continue.
        """
        if isinstance(change, PartsMove):
            self._mover.move(change)
            return self._next(polls=not self.snapshots.is_blocked)  # no snapshot before the next tick
        if isinstance(change, Rescale):
            self._rescale(change)
        else:
            self._change_parts(change)
        return self._decide()

    def close(self, error: BaseException | None) -> None:
        """Close the snapshots; requests that were not answered wait for another attempt, or for the end of the run.

        Args:
            error: the error that ended the run, if any.
        """
        if (refused := self._sinks.report()) is not None:
            self.ticks.sums.add([refused])  # by commits after the last tick
        try:
            self.snapshots.close(error)
        finally:
            self._mailbox.give_back(error)

    # After a tick

    def _note(self, tick: Tick, reports: Sequence[Report], seconds: float) -> None:
        ticks = self.ticks
        ticks.end(tick, reports, seconds)
        if ticks.polled:
            self._sinks.note_records()
        self._explainer.note_late()
        self._hot.note(ticks)
        self._made.note(ticks)
        if tick.explains:
            self._explainer.read(reports)
        self._requests.listeners.notify(TickFinished(ticks.number, self._host.parallelism, ticks.polled, seconds))

    # Between two ticks

    def _decide(self) -> Step | None:
        snapshots = self.snapshots
        while True:
            snapshots.check()
            self._replay_here()
            if self._sinks.reader_is_gone:
                self._requests.stop()
            if (step := self._serve()) is not None:
                return step
            if self._is_ending:
                return self._end()
            if (step := self._discover() or self._mover.wanted()) is not None:
                return step
            if self._explainer.is_due:
                self._explainer.explain()
            if snapshots.is_due and not snapshots.is_busy and not self._keep():
                return self._next(polls=not snapshots.is_blocked)
            if snapshots.is_blocked and not self._needs_tick:
                snapshots.wait(self._pauses.longer())
                continue
            self._pause()
            if not self._is_ending:
                return self._next(polls=not snapshots.is_blocked)

    @property
    def _needs_tick(self) -> bool:
        """Whether a tick must follow even if sources can't be polled."""
        return self._explainer.needs_tick or bool(self._mailbox.queries.waiting) or self.hurries

    @property
    def _is_ending(self) -> bool:
        return self.ticks.is_finished or self._requests.stopping

    @property
    def _is_kept(self) -> bool:
        """Whether the input has ended and open results are kept for the next run."""
        return self.ticks.is_finished and not self._requests.stopping and not self._options.finishes

    def _serve(self) -> Step | None:
        """Serve the requests in order; a snapshot waits for the one being written."""
        changes = self._mailbox.changes
        while changes.take_all():
            if self._is_ending:
                changes.cancel_rescales()
                return None
            if changes.is_rescale_next:
                if (step := self._serve_rescale()) is not None:
                    return step
                continue
            if self.snapshots.is_busy:
                return None
            if not self._keep():
                return self._next(polls=not self.snapshots.is_blocked)
        return None

    def _serve_rescale(self) -> Rescale | None:
        """Take the oldest request, for a rescale; return the step if one is needed."""
        parallelism, tick = self._mailbox.changes.begin_rescale(), self.ticks.number
        if parallelism is None:
            return None
        if parallelism == self._host.parallelism:
            self._requests.listeners.notify(Rescaled(tick, parallelism, parallelism))
            self._mailbox.changes.end_rescale()
            return None
        try:
            check_placed(self._program)
            self._host.check_moves()
        except (GraphError, SnapshotError) as error:
            self._requests.listeners.notify(RescaleRefused(tick, parallelism, error))
            self._mailbox.changes.end_rescale(error)
            return None
        return Rescale(parallelism)

    def _rescale(self, change: Rescale) -> None:
        previous = self._host.parallelism
        self._host.rescale(change.parallelism)
        self.ticks.place(self._host.parts, self._host.listed)
        self.ticks.start(self._host.live())
        self._mover.forget()
        self._requests.listeners.notify(Rescaled(self.ticks.number, previous, change.parallelism))
        self._mailbox.changes.end_rescale()

    def _discover(self) -> PartsChanged | None:
        """Find the sources with changed parts."""
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
        self.ticks.add(self._host.parts, places_of(only(self._host.parts, new)))
        for name, parts in new.items():
            self._requests.listeners.notify(PartsDiscovered(self.ticks.number, name, tuple(parts)))

    def _keep(self, *, ending: bool = False) -> bool:
        """Begin a snapshot for all requests; return whether that was possible before the next tick."""
        changes = self._mailbox.changes
        asked = changes.snapshots
        if not self._options.persistence.is_enabled:
            for request in asked:
                request.end(None)
            changes.drop(asked)
            return True
        try:
            made = self.snapshots.take(asked, ending=ending)
        except Exception as error:
            for request in asked:
                request.fail(error)
            raise
        if made is not None:
            changes.drop(asked)
        return made is not None

    # The end

    def _end(self) -> Step | None:
        """Return the step after the last tick that polled: a tick that reports open results, or the final one."""
        self._explainer.explain()
        self._queries.serve()
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
        """End a run that keeps open results; its last snapshot has all state and answers pending requests."""
        if self.snapshots.snapshot is not None:
            self._serve()
            asked = self._mailbox.changes.snapshots
            self.snapshots.answer_with_last(asked)
            self._mailbox.changes.drop(asked)
        self._requests.listeners.notify(self._options.input_ended(self.ticks.number, held))

    # Ticks

    def _next(self, *, polls: bool = True, asks_held: bool = False, final: bool = False) -> Tick:
        self._queries.serve()
        explains = self._explainer.needs_tick
        if polls and not final:
            self._replay_here()
        replays = self._replays.take() if polls and not final else ()
        self._tick = self.ticks.begin(polls=polls, explains=explains, asks_held=asks_held, final=final, replays=replays)
        self._sinks.begin_tick(self._tick)
        return self._tick

    def _replay_here(self) -> None:
        """Replay the letters of sinks in this process; while a snapshot is written, it may need to be amended."""
        if self._mailbox.replays.waiting and not self._requests.stopping and not self.snapshots.is_pending:
            self._replays.serve_here()

    def _pause(self) -> None:
        """Pause if nothing was polled, or the host requires it; requests cut it short."""
        seconds = self._host.pause()
        if self.ticks.polled or self.ticks.hands_out:
            self._pauses.reset()
        else:
            seconds = max(seconds, self._pauses.longer())
        self._pauses.pause(seconds)


def drive(coordinator: Coordinator, host: TickingHost) -> None:
    """Run to the end on a `TickingHost`.

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
