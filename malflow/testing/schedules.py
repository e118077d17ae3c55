"""Schedules of the events in a run: snapshots, stops, crashes and rescales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from malflow.testing.inputs import Feed
from malflow.words import plural

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["CRASHES", "Event", "Schedule", "Step", "description", "schedules"]

_LONGEST = 8
"""Steps of a schedule. Fewer: combinations of events are missed; more: slower tests, longer counterexamples."""

_SHOWN = 3
"""Records that a description lists one by one; of more it says their number."""


class Event(Enum):
    """An event between two ticks; the simplest come first, since shrinking prefers them."""

    STOP = "stop"
    SNAPSHOT = "snapshot"
    CRASH = "crash"
    RESCALE = "rescale"
    UNPREPARED = "crash before it is durable"
    UNCOMMITTED = "crash before the commit"
    UNDIVIDED = "crash before refused records are searched"
    DIVIDED = "crash before the dead letters are durable"
    AMENDED = "crash before the rest is committed"
    COMMITTED = "crash after the commit"


CRASHES: Final[Mapping[Event, tuple[str, str, int]]] = {
    Event.UNPREPARED: ("prepare", "after", 1),
    Event.UNCOMMITTED: ("commit", "before", 1),
    Event.UNDIVIDED: ("divide", "before", 1),
    Event.DIVIDED: ("divide", "after", 1),
    Event.AMENDED: ("commit", "before", 2),
    Event.COMMITTED: ("commit", "after", 1),
}
"""The call of an exactly-once sink at which a snapshot crashes; without such a call, the crash follows the snapshot."""


@dataclass(frozen=True, slots=True)
class Step:
    """Process `records` records, then apply `event`, continuing with `workers` workers."""

    records: int
    event: Event
    workers: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The initial number of workers and the steps of a run; the remaining records are processed after the last one."""

    workers: int
    steps: tuple[Step, ...] = ()


def schedules(
    parallelism: Sequence[int], records: int, *, rescale: bool, commits: bool = False
) -> SearchStrategy[Schedule]:
    """Return a strategy for schedules.

    Args:
        parallelism: the numbers of workers.
        records: the number of records.
        rescale: whether the number of workers changes.
        commits: whether snapshots crash at calls of exactly-once sinks.
    """
    from hypothesis import strategies as st  # noqa: PLC0415 - an optional dependency

    def schedule(workers: int) -> SearchStrategy[Schedule]:
        events = [it for it in Event if (rescale or it is not Event.RESCALE) and (commits or it not in CRASHES)]
        some = st.integers(0, max(2, records // 3))
        after = st.sampled_from(parallelism) if rescale else st.just(workers)
        steps = st.lists(st.builds(Step, some, st.sampled_from(events), after), max_size=_LONGEST)
        return st.builds(Schedule, st.just(workers), steps.map(tuple))

    return st.sampled_from(parallelism).flatmap(schedule)


def description(schedule: Schedule, feed: Feed) -> list[str]:
    """Return a description of a schedule, line by line."""
    lines = [f"start with {_workers(schedule.workers)}"]
    done, kept, workers = 0, 0, schedule.workers
    has_snapshot = False
    for step in schedule.steps:
        until = min(len(feed), done + step.records)
        lines.extend(_fed(feed, done, until))
        done = until
        after = "" if step.workers == workers else f" with {_workers(step.workers)}"
        match step.event:
            case Event.SNAPSHOT:
                lines.append("take a snapshot")
            case Event.STOP:
                lines.append(f"stop, which takes a snapshot, and restart from it{after}")
            case Event.CRASH:
                done, whence = kept, "from the last snapshot" if has_snapshot else "from the beginning"
                lines.append(f"crash, and restart {whence}{after}")
            case Event.UNPREPARED:
                done, whence = kept, "from the last snapshot" if has_snapshot else "from the beginning"
                lines.append(f"begin a snapshot, {step.event.value}, and restart {whence}{after}")
            case Event.RESCALE:
                lines.append(f"continue{after or ' with as many workers'}")
            case _:
                lines.append(f"take a snapshot, {step.event.value}, and restart from it{after}")
        if step.event not in (Event.CRASH, Event.UNPREPARED, Event.RESCALE):
            kept, has_snapshot = done, True
        if step.event is not Event.SNAPSHOT:
            workers = step.workers
    return [*lines, *_fed(feed, done, len(feed))]


def _fed(feed: Feed, start: int, end: int) -> Iterator[str]:
    """Yield a description of the records processed; by number if there are many."""
    count = end - start
    if count > _SHOWN:
        last = "all" if start == 0 else "the last"
        yield (
            f"process {last} {plural(count, 'record')}" if end == len(feed) else f"process records {start + 1} to {end}"
        )
    elif count:
        several = len({record.source for record in feed.records}) > 1
        told = (str(it) + (f" of '{it.source}'" if several else "") for it in feed.records[start:end])
        yield f"process {plural(count, 'record')}: {', '.join(told)}"


def _workers(count: int) -> str:
    return plural(count, "worker")
