"""Find the matches of a pattern in a list, without a runtime, and explain why one was found or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from malflow.message import MAX, DataMessage, NoKey
from malflow.patterns.machine import Machine
from malflow.patterns.match import BEFORE, ORDINAL, STEP, TIME, Match, Node
from malflow.patterns.positions import Masks
from malflow.patterns.runs import FIRST, LAST, STATE, Emitted, LimitReached, Run, starts_of
from malflow.words import plural, short_repr

__all__ = [
    "ExplainingMachine",
    "Found",
    "explain",
    "find",
    "rows_of",
]

V = TypeVar("V")


class Found(list[Match[Any, V, Any]]):
    """The matches, in order of completion.

    Attributes:
        timeouts: the partial matches that timed out.
    """

    def __init__(self, matches: Iterable[Match[Any, V, Any]], timeouts: Iterable[Match[Any, V, Any]]) -> None:
        super().__init__(matches)
        self.timeouts = list(timeouts)


def rows_of(records: Iterable[Any]) -> list[tuple[Any, Any, Any]]:
    """Return the timestamps, keys and values of records, in the order of time.

    Args:
        records: messages; or values, with the timestamps 0, 1, 2, ...

    Raises:
        ValueError: if a timestamp is None or does not equal itself.
    """
    rows = [
        (it.timestamp, it.key, it.value) if isinstance(it, DataMessage) else (number, NoKey, it)
        for number, it in enumerate(records)
    ]
    for time, _, value in rows:
        if time is None or time != time:  # noqa: PLR0124 - as NaN
            raise ValueError(
                f"{time!r} is not a timestamp; set another one for the record with value {short_repr(value)}"
            )
    rows.sort(key=itemgetter(0))
    return rows


def find(machine: Machine, masks: Masks, records: Iterable[Any]) -> Found[Any]:
    """Return the matches that a machine finds in records, including those at the end of time."""
    rows = rows_of(records)
    bits = masks.of([value for _, _, value in rows])
    machine.walk((time, key, mask, value) for (time, key, value), mask in zip(rows, bits, strict=True))
    for key in machine.timers.due(MAX):
        machine.expire(key, MAX)
    machine.matches.sort()
    machine.timeouts.sort()
    return Found(machine.matches.values, machine.timeouts.values)


class _Story:
    """The outcome of the partial matches of one first event.

    Attributes:
        key: the key.
        run: the last state of the preferred partial match.
        end: how it ended; None while it is open.
    """

    def __init__(self, key: Any, run: Run) -> None:
        self.key = key
        self.run = run
        self.end: str | None = None


class ExplainingMachine(Machine):
    """A machine that records the outcome of each first event.

    Attributes:
        stories: the outcomes, by the ordinals of first events.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stories: dict[int, _Story] = {}
        self._mask = 0
        self._merges = self._only_span = False  # each first event has its own story

    def take(self, key: Any, mask: int, value: Any, time: Any) -> None:
        """Take an event, and record its effects."""
        self._mask = mask
        super().take(key, mask, value, time)

    def _settle(
        self, key: Any, before: Sequence[Run], after: list[Run], done: Sequence[Run], time: Any, ended: int
    ) -> None:
        begun = [run for run in (*done, *after) if run[FIRST][ORDINAL] == self.ordinal]
        self._note(key, (*before, *begun))
        matches, dropped = len(self.matches.keys), self.counters.dropped
        left = starts_of((*after, *done))
        super()._settle(key, before, after, done, time, ended)
        self._note(key, self.runs.get(key, ()))
        for run in (*before, *begun):
            start = run[FIRST][ORDINAL]
            if start not in left:
                self._end(run, f"ended {time} by {self._cause(run)}")
            elif len(self.matches.keys) > matches:
                self._end(run, f"used up by the match at {time}")
            elif self.counters.dropped > dropped:
                self._end(run, f"dropped {time} at the limit")

    def _expire_at(self, key: Any, runs: Sequence[Run], ends: Sequence[Any], when: Any) -> list[Run]:
        kept = super()._expire_at(key, runs, ends, when)
        self.runs[key] = kept
        for run in runs:
            self._end(run, f"used up by the match at {when}")
        return kept

    def _add(self, emitted: Emitted, key: Any, run: Run, time: Any) -> None:
        super()._add(emitted, key, run, time)
        self._note(key, (run,))
        story = self.stories[run[FIRST][ORDINAL]]
        if emitted is self.matches:
            story.end = f"match at {time}"
        elif story.end is None:
            story.end = f"timed out at {time}, waiting for {self._awaited(run)}"

    def _note(self, key: Any, runs: Iterable[Run]) -> None:
        """Record the progress of partial matches."""
        seen = set()
        for run in runs:
            start = run[FIRST][ORDINAL]
            if start not in seen:
                seen.add(start)
                story = self.stories.setdefault(start, _Story(key, run))
                story.run = run

    def _end(self, run: Run, end: str) -> None:
        """Record the end of a start, unless it is known."""
        story = self.stories[run[FIRST][ORDINAL]]
        open_starts = starts_of(self.runs.get(story.key, ()))
        if story.end is None and run[FIRST][ORDINAL] not in open_starts:
            story.end = end

    def _cause(self, run: Run) -> str:
        """Return the current event, and why it ended a partial match."""
        names, state = self.automaton.names, run[STATE]
        held = [name for number, name in enumerate(names) if self._mask >> number & 1]
        event = " and ".join(held) or "an event of no step"
        killers = {names[it.step.bit_length() - 1] for it in state.killers if self._mask & it.step}
        if killers:
            waits = {names[wait.step] for wait in state.waits}
            return f"{event} ({'then_not' if killers & waits else 'without'})"
        return f"{event} (next)" if any(it.by == "next" for it in state.options) else f"{event} (too late)"

    def _awaited(self, run: Run) -> str:
        """Return the steps that a partial match waits for."""
        names, state = self.automaton.names, run[STATE]
        if state.waits:
            return " or ".join(f"no {names[wait.step]}" for wait in state.waits)
        return " or ".join(dict.fromkeys(names[option.step] for option in state.options))

    def lines(self) -> Iterable[str]:
        """Return a line for each first event, in order."""
        has_keys = len({story.key for story in self.stories.values()}) > 1
        for story in self.stories.values():
            first, names = story.run[FIRST], self.automaton.names
            of_key = f" of {short_repr(story.key)}" if has_keys and story.key is not NoKey else ""
            end = story.end or f"still open, waiting for {self._awaited(story.run)}"
            yield f"start {first[TIME]} {names[first[STEP]]}{of_key}: reached {self._reached(story.run)}; {end}"

    def _reached(self, run: Run) -> str:
        steps: list[str] = []
        node: Node | None = run[LAST]
        while node is not None:
            steps.append(self.automaton.names[node[STEP]])
            node = node[BEFORE]
        groups = ((step, len(list(group))) for step, group in groupby(reversed(steps)))
        return ", ".join(f"{step} x{count}" if count > 1 else step for step, count in groups)


def explain(machine: ExplainingMachine, masks: Masks, records: Iterable[Any]) -> str:
    """Return the number of records that satisfy each step, and the outcome of each first event, as text."""
    rows = rows_of(records)
    bits = masks.of([value for _, _, value in rows])
    lines = [f"{plural(len(rows), 'record')}; " + ", ".join(_shares(machine.automaton.names, bits))]
    try:
        machine.walk((time, key, mask, value) for (time, key, value), mask in zip(rows, bits, strict=True))
    except LimitReached as error:
        return "\n".join([*lines, *machine.lines(), f"stopped: {error}"])
    return "\n".join([*lines, *machine.lines()])


def _shares(names: Sequence[str], bits: Sequence[int]) -> Iterable[str]:
    """Return the share of records that satisfy each step."""
    for number, name in enumerate(names):
        count = sum(mask >> number & 1 for mask in bits)
        yield f"{name}: {count} ({count / max(len(bits), 1):.0%})"
