"""A run in one thread of this process: its loop, its requests, its snapshots."""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from malflow.engine.discovery import Discovery
from malflow.engine.execution import Run
from malflow.engine.plan import Program
from malflow.engine.states import states_of
from malflow.engine.transactions import check_deliveries
from malflow.errors import OperatorError, SnapshotError
from malflow.events import DiscoveryFailed, PartsDiscovered, Rescaled, RescaleRefused, TickFinished
from malflow.runtime.control import Request, RunHandle, RunRequests, abandon, fail, table_of
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.listeners import Listeners
from malflow.runtime.options import RunOptions
from malflow.runtime.progress import (
    Progress,
    finished,
    lag_of,
    lags_of,
    late_of,
    patterns_of,
    records_of,
    unread_late,
    written_of,
)
from malflow.runtime.signals import signals_stop
from malflow.runtime.snapshots import RunSnapshots
from malflow.runtime.starting import started
from malflow.runtime.time_table import TimeTable, explain
from malflow.runtime.time_watch import TimeWatch

__all__ = ["SingleThreadHandle", "SingleThreadRun"]

_SHORTEST_REST = 0.001
_LONGEST_REST = 0.05


class SingleThreadRun:
    """One run of a dataflow, from its first tick to its last.

    Args:
        options: the options of the run.

    Attributes:
        requests: the requests of other threads, and the listeners.
        reader_is_gone: whether it has ended because nobody reads what a sink writes.
    """

    def __init__(self, options: RunOptions) -> None:
        self.requests = RunRequests(Listeners(options.listeners, job=options.job))
        self.reader_is_gone = False
        self._options = options
        self._parallelism = options.parallelism or 1
        self._running: tuple[Program, Run, RunSnapshots] | None = None
        self._last = Progress(0, self._parallelism, {}, 0, None, 0)
        self._served: list[Request] = []
        self._watch = TimeWatch()

    @property
    def keeps(self) -> bool:
        """Whether the run has a persistence."""
        return self._options.persistence.is_enabled

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        running = self._running
        if running is None:
            return self._last
        program, run, snapshots = running
        counts = run.counts.copy()
        return Progress(
            tick=run.ticks,
            parallelism=run.parallelism,
            records=records_of(counts),
            polled=run.polled,
            snapshot=snapshots.snapshot,
            restarts=0,
            late=late_of(program, counts),
            lateness=dict(run.lateness),
            unfinished=run.unfinished,
            patterns=patterns_of(program, counts, run.gauges),
            lag=lag_of(run.lags),
            lag_by_part=lags_of(run.lags),
        )

    def explain_time(self, timeout: float) -> TimeTable:
        """Return which operators wait for an epoch, and for which source.

        Raises:
            GraphError: if user code of the dataflow asks.
            TimeoutError: if the tick does not end in time.
        """
        if self._running is not None:
            self.requests.ask_explanation(timeout)
        return table_of(self.requests.explained, self.progress)

    def run(self, program: Program) -> None:
        """Run a program to its end.

        Raises:
            MalflowError: the error that ended it; see `SingleThreadRuntime.execute`.
        """
        options = self._options
        check_deliveries(program, keeps=self.keeps)
        run = Run(program, parallelism=self._parallelism, tracked=self.keeps, debug=options.debug)
        snapshots = RunSnapshots(
            options.persistence,
            states_of(program),
            options.restore_options,
            interval=options.interval,
            debug=options.debug,
            listeners=self.requests.listeners,
        )
        self._running = (program, run, snapshots)
        try:
            with signals_stop(self.requests.stop, lambda: self.requests.stopping), rarer_collections(), snapshots, run:
                restored = snapshots.restore(run)
                self.requests.listeners.notify(started(program, run.parallelism, restored))
                del restored  # its states are the run's now
                run.open()
                snapshots.confirm_restored(run)
                self._loop(program, run, snapshots)
        except BaseException as error:
            self.requests.listeners.notify(finished(program, self.progress, error))
            raise
        self.requests.listeners.notify(finished(program, self.progress, None))
        self.reader_is_gone = run.sinks.reader_is_gone

    def end(self, error: BaseException | None) -> None:
        """Record the last progress, and cancel or fail all requests."""
        self._last, self._running = self.progress, None
        self.requests.end(error)
        abandon(self._served, error)
        self._served.clear()

    def _loop(self, program: Program, run: Run, snapshots: RunSnapshots) -> None:
        rest = _SHORTEST_REST
        discovery = Discovery(program, run.listed)
        while not self.requests.stopping and not run.is_finished:
            polled = 0 if snapshots.is_blocked else self._tick(program, run)
            snapshots.check()
            snapshots.confirm(run)
            if run.sinks.reader_is_gone:
                self.requests.stop()
            self._serve(run, snapshots)
            self._discover(run, discovery)
            if self.requests.explanations or self._watch.is_due(run.clock.now):
                self._explain(program, run)
            snapshots.keep(run)
            if polled or run.is_finished:
                rest = _SHORTEST_REST
                continue
            time.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
        self._serve(run, snapshots, ending=True)
        self._explain(program, run)
        snapshots.finish(run)
        if not self.requests.stopping:
            self._end_input(program, run, snapshots)

    def _end_input(self, program: Program, run: Run, snapshots: RunSnapshots) -> None:
        """Emit the open results of operators, or keep them for the next run."""
        finishes = self._options.finishes
        self.requests.listeners.notify(self._options.input_ended(run.ticks, {} if finishes else run.held()))
        if finishes:
            self._tick(program, run, final=True)
            snapshots.finish_sinks(run)

    def _discover(self, run: Run, discovery: Discovery) -> None:
        """Go on with parts that have appeared.

        Raises:
            OperatorError: naming a part that is gone and is not finished.
        """
        for name, found in discovery.find():
            if isinstance(found, OperatorError):
                self.requests.listeners.notify(DiscoveryFailed(run.ticks, name, found))
                continue
            run.refuse_gone(name, found.gone)
            if found.new:
                run.add_parts({name: found.new})
                self.requests.listeners.notify(PartsDiscovered(run.ticks, name, tuple(found.new)))

    def _explain(self, program: Program, run: Run) -> None:
        now = run.clock.now
        rows = explain(program, run.explain(), run.heard, now)
        self._watch.note(now, rows, written_of(program, run.counts))
        self.requests.explain(now, rows)

    def _tick(self, program: Program, run: Run, *, final: bool = False) -> int:
        began = time.perf_counter()
        polled = 0
        if final:
            run.end()
        else:
            polled = run.tick()
            self._watch.note_late(run.counts, late_of(program, run.counts), run.lateness, unread_late(program))
        self.requests.listeners.notify(TickFinished(run.ticks, run.parallelism, polled, time.perf_counter() - began))
        return polled

    def _serve(self, run: Run, snapshots: RunSnapshots, *, ending: bool = False) -> None:
        """Serve pending requests; rescales are cancelled once the run is ending."""
        while self.requests.pending and (ending or self.requests.pending[0].parallelism or not snapshots.is_busy):
            self._take_requests()
            try:
                self._do(run, snapshots, ending=ending)
            except Exception as error:
                fail(self._served, error)
                raise
            self._served.clear()

    def _take_requests(self) -> None:
        """Take the oldest request and, if it is for a snapshot, all directly following ones for a snapshot.

        Each is added to `_served` before it leaves the queue, so that none is lost if a signal raises in between.
        """
        requests, served = self.requests.pending, self._served
        while requests and not (served and (served[-1].parallelism or requests[0].parallelism)):
            served.append(requests[0])
            requests.popleft()

    def _do(self, run: Run, snapshots: RunSnapshots, *, ending: bool) -> None:
        first = self._served[0]
        if first.parallelism is None:
            snapshots.answer(run, self._served)
        elif ending:
            abandon(self._served)
        elif first.answer.set_running_or_notify_cancel():
            self._rescale(run, first.parallelism, first.answer)

    def _rescale(self, run: Run, parallelism: int, answer: Future[Any]) -> None:
        previous = run.parallelism
        try:
            run.rescale(parallelism)
        except SnapshotError as error:
            self.requests.listeners.notify(RescaleRefused(run.ticks, parallelism, error))
            answer.set_exception(error)
        else:
            self.requests.listeners.notify(Rescaled(run.ticks, previous, parallelism))
            answer.set_result(None)


class SingleThreadHandle(RunHandle):
    """The handle of a run in a thread of its own.

    Args:
        run: the run.
        program: the program to run.
        held: reserves the runtime until the run has ended; the handle takes it over.
    """

    def __init__(self, run: SingleThreadRun, program: Program, held: ExitStack) -> None:
        super().__init__(run.requests, keeps=run.keeps, held=held)
        self._started = run
        self._program = program
        self._begin()

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._started.progress

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output has gone (a broken pipe)."""
        return self._started.reader_is_gone

    def _run(self) -> None:
        self._started.run(self._program)
