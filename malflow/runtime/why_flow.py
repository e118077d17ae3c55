"""The way of records through a program, between two readings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from malflow.engine.plan import Program
from malflow.nodes import EpochsNode, ExchangeNode, Node, Port, SinkNode, SourceNode, TimestampsNode
from malflow.operators.epochs.generator import LATE
from malflow.runtime.progress import Progress
from malflow.runtime.time_table import TimeRow, TimeTable

__all__ = ["Flow", "Reading"]


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
