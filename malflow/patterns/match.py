"""Matches of patterns, complete or so far."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from malflow.message import Timing
from malflow.words import did_you_mean

__all__ = ["BEFORE", "ORDINAL", "STEP", "TIME", "VALUE", "EndMatch", "Event", "Match", "Node", "SoFar"]

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


Node = tuple[Any, int, Any, Any, int]
"""An event of a match so far: the node of the previous event or None, the step's number, the timestamp, the value, and
the event's ordinal for the key.
"""

BEFORE: Final = 0  # the node of the previous event, or None
STEP: Final = 1  # the number of the step
TIME: Final = 2  # the timestamp
VALUE: Final = 3  # the value
ORDINAL: Final = 4  # the event's ordinal for the key


class Event(NamedTuple, Generic[V, T]):
    """An event of a match.

    Attributes:
        step: the name of the step that took it.
        value: its value.
        timestamp: its timestamp.
    """

    step: str
    value: V
    timestamp: T


@dataclass(frozen=True, slots=True)
class Match(Generic[K, V_co, T]):
    """A match of a pattern, or a partial match that timed out.

    Attributes:
        key: the key.
        start: the timestamp of the first event.
        end: when the match was complete: the timestamp of the last event, or the deadline of an absence at its end. For
            a timeout, the timestamp of the last event.
        events: the events with their steps, in order.
    """

    key: K
    start: T
    end: T
    events: tuple[Event[V_co, T], ...]
    steps: tuple[str, ...] = field(repr=False, compare=False, default=())

    @property
    def timing(self) -> Timing:
        """``Timing.END`` if the end of the input emitted it before it was due; otherwise ``Timing.FINAL``."""
        return Timing.FINAL

    def __getitem__(self, step: str) -> list[V_co]:
        """Return the values that a step took, in order.

        Raises:
            KeyError: if the pattern has no such step.
        """
        if step not in self.steps:
            raise _unknown(step, self.steps)
        return [event.value for event in self.events if event.step == step]

    def first(self, step: str) -> V_co | None:
        """Return the first value that a step took, or None.

        Raises:
            KeyError: if the pattern has no such step.
        """
        return next(iter(self[step]), None)

    def last(self, step: str) -> V_co | None:
        """Return the last value that a step took, or None.

        Raises:
            KeyError: if the pattern has no such step.
        """
        return next(reversed(self[step]), None)


class EndMatch(Match[K, V_co, T]):
    """A match emitted at the end of the input, before its deadline."""

    __slots__ = ()

    @property
    def timing(self) -> Timing:
        """``Timing.END``."""
        return Timing.END


class SoFar(Generic[V_co]):
    """The events of a match so far, for `given`; valid only during the call."""

    __slots__ = ("_numbers", "node")

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self.node: Node | None = None  # the last event; None for a match without events

    def __getitem__(self, step: str) -> list[V_co]:
        """Return the values that a step took, in order.

        Raises:
            KeyError: if the pattern has no such step.
        """
        return [*self._backwards(step)][::-1]

    def first(self, step: str) -> V_co | None:
        """Return the first value that a step took, or None.

        Raises:
            KeyError: if the pattern has no such step.
        """
        return next(iter(self[step]), None)

    def last(self, step: str) -> V_co | None:
        """Return the last value that a step took, or None.

        Raises:
            KeyError: if the pattern has no such step.
        """
        number, node = self._numbers.get(step), self.node
        if number is None:
            raise _unknown(step, self._numbers)
        while node is not None:
            if node[STEP] == number:
                value: V_co = node[VALUE]
                return value
            node = node[BEFORE]
        return None

    def _backwards(self, step: str) -> Iterator[V_co]:
        number, node = self._numbers.get(step), self.node
        if number is None:
            raise _unknown(step, self._numbers)
        while node is not None:
            if node[STEP] == number:
                yield node[VALUE]
            node = node[BEFORE]


def _unknown(step: object, steps: Collection[str]) -> KeyError:
    return KeyError(f"the pattern has no step {step!r}{did_you_mean(step, steps)}")
