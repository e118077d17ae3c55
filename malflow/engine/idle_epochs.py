"""Advance the epochs (watermarks) of idle or finished generators, so that they do not hold back the others.

Such a generator would hold back the operators after an exchange, a union or a join. Three kinds advance ("are lifted")
to the least epoch of the active ones:

- a generator on a worker whose parts of the source have finished. The lift is part of its state: if the source has more
  records in a later run, those at or before the epoch are late;
- a generator whose source has finished on all workers. It follows the generators that its stream meets downstream, so
  that the windows that it feeds close before downstream windows do. It waits while an upstream operator, with the
  epochs of another generator, still holds records for it;
- with ``idle_after``, a generator that has been silent for that long. It follows the active generators that its stream
  meets downstream. If all of them are silent, their time advances from the greatest epoch with the clock.

The runtime finds the lifts between ticks from the reports of all workers, and makes them part of the next tick.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from malflow.engine.parts.places import PartMove, Parts, Place, places_of
from malflow.engine.plan import Program, epoch_groups, meetings
from malflow.engine.worker_time import feeds_of, places_near
from malflow.event_time.tick import Tick
from malflow.nodes import EpochsNode
from malflow.operators.epochs.idle_time import moved_on, silence_after
from malflow.operators.waiting import Reached

__all__ = [
    "Lifts",
    "Member",
    "QuietSources",
    "Reached",
    "followed",
    "lifts_of",
]

_NONE = timedelta(0)


class Member(NamedTuple):
    """A generator on one worker or in one part, at the beginning of the next tick.

    Attributes:
        name: the operator's name.
        epoch, is_finished: as in `Reached`.
        over: its silence beyond ``idle_after``; None if it has not been silent for that long.
        is_timed: whether silent members wait for it while it is not silent.
    """

    name: str
    epoch: Any
    is_finished: bool
    over: timedelta | None = None
    is_timed: bool = True


Reports = Sequence[tuple[int, Mapping[str, Sequence[Reached]]]]
"""Workers, with the progress of a stage's generators: see `malflow.engine.worker.Worker.reached`."""


class Lifts:
    """Determines the epochs to which generators are lifted.

    Args:
        program: the program.
        parts: the parts of each source that each worker holds.

    Attributes:
        wants_all: whether reports are needed in each tick, not only after a source has finished on a worker.
    """

    def __init__(self, program: Program, parts: Parts) -> None:
        nodes = {v.node.name: v.node for v in program.vertices if isinstance(v.node, EpochsNode)}
        self._nodes = nodes
        self._groups = epoch_groups(program)
        self._meetings = meetings(program)
        feeds = {v.node.name: feed[0] for v, feed in zip(program.vertices, feeds_of(program), strict=True) if feed}
        self._feeding = {name: feeds[name].all for name in nodes}
        workers = range(_workers(parts))
        self._is_near = {
            name: [any(parts[it][worker] for it in feeds[name].local) for worker in workers] for name in nodes
        }
        self._places = {name: [places_near(feeds[name], worker, parts) for worker in workers] for name in nodes}
        self.wants_all = program.lifts_silent

    def after(self, reports: Reports, quiet: frozenset[Place], quiet_time: timedelta) -> dict[str, Any]:
        """Return the lifts after a tick, by generator.

        Args:
            reports: the reports of the workers at the end of a tick.
            quiet: the sources and workers that emitted nothing in that tick.
            quiet_time: the growth of their silence.
        """
        coming = Tick(quiet=quiet, quiet_time=quiet_time)
        waited_for = {name for _, report in reports for name, them in report.items() if any(it.holds for it in them)}
        lifts: dict[str, Any] = {}
        for group in self._groups:
            known = [
                (name, worker, reached)
                for worker, report in reports
                for name in group
                for reached in report.get(name, ())
                if not reached.holds
            ]
            is_ending = all(
                reached.is_finished for _, _, reached in known
            )  # then there is no generator left to wait for
            waits = () if is_ending else waited_for
            members = [
                self._member(name, worker, reached, coming, is_waited_for=name in waits)
                for name, worker, reached in known
            ]
            lifts.update(lifts_of(members, self._group_time(members, quiet_time), self._meetings))
        return lifts

    def waiting(self, lifts: Mapping[str, Any], reports: Reports) -> frozenset[str]:
        """Return the sources that have not ended, since a finished generator that they feed still needs a lift."""
        finished = {
            name for _, report in reports for name, them in report.items() if any(it.is_finished for it in them)
        }
        return frozenset[str]().union(*(self._feeding[name] for name in finished.intersection(lifts)))

    def _member(self, name: str, worker: int, reached: Reached, coming: Tick, *, is_waited_for: bool) -> Member:
        idle_after, silence = self._nodes[name].idle_after, reached.silence
        if idle_after is not None and not reached.counts_tick:
            silence = silence_after(silence, self._places[name][worker], coming)
        is_idle = idle_after is not None and silence is not None and silence >= idle_after
        over = silence - idle_after if is_idle and silence is not None and idle_after is not None else None
        is_timed = idle_after is not None or self._is_near[name][worker]
        return Member(name, reached.epoch, reached.is_finished and not is_waited_for, over, is_timed)

    def _group_time(self, members: Sequence[Member], growth: timedelta) -> Any:
        """Return the epoch to which the silent members of a group are lifted, or None."""
        members = [it for it in members if it.is_timed]
        going = [it for it in members if not it.is_finished]
        busy = [it.epoch for it in going if it.over is None]
        if len(busy) == len(going):
            return None
        if busy:
            return None if None in busy else min(busy)
        known = [it.epoch for it in members if it.epoch is not None]
        after = min(it.over for it in going if it.over is not None)
        second = next((node.second for it in going if (node := self._nodes[it.name]).second is not None), None)
        return moved_on(max(known), max(after - growth, _NONE), after, second) if known else None


def lifts_of(members: Sequence[Member], time: Any, meetings: Sequence[Collection[str]] = ()) -> dict[str, Any]:
    """Return the lifts within a group, by generator: finished members to the least epoch of the active ones.

    Args:
        members: the members of the group.
        time: the epoch to which silent members are lifted, or None.
        meetings: the generators of streams that meet, for each place where streams meet.
    """
    lifts: dict[str, Any] = {}
    going: dict[str, list[Any]] = {it.name: [] for it in members}
    for it in members:
        if not it.is_finished:
            going[it.name].append(_lifted(it, time))
    ended = followed(meetings, going) if not all(going.values()) else {}
    for name, epochs in going.items():
        if None in epochs or (not epochs and name not in ended):
            continue
        least = min(epochs) if epochs else ended[name]
        lagging = (it.epoch for it in members if it.name == name and (it.is_finished or it.over is not None))
        if any(epoch is None or epoch < least for epoch in lagging):
            lifts[name] = least
    return lifts


def followed(meetings: Sequence[Collection[str]], going: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the epochs for generators that have finished everywhere, by generator.

    At a place where its stream meets others, a generator follows the least of them; with several places, the greatest
    of these, to hold none back. Other finished generators count with the epoch that they follow themselves.

    Args:
        meetings: the generators of streams that meet, for each place where streams meet.
        going: the epochs of the active members, by generator; None for a generator without one.

    >>> followed([{"a", "b"}, {"b", "c"}], {"a": [], "b": [], "c": [7, 5, None]})
    {'b': 5, 'a': 5}
    """
    known = {name: [epoch for epoch in epochs if epoch is not None] for name, epochs in going.items()}
    times = {name: min(epochs) for name, epochs in known.items() if epochs}
    found: dict[str, Any] = {}
    while True:
        new = {}
        for name in sorted(name for name, epochs in going.items() if not epochs and name not in found):
            near = [[times[it] for it in met if it in times] for met in meetings if name in met]
            if any(near):
                new[name] = max(min(epochs) for epochs in near if epochs)
        if not new:
            return found
        found |= new
        times |= new


def _lifted(member: Member, time: Any) -> Any:
    """Return the epoch of a member after the lift."""
    if member.over is None or time is None or (member.epoch is not None and member.epoch >= time):
        return member.epoch
    return time


def _workers(parts: Parts) -> int:
    return max((len(by_worker) for by_worker in parts.values()), default=0)


class QuietSources:
    """The sources that emitted nothing in the last tick of a run, and the time between its ticks.

    Before the first tick, these are all sources, but no time has passed.

    Args:
        parts: the parts of each source that each worker holds.

    Attributes:
        places: all sources and workers that have parts.
        quiet: the sources and workers that emitted nothing in the last tick.
        passed: the time from the start of the previous tick to that of the current one.
        quiet_time: the same for the previous tick.
        heard: the start of the last tick in which a source emitted records, by source and worker.
    """

    def __init__(self, parts: Parts) -> None:
        self.places = self.quiet = places_of(parts)
        self.passed = self.quiet_time = _NONE
        self.heard: dict[Place, datetime] = {}
        self._now: datetime | None = None

    def add(self, parts: Parts, new: Iterable[Place]) -> None:
        """Add parts between two ticks; on their workers, the silence starts over.

        Args:
            parts: the parts of each source that each worker holds.
            new: the sources and workers with new parts.
        """
        self.places = places_of(parts)
        self.quiet = self.quiet.intersection(self.places).difference(new)

    def move(self, parts: Parts, move: PartMove) -> None:
        """Move parts between two ticks; their silence goes with them.

        Args:
            parts: the parts of each source that each worker holds then.
            move: the move.
        """
        moved = {(name, move.after) for name in move.parts}
        silent = {
            (name, move.after)
            for name in move.parts
            if (name, move.before) in self.quiet
            and ((name, move.after) in self.quiet or (name, move.after) not in self.places)
        }
        self.places = places_of(parts)
        self.quiet = self.quiet.intersection(self.places).difference(moved) | silent

    @property
    def has_begun(self) -> bool:
        """Whether there has been a tick."""
        return self._now is not None

    def begin_tick(self, now: datetime) -> None:
        """Record the start of a tick."""
        self.quiet_time, self.passed = self.passed, _NONE if self._now is None else now - self._now
        self._now = now

    def end_tick(self, emitting: Iterable[Place]) -> None:
        """Record which sources emitted records in the tick."""
        emitting = set(emitting)
        self.quiet = self.places - emitting
        if self._now is not None:
            self.heard.update(dict.fromkeys(emitting, self._now))

    def skip_tick(self) -> None:
        """Exclude a tick in which sources were not polled."""
        self.quiet, self.passed, self._now = self.places, _NONE, None

    def finished(self, live: Container[Place]) -> frozenset[Place]:
        """Return the places without unfinished parts."""
        return frozenset(place for place in self.places if place not in live)
