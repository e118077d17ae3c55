"""The coordinator on the driver, which handles the results of each tick and decides about the next."""

from __future__ import annotations

import pickle
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import product
from operator import itemgetter
from typing import Any

from malflow.engine.clock import RunClock
from malflow.engine.discovery import Change, Discovery, discovering, with_waiting
from malflow.engine.idle_epochs import Lifts
from malflow.engine.parts import Parts, place_parts, places_of
from malflow.engine.plan import Program
from malflow.engine.silence import QuietSources
from malflow.engine.sinks import RunSinks
from malflow.errors import OperatorError, RunFailed
from malflow.events import ConfirmationFailed, DiscoveryFailed, TickFinished
from malflow.operators.epochs.lateness import merge_lateness
from malflow.operators.hosting.reader_methods import Lags
from malflow.operators.waiting import OperatorTime, Waiting, merge_held
from malflow.runtime.control import Request, RunRequests, abandon
from malflow.runtime.options import RunOptions
from malflow.runtime.progress import late_of, unread_late, written_of
from malflow.runtime.spark.changelog import Changelog
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.driver_sinks import deliver
from malflow.runtime.spark.error_transport import loaded_error
from malflow.runtime.spark.live_runs import REGISTRY
from malflow.runtime.spark.pacing import Pace
from malflow.runtime.spark.protocol import StageReport, TickCommand, names_of_counts, names_of_gauges
from malflow.runtime.spark.shuffle import Row, RowKind
from malflow.runtime.spark.snapshots import SparkRunSnapshots
from malflow.runtime.time_table import explain
from malflow.runtime.time_watch import TimeWatch

__all__ = ["TickCoordinator"]

_MICROSECOND = timedelta(microseconds=1)
_SHORTEST_REST = 0.005
_LONGEST_REST = 0.05


class TickCoordinator:
    """Handles each tick's rows and returns the command of the next tick; a query calls it between ticks.

    Args:
        program: the program.
        parts: the parts of each source that each worker holds.
        tick: the number of the last tick.
        index: the index of the changelog.
        changelog: the changelog.
        sinks: the sinks on the driver.
        snapshots: the run's snapshots; None without persistence.
        requests: the requests to the run.
        pace: limits the records of a tick.
        clock: the clock of the ticks.
        watch: warns if event time stands still.
        discovery: lists the parts of sources again.
        options: the options of the run.

    Attributes:
        tick: the number of the last tick.
        counts: how many records each operator took, and each source emitted.
        gauges: what operators measured in the last tick.
        lateness: the greatest lateness at each generator of epochs (watermarks) that had late records.
        polled: how many records were polled in the last tick.
        lags: the lag of each part, of the sources whose readers tell it.
        unfinished: the sources with unfinished parts.
        rescaling: the request for a rescale that ended the query, if any.
        changes: the changes of parts that ended the query, by source; empty if there are none.
        processes: the last tick of each process.
    """

    def __init__(  # noqa: PLR0913 - what a run consists of
        self,
        program: Program,
        parts: Parts,
        tick: int,
        index: ChangelogIndex,
        changelog: Changelog,
        sinks: RunSinks,
        snapshots: SparkRunSnapshots | None,
        requests: RunRequests,
        *,
        pace: Pace,
        clock: RunClock,
        watch: TimeWatch,
        discovery: Discovery,
        options: RunOptions,
    ) -> None:
        self.tick = tick
        self.index = index
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, int] = {}
        self.lateness: dict[str, Any] = {}
        self.polled = 0
        self.lags: Mapping[str, Lags] = {}
        self._lags: dict[tuple[str, int], Lags] = {}
        self.unfinished = tuple(
            sorted({name for name, by_worker in parts.items() if any(by_worker)}.union(discovering(program)))
        )
        self.rescaling: Request | None = None
        self.changes: dict[str, Change] = {}
        self.processes: dict[str, int] = {}
        self._program = program
        self._watch = watch
        self._discovery = discovery
        self._options = options
        self._held: dict[str, Waiting] | None = None
        self._discovering = discovering(program)
        self._parts = parts
        self._names, self._gauges = names_of_counts(program), names_of_gauges(program)
        self._sources = frozenset(program.sources)
        self._reporters = set(product(range(len(program.stages)), range(index.workers)))
        self._changelog = changelog
        self._sinks = sinks
        self._snapshots = snapshots
        self._requests = requests
        self._pace = pace
        self._is_cut_short = False
        self._hurries = False
        self._rest = _SHORTEST_REST
        self._began = 0.0
        self._most_polled = 0
        self._most_bytes = 0
        self._pieces: list[str] = []
        self._ended: frozenset[str] = frozenset()
        self._finished: frozenset[tuple[str, int]] = frozenset()
        self._quiet = QuietSources(parts)
        self._lifts: Mapping[str, Any] = {}
        self._lifting = Lifts(program, parts)
        self._clock = clock
        self._command = TickCommand(tick, ())

    def first(self) -> TickCommand:
        """Return the command of the first tick."""
        self._ended = self._sources.difference(self._discovering, (name for name, _ in self._quiet.places))
        return self._next(polls=not self._requests.stopping)

    def note_new(self, new: Mapping[str, Iterable[Any]]) -> None:
        """Note that some of the parts are new: where they are, the silence of sources begins anew."""
        self._quiet.add(self._parts, places_of(place_parts(new, range(self.index.workers))))

    def hurry(self) -> None:
        """Cut pauses short since the query has ended; may be called from another thread."""
        self._hurries = True

    def __call__(self, rows: list[Row], seconds: float = 0.0) -> TickCommand | None:
        """Handle the rows of a tick and return the next command, None to end the query.

        Args:
            rows: the rows that the tick's tasks returned.
            seconds: how long the tasks took.

        Raises:
            MalflowError: if the run can't go on.
        """
        with self._requests.own.working():
            return self._after(rows, seconds)

    def _after(self, rows: list[Row], seconds: float) -> TickCommand | None:
        reports = self._reports(rows)
        began = time.monotonic()
        deliver(self._sinks.writers, rows)
        seconds += time.monotonic() - began
        self._note(rows, reports)
        self._requests.listeners.notify(TickFinished(self.tick, self.index.workers, self.polled, seconds))
        self._is_cut_short = not (self._command.whole or self._command.rewrites) and self._pace.note(
            self._most_polled, seconds, self._most_bytes
        )
        if self._command.final:
            self._forget()
            if self._snapshots is not None:
                self._snapshots.finish_sinks(self.index.workers)
            return None
        if self._snapshots is not None:
            self._snapshots.check()
        self._forget()
        return self._go_on()

    def _reports(self, rows: list[Row]) -> list[StageReport]:
        """Return the reports of the tick.

        Raises:
            MalflowError: if a task has failed, or they don't agree.
        """
        failures = [loaded_error(row.blob) for row in rows if row.kind == RowKind.FAILURE]
        if failures:
            raise failures[0]
        command = self._command
        reports: list[StageReport] = [pickle.loads(row.blob) for row in rows if row.kind == RowKind.REPORT]  # noqa: S301 - of this run
        found = [(it.stage, it.worker) for it in reports if it.tick == command.tick]
        if len(found) != len(self._reporters) or set(found) != self._reporters:
            raise RunFailed(
                f"tick {command.tick} needs one report per stage and worker; got reports of {sorted(found)}"
            )
        _check_record_counts(reports)
        return reports

    def _note(self, rows: list[Row], reports: list[StageReport]) -> None:
        """Note what a tick has done; its output is with the sinks."""
        command = self._command
        self.tick = command.tick
        self.processes.update({it.process: self.tick for it in reports if it.process})
        self._most_polled = max(it.polled for it in reports)
        self._most_bytes = max(it.size for it in reports)
        self.polled = sum(it.polled for it in reports)
        if self.polled:
            self._sinks.note_records()
        found_counts: Counter[str] = Counter()
        for row in rows:
            if row.counts is not None:
                found_counts.update(dict(zip(self._names, row.counts, strict=True)))
        self.gauges = {name: found_counts.pop(name, 0) for name in self._gauges}
        self.counts.update(found_counts)
        for it in reports:
            merge_lateness(self.lateness, it.lateness)
        late = late_of(self._program, self.counts)
        self._watch.note_late(self.counts, late, self.lateness, unread_late(self._program))
        self._note_readers(reports)
        if command.explains:
            self._explain(reports)
        self._pieces = [name for it in reports for name in it.pieces]
        if not command.final:
            self.index.note(reports)
            self._note_quiet(reports)
            self._note_ended(reports)

    def _note_readers(self, reports: list[StageReport]) -> None:
        """Note the lags of parts, and announce the readers that could not confirm a position."""
        for it in reports:
            for error in map(loaded_error, it.unconfirmed):
                name = error.operator if isinstance(error, OperatorError) else ""
                self._requests.listeners.notify(ConfirmationFailed(it.tick, name, error))
        found = {(name, it.worker): lags for it in reports for name, lags in it.lags.items()}
        if found:
            self._lags |= found
            lags: dict[str, dict[Any, int | None]] = {}
            for (name, _), by_part in sorted(self._lags.items(), key=itemgetter(0)):
                lags.setdefault(name, {}).update(by_part)
            self.lags = lags

    def _explain(self, reports: list[StageReport]) -> None:
        """Explain the run's time, as it was before the tick, and note open results at the end of the input."""
        if self._command.ends:
            self._held = {}
            for it in reports:
                merge_held(self._held, it.held)
        times: dict[int, dict[int, OperatorTime]] = {it.worker: {} for it in reports}
        for it in reports:
            times[it.worker].update(it.times)
        now = self._clock.now
        rows = explain(self._program, times, self._quiet.heard, now)
        self._watch.note(now, rows, written_of(self._program, self.counts))
        self._requests.explain(now, rows)

    def _note_quiet(self, reports: list[StageReport]) -> None:
        """Find the sources that emitted nothing, and the time that test scripts skip."""
        if self._command.polls:
            self._quiet.end_tick((name, it.worker) for it in reports for name in it.emitting)
        else:
            self._quiet.skip_tick()
        self._clock.skip(max(it.skipped for it in reports))

    def _note_ended(self, reports: list[StageReport]) -> None:
        """Find the sources that have ended, and the epochs to which their generators are to be lifted."""
        reached = [(it.worker, it.reached) for it in reports if it.reached]
        self._lifts = self._lifting.after(reached, self._quiet.quiet, self._quiet.passed)
        live = {(name, it.worker) for it in reports for name in it.live}
        waiting = self._lifting.waiting(self._lifts, reached)
        names = {name for name, _ in live}.union(self._discovering)
        self._ended = self._sources.difference(waiting, names)
        self._finished = self._quiet.finished(with_waiting(live, self._quiet.places, self._discovering))
        self.unfinished = tuple(sorted(names))

    def _forget(self) -> None:
        """Remove obsolete changelog entries, and the output of the tick, which no task repeats any more."""
        reading = () if self._snapshots is None else self._snapshots.reading
        self._changelog.discard(self.index.forget(reading), self._pieces)

    def _go_on(self) -> TickCommand | None:
        finished = self._ended == self._sources
        ending = self._is_stopping or finished
        self._take_requests(ending=ending)
        snapshots = self._snapshots
        keeps = finished and not self._is_stopping and not self._options.finishes
        if keeps and self._held is not None:  # the snapshot is of the state before the tick that asked for it
            self._end_kept(self._held)
            return None
        if self.rescaling is not None:
            if snapshots is not None:
                snapshots.settle()
            return None
        if not ending and self._finds_changes():
            if snapshots is not None:
                snapshots.settle()
            return None
        if snapshots is not None and not snapshots.keep(
            self.tick, self.index.workers, self._changelog.generation, self.index, ending=ending
        ):
            return self._next(polls=not ending, whole=True)
        if self._is_stopping:
            return None
        if finished:
            return self._end(keeps=keeps)
        self._pause()
        if snapshots is not None and snapshots.is_blocked:
            return self._next(polls=False)
        return self._next(rewrites=self.index.long)

    def _end(self, *, keeps: bool) -> TickCommand:
        """Return the tick after the snapshot of the end: one that asks what is held, or the one with `MAX`."""
        if keeps:
            return self._next(polls=False, ends=True)
        self._requests.listeners.notify(self._options.input_ended(self.tick, {}))
        return self._next(final=True)

    def _end_kept(self, held: dict[str, Waiting]) -> None:
        """End a run that keeps what is held; its last snapshot has all state, and answers what was asked meanwhile."""
        if self._snapshots is not None:
            self._snapshots.answer_with_last()
        self._requests.listeners.notify(self._options.input_ended(self.tick, held))

    def _finds_changes(self) -> bool:
        """Whether the parts of a source have changed, so that other workers must go on."""
        for name, found in self._discovery.find():
            if isinstance(found, OperatorError):
                self._requests.listeners.notify(DiscoveryFailed(self.tick, name, found))
            else:
                self.changes[name] = found
        return bool(self.changes)

    @property
    def _is_stopping(self) -> bool:
        return self._requests.stopping or self._sinks.reader_is_gone

    def _take_requests(self, *, ending: bool) -> None:
        requests = self._requests.pending
        while requests and self.rescaling is None:  # what was asked for after it is done after it
            request = requests.popleft()
            if request.parallelism is None and self._snapshots is not None:
                self._snapshots.ask(request)
            elif request.parallelism is None or ending:
                abandon([request])
            elif request.answer.set_running_or_notify_cancel():
                self.rescaling = request

    def _pause(self) -> None:
        """Pause if nothing was polled or the trigger interval has not passed."""
        left = 0.0 if self._is_cut_short else self._began + self._pace.pause - time.monotonic()
        if self.polled:
            self._rest = _SHORTEST_REST
        else:
            left = max(left, self._rest)
            self._rest = min(2 * self._rest, _LONGEST_REST)
        deadline = time.monotonic() + left
        while not self._is_wanted and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST_REST))

    @property
    def _is_wanted(self) -> bool:
        return (
            self._hurries
            or self._requests.stopping
            or bool(self._requests.pending)
            or bool(self._requests.explanations)
        )

    def _next(self, **how: Any) -> TickCommand:
        self._began = time.monotonic()
        now, started = self._clock.read()
        quiet = self._quiet
        quiet.begin_tick(now)
        snapshots = self._snapshots
        if snapshots is not None:
            how |= {"durable": snapshots.durable, "writing": snapshots.writing}
        self._command = TickCommand(
            self.tick + 1,
            self.index.last,
            sorted(self._ended),
            sorted(self._finished),
            b64encode(pickle.dumps(self._lifts, 5)).decode() if self._lifts else "",
            now.isoformat(),
            started.isoformat(),
            quiet.passed // _MICROSECOND,
            sorted(quiet.quiet),
            quiet.quiet_time // _MICROSECOND,
            bool(self._requests.explanations) or self._watch.is_due(now) or "final" in how or "ends" in how,
            most=self._pace.limit,
            live_runs=REGISTRY.live,
            **how,
        )
        return self._command


def _check_record_counts(reports: list[StageReport]) -> None:
    """Check that the counts of sent and received records agree on each channel.

    When Spark loses a task's output it repeats the task, and a function that is not deterministic may return something
    else: then some workers have received the old output and others the new. Spark compares both outputs as well,
    unless it is configured not to.

    Raises:
        RunFailed: if the counts differ.
    """
    sent = {(channel, it.worker, target): n for it in reports for (channel, target), n in it.sent.items()}
    taken = {(channel, sender, it.worker): n for it in reports for (channel, sender), n in it.taken.items()}
    if sent != taken:
        channel, sender, target = next(iter(sent.items() ^ taken.items()))[0]
        came, went = (counts.get((channel, sender, target), 0) for counts in (taken, sent))
        raise RunFailed(
            f"worker {target} received {came} of the {went} records that worker {sender} sent on channel {channel}: "
            "Spark repeated a part of the tick with different records"
        )
