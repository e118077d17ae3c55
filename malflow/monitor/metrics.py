"""The metrics of a run: one table, used for Prometheus, for OpenTelemetry, and for the documentation.

A metric has a name, a kind, a help text, labels, and a function that reads its values from a `Reading`. Every series
also has the labels ``job`` and ``runtime``. Metrics add no work while records flow. Distributions take one step per
tick; all other metrics are read from the progress of the run when somebody asks.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any, Final, Literal, TypeAlias

from malflow.monitor.documents import RunFacts
from malflow.monitor.meters import Buckets, Meters
from malflow.runtime.progress.progress import OperatorProgress, Progress
from malflow.runtime.progress.time_table import TimeTable
from malflow.store.redaction import safe_repr
from malflow.version import __version__

__all__ = ["COMMON", "METRICS", "Metric", "Reading", "Series"]

COMMON: Final = ("job", "runtime")
"""The labels of every metric."""

_MOST_PARTS = 256
"""The most parts of a source that have series of their own."""

Series: TypeAlias = tuple[tuple[str, ...], float | Buckets]
"""The values of the labels of a series, and its value."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts from which metrics are read.

    Attributes:
        facts: which run it is.
        progress: its progress.
        meters: the measurements of its monitor.
        now: the time, by a monotonic clock.
        times: its event time; None if unknown.
        grew: when the epoch of each generator was last seen to grow, by that clock.
    """

    facts: RunFacts
    progress: Progress
    meters: Meters
    now: float
    times: TimeTable | None = None
    grew: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: its name.
        kind: its kind.
        help: the meaning of its value.
        read: returns its series.
        labels: its labels besides the common ones.
        unit: the unit of its values, as OpenTelemetry names it; empty for counts.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Callable[[Reading], Iterable[Series]]
    labels: tuple[str, ...] = ()
    unit: str = ""


def _alone(read: Callable[[Reading], float | Buckets | None]) -> Callable[[Reading], Iterable[Series]]:
    """Return a function for a metric with one series, or with none while its value is unknown."""

    def series(it: Reading) -> Iterator[Series]:
        value = read(it)
        if value is not None:
            yield (), value

    return series


def _of_operators(read: Callable[[OperatorProgress], float | None]) -> Callable[[Reading], Iterable[Series]]:
    def series(it: Reading) -> Iterator[Series]:
        for name, operator in it.progress.operators.items():
            value = read(operator)
            if value is not None:
                yield (name,), value

    return series


def _counted(count: str) -> Callable[[Reading], Iterable[Series]]:
    """Return a function for a metric of the operators that have a count of this name."""

    def series(it: Reading) -> Iterator[Series]:
        for name, own in it.progress.counts.items():
            if count in own:
                yield (name,), own[count]

    return series


def _skew(it: OperatorProgress) -> float | None:
    busy = it.workers_busy
    return busy.greatest / busy.mean if busy.mean > 0 else None


def _in_flight(it: Reading) -> Iterator[Series]:
    for name, own in it.progress.counts.items():
        if "calls" in own and name in it.progress.operators:
            yield (name,), it.progress.operators[name].calls


def _given(it: Reading) -> Iterator[Series]:
    for name, operator in it.progress.operators.items():
        for port, given in enumerate(operator.given):
            yield (name, str(port)), given


def _lags(it: Reading) -> Iterator[Series]:
    for source, parts in it.progress.lag_by_part.items():
        known = [(lag, safe_repr(part)) for part, lag in parts.items() if lag is not None]
        for lag, part in sorted(known, reverse=True)[:_MOST_PARTS]:
            yield (source, part), lag


def _part_records(it: Reading) -> Iterator[Series]:
    for source, parts in it.progress.parts.items():
        most = nlargest(_MOST_PARTS, parts.items(), key=lambda pair: pair[1].records)
        for part, progress in most:
            yield (source, safe_repr(part), str(progress.worker)), progress.records


def _worker_parts(it: Reading) -> Iterator[Series]:
    for worker in it.progress.workers:
        yield (str(worker.worker),), worker.parts


def _silence(it: Reading) -> Iterator[Series]:
    for source, at in [*it.meters.silence.items()]:
        yield (source,), max(0.0, it.now - at)


def _part_silence(it: Reading) -> Iterator[Series]:
    for source, parts in {} if it.times is None else it.times.heard.items():
        known = [
            ((it.progress.at - at).total_seconds(), safe_repr(part)) for part, at in parts.items() if at is not None
        ]
        for silence, part in sorted(known, reverse=True)[:_MOST_PARTS]:
            yield (source, part), max(0.0, silence)


def _event_time_lag(it: Reading) -> Iterator[Series]:
    for name, epoch in {} if it.times is None else it.times.epochs.items():
        if isinstance(epoch, datetime):
            moment = epoch.replace(tzinfo=UTC) if epoch.tzinfo is None else epoch
            yield (name,), (it.progress.at - moment).total_seconds()


def _epoch_age(it: Reading) -> Iterator[Series]:
    for name, at in (it.grew or {}).items():
        yield (name,), max(0.0, it.now - at)


def _late(it: Reading) -> Iterator[Series]:
    for name, late in it.progress.late.items():
        yield (name,), late


def _snapshot_age(it: Reading) -> float | None:
    last = it.progress.last_snapshot
    return None if last is None or last.at is None else max(0.0, (it.progress.at - last.at).total_seconds())


def _unsaved(it: Reading) -> float | None:
    if it.progress.last_snapshot is None and it.progress.snapshot_interval is None:
        return None
    since = it.meters.unsaved_since
    return 0 if since is None else max(0.0, it.now - since)


def _snapshot_bytes(it: Reading) -> float | None:
    last = it.progress.last_snapshot
    return None if last is None else last.bytes


def _snapshot_seconds(it: Reading) -> Iterator[Series]:
    yield ("capture",), it.meters.captures.buckets
    yield ("write",), it.meters.writes.buckets


def _uncommitted(it: Reading) -> Iterator[Series]:
    for name, sink in it.progress.sinks.items():
        yield (name,), sink.uncommitted


def _of_patterns(count: str) -> Callable[[Reading], Iterable[Series]]:
    def series(it: Reading) -> Iterator[Series]:
        for name, own in it.progress.patterns.items():
            yield (name,), own[count]

    return series


def _info(_: Reading) -> Iterator[Series]:
    yield (__version__, platform.python_version()), 1


def _up(it: Reading) -> float:
    return 0 if it.progress.status in ("ended", "failed") else 1


_OPERATOR: Final = ("operator",)
_S: Final[Any] = "s"

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "malflow_records_in_total",
        "counter",
        "Records that the operator has received or, for a source, emitted, since the run started.",
        _of_operators(lambda it: it.taken),
        _OPERATOR,
    ),
    Metric(
        "malflow_records_out_total",
        "counter",
        "Records that have left an output of the operator.",
        _given,
        ("operator", "port"),
    ),
    Metric(
        "malflow_busy_seconds_total",
        "counter",
        "Time in which the operator processed records or waited for systems outside, summed over its workers; an "
        "estimate where ticks are short.",
        _of_operators(lambda it: it.busy),
        _OPERATOR,
        _S,
    ),
    Metric(
        "malflow_worker_skew",
        "gauge",
        "Busy time of the operator's busiest worker, as a multiple of the mean of its workers.",
        _of_operators(_skew),
        _OPERATOR,
    ),
    Metric(
        "malflow_batch_records",
        "gauge",
        "Records of the operator's largest batch in the last tick.",
        _of_operators(lambda it: it.largest),
        _OPERATOR,
    ),
    Metric(
        "malflow_polls_total",
        "counter",
        "Requests for records to the parts of a source.",
        _of_operators(lambda it: it.polls if it.kind == "source" else None),
        ("source",),
    ),
    Metric(
        "malflow_saturated_polls_total",
        "counter",
        "Those of them that got all that they asked for, so that there is likely a backlog.",
        _of_operators(lambda it: it.saturated_polls if it.kind == "source" else None),
        ("source",),
    ),
    Metric(
        "malflow_rows_made_total",
        "counter",
        "Records that came as columns and became Python objects at an operator.",
        _of_operators(lambda it: it.rows_made or None),
        ("operator",),
    ),
    Metric(
        "malflow_demotions_total",
        "counter",
        "Workers of an operator that gave up its arrays and continued record by record.",
        _of_operators(lambda it: it.demotions or None),
        ("operator",),
    ),
    Metric(
        "malflow_tick_seconds",
        "histogram",
        "Durations of ticks, without the work between two of them.",
        _alone(lambda it: it.meters.ticks.buckets),
        unit=_S,
    ),
    Metric(
        "malflow_source_lag",
        "gauge",
        "Input that waits after the position of a part, in the source's own unit; of 256 parts, those with most.",
        _lags,
        ("source", "part"),
    ),
    Metric(
        "malflow_part_records_total",
        "counter",
        "Records that a part has given; of 256 parts, those with most.",
        _part_records,
        ("source", "part", "worker"),
    ),
    Metric(
        "malflow_worker_parts",
        "gauge",
        "Parts that the worker reads and that have not ended, of all sources.",
        _worker_parts,
        ("worker",),
    ),
    Metric(
        "malflow_part_moves_total",
        "counter",
        "Parts that moved from a busy worker to an idle one.",
        _alone(lambda it: it.meters.moves),
    ),
    Metric(
        "malflow_source_silence_seconds",
        "gauge",
        "Time since the source has given a record.",
        _silence,
        ("source",),
        _S,
    ),
    Metric(
        "malflow_part_silence_seconds",
        "gauge",
        "Time since a part of the source that has not ended gave its last record, as read every 5 s at most; of 256 "
        "parts, those that are silent longest.",
        _part_silence,
        ("source", "part"),
        _S,
    ),
    Metric(
        "malflow_event_time_lag_seconds",
        "gauge",
        "Distance of the epoch (watermark) from the clock, where timestamps are datetimes.",
        _event_time_lag,
        _OPERATOR,
        _S,
    ),
    Metric(
        "malflow_epoch_age_seconds",
        "gauge",
        "Time since the epoch (watermark) last grew, as seen by readers of this metric; it is read every 5 s at most.",
        _epoch_age,
        _OPERATOR,
        _S,
    ),
    Metric("malflow_late_records_total", "counter", "Records that came after their epoch.", _late, _OPERATOR),
    Metric(
        "malflow_operator_errors_total",
        "counter",
        "Records at which the operator's function failed, and the run did not.",
        _of_operators(lambda it: it.failed),
        _OPERATOR,
    ),
    Metric(
        "malflow_dead_letters_total",
        "counter",
        "Records of those that became dead letters.",
        _of_operators(lambda it: it.letters),
        _OPERATOR,
    ),
    Metric(
        "malflow_skipped_total",
        "counter",
        "Records of those that were skipped.",
        _of_operators(lambda it: it.skipped),
        _OPERATOR,
    ),
    Metric(
        "malflow_retries_total",
        "counter",
        "Calls of a function that were made again.",
        _of_operators(lambda it: it.retries),
        _OPERATOR,
    ),
    Metric("malflow_letters", "gauge", "Dead letters that the operator keeps.", _counted("kept"), _OPERATOR),
    Metric(
        "malflow_state_keys",
        "gauge",
        "Keys of the operator's state in the last snapshot.",
        _of_operators(lambda it: it.keys),
        _OPERATOR,
    ),
    Metric("malflow_snapshot_age_seconds", "gauge", "Age of the last snapshot.", _alone(_snapshot_age), unit=_S),
    Metric(
        "malflow_unsaved_seconds",
        "gauge",
        "Time since the first record that no snapshot contains; none where nothing is kept.",
        _alone(_unsaved),
        unit=_S,
    ),
    Metric("malflow_snapshot_bytes", "gauge", "Size of the last snapshot.", _alone(_snapshot_bytes), unit="By"),
    Metric(
        "malflow_snapshot_interval_seconds",
        "gauge",
        "Time between two snapshots, as configured.",
        _alone(lambda it: it.progress.snapshot_interval),
        unit=_S,
    ),
    Metric(
        "malflow_snapshots_total",
        "counter",
        "Snapshots that were committed.",
        _alone(lambda it: it.meters.snapshots),
    ),
    Metric(
        "malflow_snapshot_failures_total",
        "counter",
        "Snapshots that could not be written.",
        _alone(lambda it: it.meters.failures),
    ),
    Metric(
        "malflow_snapshot_seconds",
        "histogram",
        "Durations of snapshots: of the capture, for which ticks wait, and of the write in the background.",
        _snapshot_seconds,
        ("phase",),
        _S,
    ),
    Metric(
        "malflow_uncommitted_epochs",
        "gauge",
        "Transactions of an exactly-once sink that have ended and wait for a snapshot.",
        _uncommitted,
        ("sink",),
    ),
    Metric("malflow_restarts_total", "counter", "Restarts after a failure.", _alone(lambda it: it.progress.restarts)),
    Metric(
        "malflow_rescales_total",
        "counter",
        "Changes of the number of workers.",
        _alone(lambda it: it.meters.rescales),
    ),
    Metric(
        "malflow_pattern_partials",
        "gauge",
        "Partial matches of a pattern.",
        _of_patterns("partials"),
        _OPERATOR,
    ),
    Metric("malflow_pattern_matches_total", "counter", "Matches of a pattern.", _of_patterns("matches"), _OPERATOR),
    Metric(
        "malflow_async_calls_total",
        "counter",
        "Calls of a map_async to a system outside.",
        _counted("calls"),
        _OPERATOR,
    ),
    Metric(
        "malflow_async_timeouts_total",
        "counter",
        "Those of them that got no answer in time.",
        _counted("timed_out"),
        _OPERATOR,
    ),
    Metric(
        "malflow_async_in_flight",
        "gauge",
        "Greatest number of calls that a worker had at a time in the last tick.",
        _in_flight,
        _OPERATOR,
    ),
    Metric(
        "malflow_breaker_opened_total",
        "counter",
        "How often the breaker of a map_async has opened.",
        _counted("opened"),
        _OPERATOR,
    ),
    Metric("malflow_parallelism", "gauge", "Number of workers.", _alone(lambda it: it.progress.parallelism)),
    Metric("malflow_up", "gauge", "Whether the run has not ended: 1 or 0.", _alone(_up)),
    Metric(
        "malflow_info", "gauge", "The versions of malflow and Python, as labels of a 1.", _info, ("version", "python")
    ),
)
"""The table, in the order of the documentation."""
