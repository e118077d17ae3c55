"""The ticks of a run: its clock, how many records sources poll, and each tick from the reports before.

All that a tick depends on beyond its worker (other workers, other ticks, the clock) is determined here, from the
reports of all workers, so that it is the same on every runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from malflow.engine.idle_epochs import Lifts, QuietSources
from malflow.engine.parts.discovery import discovering, with_waiting
from malflow.engine.parts.places import PartMove, Parts, Place, everywhere, near, places_of
from malflow.engine.parts.pool import PartPool
from malflow.engine.parts.reads import PartReads
from malflow.engine.plan import Program
from malflow.engine.reports import Report, RunSums
from malflow.event_time.tick import Tick
from malflow.failures import Replay
from malflow.operators.epochs.idle_time import merge_lateness
from malflow.operators.hosting.reader import Lags, Share, total_share
from malflow.operators.key_sampling import HotSample
from malflow.records.batch import BATCH_SIZE

__all__ = [
    "PollPacing",
    "RunClock",
    "Ticks",
    "first_limit",
]


class RunClock:
    """The system's clock, but never going back, not even before the snapshot that a run continues from.

    Attributes:
        now: the time of the last reading, in UTC.
        started: the time of the first reading.
    """

    def __init__(self) -> None:
        self.now = datetime(1970, 1, 1, tzinfo=UTC)
        self.started: datetime | None = None
        self._ahead = timedelta(0)

    def advance_to(self, time: datetime | None) -> None:
        """Set the earliest time that may be read; None if unknown."""
        if time is not None:
            self.now = max(self.now, time)

    def read(self) -> tuple[datetime, datetime]:
        """Return the time and the time of the first reading."""
        self.now = max(self.now, datetime.now(UTC) + self._ahead)
        self.started = self.started or self.now
        return self.now, self.started

    def skip(self, time: timedelta) -> None:
        """Advance by some time at once, for test scripts."""
        if time:
            self.read()
            self.now += time
            self._ahead = self.now - datetime.now(UTC)


_SHORT_TICK_SECONDS = 0.05
"""Below half the target the limit grows at once. More: larger steps past the target; less: a slower start."""

_TARGET_SECONDS = 0.1
"""The duration of a tick. Half: more fixed time per record; double: results and snapshots wait longer."""

_CALLING_SECONDS = 0.4
"""The target with operators that call out: at the end of each tick, fewer and fewer calls are under way."""

_TRY_MORE_AFTER = 16
"""Ticks of one size until twice the size is tried. Fewer: more ticks that are too long; more: a slower adjustment."""

_FASTEST_GROWTH = 64
"""The largest growth in a tick. Less: a slower start; more: one misleadingly short tick makes the next too long."""


def first_limit(*, debug: bool) -> int:
    """Return the poll limit of the first tick: one record (its cost is unknown), but with `debug` a whole batch."""
    return BATCH_SIZE if debug else 1


class PollPacing:
    """The poll limit of all sources on all workers that share a tick, adjusted from tick to tick.

    The limit is one for all: each waits for the slowest in every tick. With limits of their own, a worker that polled
    less in the beginning would keep polling less, since it could not tell its time from that of the others.

    Args:
        limit: the poll limit of the first tick.
        least: the least limit, for operators that process many records in the time of one.

    Attributes:
        limit: the maximum number of records that a source polls on a worker in a tick.
    """

    def __init__(self, limit: int = 1, least: int = 1) -> None:
        self.limit = max(limit, least)
        self._least = least
        self._target = _TARGET_SECONDS if least == 1 else _CALLING_SECONDS
        self._last_tick = (0, 0.0)
        self._same_ticks = 0

    def note(self, polled: int, largest: int, seconds: float) -> None:
        """Adjust the limit to bring a tick's per-record time near the target; fixed overhead is ignored.

        A tick takes a fixed time plus a time per record. This follows from two ticks with different numbers of records.
        If the number stays the same, a double one is tried now and then. If operators emit many records for each input
        record, the limit is lower, to keep batches small.

        Args:
            polled: the maximum number of records that a source polled on a worker in the tick.
            largest: the size of the tick's largest batch.
            seconds: the duration of the tick.
        """
        if polled:
            self.limit = max(self._least, self._adjusted(polled, largest, seconds))

    def _adjusted(self, polled: int, largest: int, seconds: float) -> int:
        most = max(1, min(BATCH_SIZE, BATCH_SIZE * polled // max(largest, 1)))
        records, before = self._last_tick
        self._last_tick = (polled, seconds)
        if seconds < _SHORT_TICK_SECONDS:
            growth = min(_FASTEST_GROWTH, _SHORT_TICK_SECONDS / max(seconds, 1e-6))
            return min(int(growth * self.limit), most)
        if polled == records:
            self._same_ticks += 1
            are_calls_slow = self._least > 1 and seconds > 2 * self._target
            tries = self._same_ticks % _TRY_MORE_AFTER == 1 and not are_calls_slow
            return min(2 * self.limit, most) if tries else self.limit
        per_record = (seconds - before) / (polled - records)
        wanted = self._target / per_record if per_record > 0 else most
        return int(max(1, self.limit // 2, min(wanted, 2 * self.limit, most)))


_NO_TIME = timedelta(0)


class Ticks:
    """Builds the ticks of a run, and adds up the reports of its workers.

    Args:
        program: the program.
        parts: the parts of each source that each worker holds.
        listed: the parts of each source; those that no worker holds are handed out. None if all are held.
        first_limit: the maximum number of records that a source polls on a worker in the first tick.

    Attributes:
        number: the number of the last tick.
        clock: the clock of the ticks.
        polled: the number of records polled in the last tick.
        seconds: the duration of the last tick.
        sums: the sums of the counts and facts of the workers.
        reads: the records and rates of the parts of sources.
        gauges: the gauges of operators in the last tick.
        lateness: the greatest lateness at each epoch (watermark) generator that had late records.
        lags: the lag of each part with a reader that reports it.
        shares: how much each source that reports it has read, and the total; None if unknown.
        hot: the last sample of the keys that each worker has sent through each exchange, by its name.
        unfinished: the sources with unfinished parts, and those with discovery.
    """

    def __init__(
        self,
        program: Program,
        parts: Parts,
        listed: Mapping[str, Sequence[Any]] | None = None,
        *,
        first_limit: int = 1,
    ) -> None:
        self.number = 0
        self.clock = RunClock()
        self.polled = 0
        self.seconds = 0.0
        self.sums = RunSums()
        reached = near(program, program.sources)
        self.reads = PartReads(v.node.name for v, is_near in zip(program.vertices, reached, strict=True) if is_near)
        self.gauges: Mapping[str, int] = {}
        self.lateness: dict[str, Any] = {}
        self.lags: Mapping[str, Lags] = {}
        self.shares: Mapping[str, Share | None] = {}
        self.hot: dict[str, dict[int, HotSample]] = {}
        self.unfinished: tuple[str, ...] = ()
        self._pacing = PollPacing(first_limit, program.least_batch)
        self._program = program
        self._sources = frozenset(program.sources)
        self._discovering = frozenset(discovering(program))
        self._lags_by_place: dict[Place, Lags] = {}
        self._shares_by_place: dict[Place, Share | None] = {}
        self._ended: frozenset[str] = frozenset()
        self._finished: frozenset[Place] = frozenset()
        self._live: frozenset[Place] = frozenset()
        self._noted: tuple[frozenset[Place], frozenset[str]] | None = None
        self.place(parts, listed)

    @property
    def is_finished(self) -> bool:
        """Whether every source has emitted its last record."""
        return len(self._ended) == len(self._sources)

    @property
    def hands_out(self) -> bool:
        """Whether the next tick may bring workers parts that nobody has read yet."""
        return bool(self._pool.waiting)

    @property
    def counts(self) -> Counter[str]:
        """The counters of the workers: see `malflow.engine.worker.Worker`."""
        return self.sums.counts

    @property
    def heard(self) -> Mapping[Place, datetime]:
        """The start of the last tick in which a source emitted records, by source and worker."""
        return self._quiet.heard

    def place(self, parts: Parts, listed: Mapping[str, Sequence[Any]] | None = None) -> None:
        """Start over with parts that have moved between workers. Their silence is unknown.

        Args:
            parts: the parts of each source that each worker holds.
            listed: the parts of each source; those that no worker holds are handed out. None if all are held.
        """
        self.sums.place(max(map(len, parts.values()), default=1))
        self.reads.place(parts)
        self._pool = PartPool(self._program, listed or {}, parts)
        parts = everywhere(parts, self._pool.names)
        self._quiet, self._lifting = QuietSources(parts), Lifts(self._program, parts)
        self._lifts: Mapping[str, Any] = {}
        self._noted = None
        self._lags_by_place.clear()
        self._shares_by_place.clear()
        self.hot = {}

    def start(self, live: Iterable[Place] | None) -> None:
        """Record where there are unfinished parts, before the first tick of the workers.

        Args:
            live: the sources and workers with unfinished parts; None if only the first tick can report them.
        """
        self._note_live(self._quiet.places if live is None else live)

    def add(self, parts: Parts, new: Collection[Place]) -> None:
        """Continue with new parts of sources.

        Args:
            parts: the parts of each source that each worker holds.
            new: the sources and workers with new parts.
        """
        parts = everywhere(parts, self._pool.names)
        self._quiet.add(parts, new)
        self._lifting, self._lifts, self._noted = Lifts(self._program, parts), {}, None
        self._note_live(self._live.union(new))

    def move(self, parts: Parts, move: PartMove, live: Iterable[Place] | None) -> None:
        """Continue with parts on another worker; their silence goes with them.

        Args:
            parts: the parts of each source that each worker holds.
            move: the move.
            live: the sources and workers with unfinished parts; None if only the next tick can report them.
        """
        self.reads.place(parts)
        for place in ((name, worker) for name in move.parts for worker in (move.before, move.after)):
            self._lags_by_place.pop(place, None)  # both workers report them again
            self._shares_by_place.pop(place, None)
        parts = everywhere(parts, self._pool.names)
        self._quiet.move(parts, move)
        self._lifting, self._lifts, self._noted = Lifts(self._program, parts), {}, None
        moved = {(name, move.after) for name in move.parts}
        self._note_live(self._live.union(moved) if live is None else live)

    def begin(
        self,
        *,
        polls: bool = True,
        explains: bool = False,
        asks_held: bool = False,
        final: bool = False,
        replays: tuple[Replay, ...] = (),
    ) -> Tick:
        """Return the next tick.

        Args:
            polls: whether sources are polled.
            explains: whether reports include the progress of operators in event time.
            asks_held: whether reports include the open results of operators.
            final: whether it is the last tick; it emits the epoch (watermark) `MAX`.
            replays: the requests about dead letters.
        """
        now, started = self.clock.read()
        given = self._pool.take() if polls and not final and self._pool.waiting else {}
        if given:
            self._note_live(self._live | places_of(given))
        quiet = self._quiet
        quiet.begin_tick(now)
        return Tick(
            number=self.number + 1,
            now=now,
            started=started,
            ended=self._ended,
            finished=self._finished,
            passed=quiet.passed,
            quiet=quiet.quiet,
            quiet_time=quiet.quiet_time,
            lifts=self._lifts,
            final=final,
            polls=polls,
            limit=self._pacing.limit,
            explains=explains,
            asks_held=asks_held,
            replays=replays,
            given=given,
            waiting=self._pool.waiting,
        )

    def end(self, tick: Tick, reports: Sequence[Report], seconds: float = 0.0) -> None:
        """Add up the reports of all workers and stages, once the sinks have received the output.

        Args:
            tick: the tick.
            reports: the reports.
            seconds: the duration of the tick.
        """
        self.number = tick.number
        gauges: Counter[str] | None = None
        polled = 0
        self.sums.add(reports)
        self.reads.note(reports)
        for it in reports:
            polled += it.polled
            if it.gauges:
                gauges = Counter() if gauges is None else gauges
                gauges.update(it.gauges)
            if it.lateness:
                merge_lateness(self.lateness, it.lateness)
            for name, sample in it.hot.items():
                self.hot.setdefault(name, {})[it.worker] = sample
        self.gauges, self.polled, self.seconds = gauges or {}, polled, seconds
        polls, sizes = [it.largest_poll for it in reports], [it.largest for it in reports]
        self._pacing.note(max(polls, default=0), max(sizes, default=1), seconds)
        if not tick.final:
            self._note_lags(reports)
            self._note_shares(reports)
            self._note_sources(tick, reports)

    def resume(self, quiet: QuietSources, finished: frozenset[Place]) -> None:
        """Continue as if this run had made the ticks of an earlier one, with no time in between; for tests.

        Args:
            quiet: the quiet sources after the last tick.
            finished: the sources and workers that had finished before it.
        """
        self._quiet, self._finished, self._noted = quiet, finished, None

    def follow(self, live: Iterable[Place], reports: Sequence[Report]) -> None:
        """Determine the sources that have ended, and the lifts of the next tick."""
        waiting: frozenset[str] = frozenset()
        if self._quiet.has_begun and (self._finished or self._lifting.wants_all):
            reached = [(it.worker, it.reached) for it in reports]
            self._lifts = self._lifting.after(reached, self._quiet.quiet, self._quiet.passed)
            waiting = self._lifting.waiting(self._lifts, reached)
        self._note_live(live, waiting)

    def _note_sources(self, tick: Tick, reports: Sequence[Report]) -> None:
        """Record the sources that emitted nothing, the time that test scripts skip, and the sources that have ended."""
        if tick.polls:
            self._quiet.end_tick([(name, it.worker) for it in reports for name in it.emitting])
        else:
            self._quiet.skip_tick()
        self.clock.skip(max((it.skipped for it in reports), default=_NO_TIME))
        live = {(name, it.worker): count for it in reports for name, count in it.live.items()}
        self._pool.note(live)
        self.follow(live, reports)

    def _note_live(self, live: Iterable[Place], waiting: frozenset[str] = frozenset()) -> None:
        self._live = frozenset(live)
        live = self._live | self._pool.places
        if (live, waiting) == self._noted:
            return
        self._noted = live, waiting
        names = {name for name, _ in live}.union(self._discovering)
        self._ended = self._sources.difference(waiting, names)
        self._finished = self._quiet.finished(with_waiting(live, self._quiet.places, self._discovering))
        self.unfinished = tuple(sorted(names))

    def _note_lags(self, reports: Iterable[Report]) -> None:
        found = {(name, it.worker): lags for it in reports for name, lags in it.lags.items()}
        if found:
            self._lags_by_place |= found
            lags: dict[str, dict[Any, int | None]] = {}
            for (name, _), by_part in sorted(self._lags_by_place.items(), key=itemgetter(0)):
                lags.setdefault(name, {}).update(by_part)
            self.lags = lags

    def _note_shares(self, reports: Iterable[Report]) -> None:
        found = {(name, it.worker): share for it in reports for name, share in it.shares.items()}
        if found:
            self._shares_by_place |= found
            shares: dict[str, list[Share | None]] = {}
            for (name, _), share in self._shares_by_place.items():
                shares.setdefault(name, []).append(share)
            for name in self._pool.waiting.intersection(shares):
                size = self._pool.size(name)
                shares[name].append(None if size is None else (0, size))
            self.shares = {name: total_share(it) for name, it in shares.items()}
