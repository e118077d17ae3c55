"""The meaning of patterns by enumeration: of words, and of the choices of events that read as one of them.

Events are those of one key, in order. The language of a pattern is the set of its words, cut behind as many events.
A choice gives some of the events to a step each, in order. It counts if it reads as a word, if each of its events can
be taken, and if none of the events between them had to be. Nothing is carried from one event to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from typing import Any

from tests.patterns.specs import Both, Either, Silence, Spec, Step, Then, Times, Tree, steps_in

__all__ = ["Choice", "Fate", "Meaning", "Moment", "Told", "TooManyWords", "words"]

Choice = tuple[tuple[int, str], ...]
"""The chosen events: the position of each, and its step's name."""

Moment = tuple[Any, int, int]
"""A time, 0 for an event and 1 for a deadline, and the event's position."""

Told = tuple[Choice, Any]
"""A choice, and the time when it is told."""

Absence = tuple[Step, Any]
"""A step that does not come, and for how long; None for the rest of the whole pattern's time."""

MOST_WORDS = 4_000


class TooManyWords(Exception):
    """The language is too large to be enumerated."""


@dataclass(frozen=True)
class Item:
    """One event of a word, and what may lie between it and the event before."""

    step: Step
    by: str = "then"
    within: Any = None
    without: Step | None = None
    absence: Absence | None = None


Word = tuple[tuple[Item, ...], Any]
"""The events, and the absence behind the last one, or None; `CUT` if there are more events."""

Words = dict[Word, None]

CUT = "cut"

ANY_STEP = Step("any", lambda _value: True)


def words(tree: Tree, most: int) -> Words:
    """Return the words, cut at so many events."""
    found: Words = {}
    match tree:
        case Step():
            found = {((Item(tree),), None) if most else ((), CUT): None}
        case Either(left, right):
            found = words(left, most) | words(right, most)
        case Both(steps):
            for order in permutations(steps):
                found |= linked([words(step, most) for step in order], Item(ANY_STEP), most)
        case Then(left, right, by, within, without):
            found = linked([words(left, most), words(right, most)], Item(ANY_STEP, by, within, without), most)
        case Silence(item, step, during):
            for items, end in words(item, most):
                found[items, (step, during) if items and end != CUT else end] = None
        case Times(item, low, high, by, within, without):
            found = repeated(words(item, most), low, high, Item(ANY_STEP, by, within, without), most)
    if len(found) > MOST_WORDS:
        raise TooManyWords
    return found


def repeated(once: Words, low: int, high: int | None, gap: Item, most: int) -> Words:
    """Return the words of an item several times."""
    found: Words = {}
    for count in range(low, (max(low, most + 1) if high is None else high) + 1):
        found |= linked([once] * count, gap, most)
    return found


def linked(parts: Sequence[Words], gap: Item, most: int) -> Words:
    """Return the words that are one of each part, one behind the other.

    The gap is that before each part but the first; of a part without events, neither gap nor absence is left.
    """
    found: Words = {((), None): None}
    for part in parts:
        longer: Words = {}
        for items, end in found:
            for more, last in part if end != CUT else [((), CUT)]:
                first = more[:1]
                if items and more:
                    first = (replace(gap, step=more[0].step, absence=end),)
                whole = items + first + more[1:]
                is_cut = len(whole) > most or last == CUT
                longer[whole[:most], CUT if is_cut else last if more else end] = None
        found = longer
        if len(found) > MOST_WORDS:
            raise TooManyWords
    return found


@dataclass
class Place:
    """A place in the language: the words that begin alike."""

    following: dict[Item, Place] = field(default_factory=dict)
    ends: dict[Absence | None, None] = field(default_factory=dict)


def language(spec: Spec, most: int) -> Place:
    """Return the place before the first event."""
    root = Place()
    for items, end in words(spec.tree, most):
        place = root
        for item in items:
            place = place.following.setdefault(item, Place())
        if items and end != CUT:
            place.ends[end] = None
    return root


@dataclass(frozen=True)
class Fate:
    """What became of a start.

    Attributes:
        name: "match", "used up", "timeout", "broken" or "open".
        time: when that was; None if it is open.
        choice: of a match or of the one that used the start up, its first choice; else the preferred one at the end.
    """

    name: str
    time: Any
    choice: Choice


class Chosen:
    """The values that a choice has given to steps."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self._pairs = list(pairs)

    def __getitem__(self, step: str) -> list[Any]:
        return [value for name, value in self._pairs if name == step]

    def first(self, step: str) -> Any:
        """Return the first value of a step, or None."""
        return next(iter(self[step]), None)

    def last(self, step: str) -> Any:
        """Return the last value of a step, or None."""
        return next(reversed(self[step]), None)


class Meaning:
    """A pattern's meaning for a history: times and values in order."""

    def __init__(self, spec: Spec, events: Sequence[tuple[Any, Any]]) -> None:
        self.spec = spec
        self.events = list(events)
        self.size = len(self.events)
        self._root = language(spec, self.size + 1)  # one may be open behind the last event
        self._order = {name: at for at, name in enumerate(dict.fromkeys(it.name for it in steps_in(spec.tree)))}
        self._places = cache(self._places_of)
        self._open = cache(self._open_at)

    # -- the reading of a choice

    def time(self, at: int) -> Any:
        """Return the time of an event."""
        return self.events[at][0]

    def holds(self, step: Step, at: int, choice: Choice) -> bool:
        """Whether an event fulfils a step, after what is chosen."""
        value = self.events[at][1]
        if not step.where(value):
            return False
        so_far = Chosen((name, self.events[chosen][1]) for chosen, name in choice)
        return step.given is None or bool(step.given(value, so_far))

    def takes(self, item: Item, at: int, choice: Choice) -> bool:
        """Whether an event can be the next one of a choice."""
        if not choice:
            return self.holds(item.step, at, choice) and self.is_quiet_before(at)
        first, last, now = self.time(choice[0][0]), self.time(choice[-1][0]), self.time(at)
        if self.spec.within is not None and now - first > self.spec.within:
            return False
        if item.within is not None and now - last > item.within:
            return False
        if item.absence is not None and now - last <= item.absence[1]:
            return False
        return self.holds(item.step, at, choice)

    def is_quiet_before(self, at: int) -> bool:
        """Whether a match may begin at an event, for what came before it."""
        if self.spec.absent is None:
            return True
        step, during = self.spec.absent
        return not any(
            self.holds(step, before, ()) and self.time(at) - self.time(before) <= during for before in range(at)
        )

    def _places_of(self, choice: Choice) -> list[Place]:
        """Return where the words are that a choice begins; none if it begins no word, or is not allowed."""
        if not choice:
            return [self._root]
        before, (at, name) = choice[:-1], choice[-1]
        taken = [it for it in self._open(before, at) if it.step.name == name and self.takes(it, at, before)]
        return [place.following[it] for place in self._places(before) for it in taken if it in place.following]

    def _open_at(self, choice: Choice, at: int) -> list[Item]:
        """Return the items that may be next when a choice has passed over all events up to one."""
        if not choice or at == choice[-1][0] + 1:
            return list(dict.fromkeys(it for place in self._places(choice) for it in place.following))
        passed = at - 1
        still_open = self._open(choice, passed)
        compelled = self.is_compelled(choice, passed)
        return [
            it
            for it in still_open
            if it.by == "then_any" or (it.by == "then" and not compelled)
            if it.without is None or not self.holds(it.without, passed, choice)
            if it.absence is None or not self.breaks(it.absence, passed, choice)
        ]

    def is_compelled(self, choice: Choice, at: int) -> bool:
        """Whether an event may not be passed over by what follows with `then` or `next`."""
        return any(it.by != "then_any" and self.takes(it, at, choice) for it in self._open(choice, at))

    def breaks(self, absence: Absence, at: int, choice: Choice) -> bool:
        """Whether an event ends an absence behind a choice."""
        return self.time(at) <= self.end_of(absence, choice) and self.holds(absence[0], at, choice)

    def end_of(self, absence: Absence, choice: Choice) -> Any:
        """Return when an absence behind a choice is over."""
        if absence[1] is None:
            return self.time(choice[0][0]) + self.spec.within
        return self.time(choice[-1][0]) + absence[1]

    def waits_at(self, choice: Choice, at: int) -> list[Absence]:
        """Return the absences at the end that no event before one has broken, whether they are over or not."""
        ends = {end for place in self._places(choice) for end in place.ends if end is not None}
        passed = range(choice[-1][0] + 1, at)
        return [
            end
            for end in ends
            if not any(
                self.time(it) <= self.end_of(end, choice)
                and (self.is_compelled(choice, it) or self.breaks(end, it, choice))
                for it in passed
            )
        ]

    # -- when a choice is a match

    def choices(self) -> Iterator[Choice]:
        """Yield every choice that begins a word."""

        def longer(choice: Choice, begin: int) -> Iterator[Choice]:
            for at in range(begin, self.size):
                for name in self._order:
                    more = (*choice, (at, name))
                    if self._places(more):
                        yield more
                        yield from longer(more, at + 1)

        return longer((), 0)

    def completed(self, choice: Choice) -> Moment | None:
        """Return when a choice is a match; None if it never is."""
        last = choice[-1][0]
        if any(None in place.ends for place in self._places(choice)):
            return self.time(last), 0, last
        over = [self.end_of(it, choice) for it in self.waits_at(choice, self.size)]
        return (min(over), 1, 0) if over else None

    def preference(self, choice: Choice) -> list[int]:
        """Return what orders choices of one start and one end: to take before to pass, and the first step first."""
        by = {at: self._order[name] for at, name in choice}
        return [by.get(at, len(self._order)) for at in range(self.size)]

    def found(self) -> list[tuple[Moment, Choice]]:
        """Return all matches in the order in which they are told."""
        every = [(moment, choice) for choice in self.choices() if (moment := self.completed(choice)) is not None]
        return sorted(every, key=lambda it: (it[0], it[1][0][0], self.preference(it[1])))

    def told(self, after: str) -> list[tuple[Moment, Choice]]:
        """Return the matches that are told, with their moments."""
        kept: list[tuple[Moment, Choice]] = []
        for moment, choice in self.found():
            start = choice[0][0]
            if after == "start" and any(other[0][0] == start for _, other in kept):
                continue
            if after == "end" and kept and start <= kept[-1][1][-1][0]:
                continue
            kept.append((moment, choice))
        return kept

    def matches(self, after: str) -> list[Told]:
        """Return the matches that are told, and when."""
        return [(choice, moment[0]) for moment, choice in self.told(after)]

    # -- what becomes of the starts

    def expiry(self, item: Item, choice: Choice) -> Any:
        """Return the last time at which an item can be next; None if there is none."""
        ends = []
        if self.spec.within is not None:
            ends.append(self.time(choice[0][0]) + self.spec.within)
        if item.within is not None:
            ends.append(self.time(choice[-1][0]) + item.within)
        return min(ends, default=None)

    def item_lasts(self, item: Item, choice: Choice) -> Moment | None:
        """Return when an item can no longer be next; None if it stays open."""
        end = self.expiry(item, choice)
        for at in range(choice[-1][0] + 1, self.size):
            if end is not None and end < self.time(at):
                break
            if item not in self._open(choice, at + 1):
                return self.time(at), 0, at
        return None if end is None else (end, 1, 0)

    def wait_lasts(self, absence: Absence, choice: Choice) -> Moment:
        """Return when an absence at the end is over, or broken."""
        end = self.end_of(absence, choice)
        for at in range(choice[-1][0] + 1, self.size):
            if self.time(at) <= end and absence not in self.waits_at(choice, at + 1):
                return self.time(at), 0, at
        return end, 1, 0

    def lasts(self, choice: Choice) -> Moment | None:
        """Return when a choice can neither be a match nor go on to be one; None if that does not come."""
        places, last = self._places(choice), choice[-1][0]
        moments: list[Moment | None] = [(self.time(last), 0, last)]
        moments += [self.item_lasts(it, choice) for place in places for it in place.following]
        moments += [self.wait_lasts(end, choice) for place in places for end in place.ends if end is not None]
        return latest(moments)

    def fates(self, after: str) -> dict[int, Fate]:
        """Return the fate of each start."""
        told = self.told(after)
        runs: dict[int, list[Choice]] = {}
        for choice in self.choices():
            runs.setdefault(choice[0][0], []).append(choice)
        return {start: self.fate(start, of_start, told, after) for start, of_start in runs.items()}

    def fate(self, start: int, runs: Sequence[Choice], told: Sequence[tuple[Moment, Choice]], after: str) -> Fate:
        """Return how a start ended."""
        for moment, choice in told:
            if choice[0][0] == start:
                return Fate("match", moment[0], choice)
        ends = [self.lasts(choice) for choice in runs]
        last = latest(ends)
        for moment, choice in told:
            is_broken = moment == last and not moment[1] and all(self.completed(run) != moment for run in runs)
            if after == "end" and start <= choice[-1][0] and (last is None or moment <= last) and not is_broken:
                return Fate("used up", moment[0], choice)
        at_end = [run for run, end in zip(runs, ends, strict=True) if end == last]
        preferred = min(at_end, key=self.preference)
        if last is None:
            return Fate("open", None, preferred)
        return Fate("timeout" if last[1] else "broken", last[0], preferred)

    def timeouts(self, after: str) -> list[Told]:
        """Return the starts that timed out, in the order in which they are told."""
        found = [fate for fate in self.fates(after).values() if fate.name == "timeout"]
        return [(it.choice, it.time) for it in sorted(found, key=lambda it: (it.time, it.choice[0][0]))]


def latest(moments: Sequence[Moment | None]) -> Moment | None:
    """Return the latest of moments; None, for a moment that does not come, is later than all."""
    return None if None in moments else max(it for it in moments if it is not None)
