"""Schedules of the events in a run: snapshots, stops, crashes and rescales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from malflow.diagnostics import short_repr
from malflow.testing.inputs import Feed

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Event", "Schedule", "Step", "description", "schedules"]

_LONGEST = 8
_SHOWN = 3


class Event(Enum):
    """An event between two ticks; the simplest come first, since shrinking prefers them."""

    STOP = "stop"
    SNAPSHOT = "snapshot"
    CRASH = "crash"
    RESCALE = "rescale"


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


def schedules(parallelism: Sequence[int], records: int, *, rescale: bool) -> SearchStrategy[Schedule]:
    """Return a strategy for schedules of `records` records; without `rescale` the number of workers is constant."""
    from hypothesis import strategies as st  # noqa: PLC0415 - an optional dependency

    def schedule(workers: int) -> SearchStrategy[Schedule]:
        events = [event for event in Event if rescale or event is not Event.RESCALE]
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
            case Event.RESCALE:
                lines.append(f"continue{after or ' with as many workers'}")
        if step.event in (Event.SNAPSHOT, Event.STOP):
            kept, has_snapshot = done, True
        if step.event is not Event.SNAPSHOT:
            workers = step.workers
    return [*lines, *_fed(feed, done, len(feed))]


def _fed(feed: Feed, start: int, end: int) -> Iterator[str]:
    """Yield a description of the records processed; by number if there are many."""
    count = end - start
    if count > _SHOWN:
        last = "all" if start == 0 else "the last"
        yield f"process {last} {count} records" if end == len(feed) else f"process records {start + 1} to {end}"
    elif count:
        several = len({record.source for record in feed.records}) > 1
        told = (short_repr(it.value) + (f" of '{it.source}'" if several else "") for it in feed.records[start:end])
        yield f"process {count} record{'s' if count > 1 else ''}: {', '.join(told)}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
