"""The way of records through a program between two readings, and arithmetic with any timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from malflow.engine.plan import Program
from malflow.nodes import EpochsNode, ExchangeNode, Node, Port, SinkNode, SourceNode, TimestampsNode
from malflow.operators.epochs.generator import LATE
from malflow.operators.epochs.rounding import LimitedOutOfOrderness
from malflow.runtime.progress.progress import Progress
from malflow.runtime.progress.time_table import TimeRow, TimeTable
from malflow.words import value_text

__all__ = [
    "THOUSAND",
    "Flow",
    "Reading",
    "ahead_of_clock",
    "at_line",
    "bound_in",
    "bound_of",
    "is_in_thousands",
    "is_number",
    "is_past",
    "may_be_in_other_units",
    "minus",
    "misfit",
    "newest_epoch",
    "per_second_of",
    "plus",
    "unit_of",
]


class Reading(NamedTuple):
    """A reading of a run.

    Attributes:
        progress: its progress.
        table: the explanation of its time.
        is_answered: whether the run gave that explanation when it was asked; not if its tick took too long.
    """

    progress: Progress
    table: TimeTable
    is_answered: bool = True


class Flow:
    """The numbers of records that have passed each port of a program, in all and between two readings.

    After the end of a run, all of its records count as recent.

    Args:
        program: the program.
        before: the first reading.
        after: the second one.

    Attributes:
        program: as given.
        before: as given.
        after: as given.
    """

    def __init__(self, program: Program, before: Reading, after: Reading) -> None:
        self.program = program
        self.before = before
        self.after = after
        self._rows = {row.operator: row for row in after.table.rows}

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self.after.progress.status in ("ended", "failed")

    @property
    def passed(self) -> timedelta:
        """The time between the two readings."""
        return self.after.progress.at - self.before.progress.at

    def node(self, vertex: int) -> Node:
        """Return the node of a vertex."""
        return self.program.vertices[vertex].node

    def name(self, vertex: int) -> str:
        """Return the name of a vertex."""
        return self.node(vertex).name

    def vertex(self, name: str) -> int | None:
        """Return the vertex of an operator, its last one if it has several; None for an unknown name."""
        named = [at for at, it in enumerate(self.program.vertices) if it.node.name == name]
        operators = [at for at in named if not isinstance(self.node(at), ExchangeNode)]
        return max(operators or named, default=None)

    def row(self, vertex: int) -> TimeRow | None:
        """Return the row of an operator that waits for an epoch."""
        return self._rows.get(self.name(vertex))

    def row_before(self, vertex: int) -> TimeRow | None:
        """Return its row in the first reading."""
        return next((row for row in self.before.table.rows if row.operator == self.name(vertex)), None)

    # Records

    def given(self, port: Port) -> int:
        """Return the number of records that have left through a port."""
        return self._given(self.after.progress, port)

    def recently_given(self, port: Port) -> int:
        """Return the number of them between the two readings."""
        return self._recent(self.given(port), self._given(self.before.progress, port))

    def taken(self, vertex: int) -> int:
        """Return the number of records that a vertex has received."""
        return sum(map(self.given, self.program.vertices[vertex].inputs))

    def recently_taken(self, vertex: int) -> int:
        """Return the number of them between the two readings."""
        return sum(map(self.recently_given, self.program.vertices[vertex].inputs))

    def output(self, vertex: int) -> int:
        """Return the number of records that have left a vertex, or that a sink has received."""
        return self.taken(vertex) if self._is_sink(vertex) else sum(map(self.given, self.ports(vertex)))

    def recent_output(self, vertex: int) -> int:
        """Return the number of them between the two readings."""
        if self._is_sink(vertex):
            return self.recently_taken(vertex)
        return sum(map(self.recently_given, self.ports(vertex)))

    def count(self, vertex: int, counter: str) -> int:
        """Return a counter of an operator; 0 if it has none of this name."""
        return self.after.progress.counts.get(self.name(vertex), {}).get(counter, 0)

    def recent_count(self, vertex: int, counter: str) -> int:
        """Return the increase of the counter between the two readings."""
        before = self.before.progress.counts.get(self.name(vertex), {}).get(counter, 0)
        return self._recent(self.count(vertex, counter), before)

    def ports(self, vertex: int) -> list[Port]:
        """Return the outputs of a vertex."""
        return [Port(vertex, output) for output in range(self.node(vertex).outputs)]

    def _is_sink(self, vertex: int) -> bool:
        return isinstance(self.node(vertex), SinkNode)

    def _recent(self, after: int, before: int) -> int:
        is_new = after < before or self.has_ended  # a restart counts from 0
        return after if is_new else after - before

    def _given(self, progress: Progress, port: Port) -> int:
        """Return the records that have left a port; operators that pass on each record may share their name."""
        node, name = self.node(port.vertex), self.name(port.vertex)
        match node:
            case SourceNode():
                return progress.records.get(name, 0)
            case EpochsNode():
                late = progress.counts.get(name, {}).get(LATE, 0)
                return late if port.output else self._into(progress, port.vertex) - late
            case TimestampsNode():
                counts = progress.counts.get(name, {})
                return self._into(progress, port.vertex) - counts.get("skipped", 0) - counts.get("letters", 0)
            case ExchangeNode():
                return self._into(progress, port.vertex)
            case _:
                operator = progress.operators.get(name)
                known = operator.given if operator is not None else ()
                return known[port.output] if port.output < len(known) else 0

    def _into(self, progress: Progress, vertex: int) -> int:
        return sum(self._given(progress, port) for port in self.program.vertices[vertex].inputs)

    # The graph

    def upstream(self, vertex: int) -> Iterator[int]:
        """Yield a vertex and all that its records come from, the nearest first."""
        found = {vertex}
        for at in range(vertex, -1, -1):
            if at in found:
                yield at
                found.update(port.vertex for port in self.program.vertices[at].inputs)

    def is_upstream(self, vertex: int, of: int) -> bool:
        """Whether records of a vertex can reach another one."""
        return vertex in self.upstream(of)

    def leaves(self) -> list[int]:
        """Return the sinks, or the operators that nothing reads if there are none."""
        vertices = range(len(self.program.vertices))
        read = {port.vertex for vertex in self.program.vertices for port in vertex.inputs}
        return [at for at in vertices if self._is_sink(at)] or [at for at in vertices if at not in read]


THOUSAND = 1_000
"""The ratio of neighbouring units: seconds, milliseconds, microseconds, nanoseconds."""

_AHEAD = timedelta(minutes=1)
"""A timestamp that is this far ahead of the clock is of the future."""

_UNITS = ((5e8, 4e9, 1), (5e11, 4e12, 1_000), (5e14, 4e15, 1_000_000), (5e17, 4e18, 1_000_000_000))
"""Numbers that are times from 1985 to 2096, and how many of their units make a second."""


def newest_epoch(flow: Flow, generator: int) -> Any:
    """Return the greatest epoch of a generator over all workers, or None."""
    return flow.after.table.epochs.get(flow.name(generator))


def bound_of(flow: Flow, generator: int) -> Any:
    """Return the bound of the usual generator; None for another one."""
    return bound_in(flow.node(generator))


def bound_in(node: Node) -> Any:
    """Return the bound of the usual generator of a node; None for another one."""
    logic = node.logic if isinstance(node, EpochsNode) else None
    made = logic.keywords.get("generator") if isinstance(logic, partial) else None
    return made.bound if isinstance(made, LimitedOutOfOrderness) else None


def may_be_in_other_units(bound: Any, lateness: Any) -> bool:
    """Whether a bound a thousand times as long would have let the records pass that are late."""
    return is_number(lateness) and is_number(bound) and 0 < bound < lateness <= bound * THOUSAND


def misfit(newest: Any, bound: Any, lateness: Any, line: str) -> str | None:
    """Return a sentence about a bound in other units than the timestamps; None if it does not seem to be.

    Args:
        newest: the newest timestamp.
        bound: the bound.
        lateness: the greatest lateness of a record.
        line: the line of the bound, in parentheses after a space; may be empty.
    """
    per_second = per_second_of(newest)
    if per_second is None or per_second < THOUSAND or not may_be_in_other_units(bound, lateness):
        return None
    if bound % per_second == 0:  # whole seconds in the unit of the timestamps: it is meant so
        return None
    return (
        f"The timestamps, such as {value_text(newest)}, fit {unit_of(per_second)}, but the bound of "
        f"{value_text(bound)}{line} does not seem to: in this unit, write {value_text(bound * THOUSAND)}."
    )


def at_line(flow: Flow, vertex: int) -> str:
    """Return the line that adds a vertex, in parentheses after a space; empty if unknown."""
    location = flow.program.vertices[vertex].location
    return f" ({location})" if location else ""


def is_in_thousands(bound: Any) -> bool:
    """Whether a bound is a whole number of thousands."""
    return isinstance(bound, int) and bound >= THOUSAND and bound % THOUSAND == 0


def per_second_of(stamp: Any) -> int | None:
    """Return how many units of a timestamp make a second; None if it is not a number that fits a time."""
    if not is_number(stamp):
        return None
    return next((each for low, high, each in _UNITS if low <= stamp <= high), None)


def unit_of(per_second: int | None) -> str:
    """Return the unit of which so many make a second."""
    names = {1: "seconds", 1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
    return names.get(per_second or 0, "no unit of time")


def ahead_of_clock(flow: Flow, stamp: Any) -> timedelta | None:
    """Return by how much a timestamp is ahead of the clock of the run; None if it is not, or no time."""
    now = flow.after.table.now
    per_second = per_second_of(stamp)
    try:
        if isinstance(stamp, datetime):
            time = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
        elif isinstance(stamp, date):
            time = datetime(stamp.year, stamp.month, stamp.day, tzinfo=UTC)
        elif per_second is not None:
            time = datetime.fromtimestamp(stamp / per_second, UTC)
        else:
            return None
        # a time without a zone may be of any zone
        slack = timedelta(days=1) if isinstance(stamp, date) and getattr(stamp, "tzinfo", None) is None else _AHEAD
        return time - now if now is not None and time - now > slack else None
    except (OverflowError, ValueError):
        return None


def is_number(value: Any) -> bool:
    """Whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plus(stamp: Any, bound: Any) -> Any:
    """Return a timestamp plus a bound; None if that is unknown."""
    try:
        return None if stamp is None or bound is None else stamp + bound
    except Exception:  # noqa: BLE001 - times of the user's types may not be added
        return None


def minus(later: Any, earlier: Any) -> Any:
    """Return a difference; None if that is unknown."""
    try:
        return None if later is None or earlier is None else later - earlier
    except Exception:  # noqa: BLE001 - or subtracted
        return None


def is_past(stamp: Any, until: Any) -> bool:
    """Whether a timestamp is known to be at or after another."""
    try:
        return stamp is not None and bool(stamp >= until)
    except Exception:  # noqa: BLE001 - or compared
        return False
