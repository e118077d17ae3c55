"""Parts of sources appear, disappear, and are confirmed once a snapshot is durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from malflow.checks import checked_duration
from malflow.engine.parts.places import Place
from malflow.engine.plan import Program
from malflow.errors import GraphError, OperatorError
from malflow.nodes import Vertex
from malflow.operators.hosting.parts import check_gone, list_parts
from malflow.operators.hosting.source import Source

__all__ = ["Change", "Confirmations", "Discovery", "check_finished", "discovering", "with_waiting"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the parts of a source.

    Attributes:
        new: the parts that were not listed before.
        gone: the parts that are no longer listed.
    """

    new: Sequence[Any]
    gone: Sequence[Any]


def discovering(program: Program) -> dict[str, timedelta]:
    """Return the interval between listings, for each source with discovery.

    Raises:
        GraphError: if an interval is not a span of time above zero.
    """
    found: dict[str, timedelta] = {}
    for vertex in program.vertices:
        node = program.sources.get(vertex.node.name)
        every = None if node is None else getattr(node.source.impl, "discover_every", None)
        if every is None:
            continue
        fault = partial(_malformed, vertex)
        found[vertex.node.name] = checked_duration(fault, "discover_every", every, or_else="None")
    return found


def _malformed(vertex: Vertex, what: str) -> GraphError:
    name = vertex.node.name
    return GraphError(f"source '{name}' {what}", operator=name, location=vertex.location)


class Discovery:
    """Lists the parts of sources again when due; used between ticks.

    Args:
        program: the program.
        listed: the known parts of each source.

    Raises:
        GraphError: if a source has a ``discover_every`` that is not a span of time above zero.
    """

    def __init__(self, program: Program, listed: Mapping[str, Sequence[Any]]) -> None:
        self._program = program
        self._every = discovering(program)
        self._known = {name: list(listed[name]) for name in self._every}
        self._missing: dict[str, set[Any]] = {name: set() for name in self._every}
        now = time.monotonic()
        self._due = {name: now + every.total_seconds() for name, every in self._every.items()}

    def find(self) -> Iterator[tuple[str, Change | OperatorError]]:
        """List the parts of the sources that are due; yield each source's change, or its error.

        Each change is reported once. A source that fails is tried again when it is next due.

        Raises:
            OperatorError: if a source fails by an error with ``is_permanent`` True.
        """
        now = time.monotonic()
        for name in [name for name, due in self._due.items() if now >= due]:
            self._due[name] = now + self._every[name].total_seconds()
            try:
                listed = list_parts(name, self._program.sources[name].source, again=True)
            except OperatorError as error:
                if getattr(error.__cause__, "is_permanent", False):
                    raise
                yield name, error
                continue
            change = self._change(name, listed)
            if change.new or change.gone:
                yield name, change

    def _change(self, name: str, listed: Sequence[Any]) -> Change:
        known, missing, present = self._known[name], self._missing[name], set(listed)
        new = [part for part in listed if part not in set(known)]
        gone = [part for part in known if part not in present and part not in missing]
        known.extend(new)
        self._missing[name] = (missing | set(gone)) - present
        return Change(new, gone)


def with_waiting(live: Collection[Place], places: Iterable[Place], names: Collection[str]) -> set[Place]:
    """Return the places at which a source may still emit records.

    A source with discovery may finish on a worker as long as it has unfinished parts elsewhere. If all its parts are
    finished, it counts as unfinished everywhere, since any worker may receive the next part.

    Args:
        live: the places with unfinished parts.
        places: all places.
        names: the sources with discovery.
    """
    waiting = set(names).difference(name for name, _ in live)
    return {*live, *(place for place in places if place[0] in waiting)}


def check_finished(program: Program, name: str, gone: Iterable[Any], states: Mapping[int, Mapping[Any, Any]]) -> None:
    """Raise if parts that are no longer listed are unfinished, judging by their readers.

    Args:
        program: the program.
        name: the name of the source.
        gone: the parts.
        states: the positions, by worker and part.

    Raises:
        OperatorError: naming the part.
    """
    positions = {part: state for by_part in states.values() for part, state in by_part.items()}
    for part in gone:
        if part in positions:
            check_gone(name, program.sources[name].source, part, positions[part])


class Confirmations:
    """Remembers the positions of the readers that confirm them, at the ticks of snapshots.

    Args:
        sources: returns the operators that host the sources in this process.
    """

    def __init__(self, sources: Callable[[], Sequence[Source]]) -> None:
        self._sources = sources
        self._captured: dict[int, Mapping[str, Mapping[Any, Any]]] = {}
        self._confirmed: int | None = None

    def note(self, tick: int) -> None:
        """Record the positions in the last deltas for a tick."""
        positions: dict[str, dict[Any, Any]] = {}
        for source in self._sources():
            if source.confirms:
                positions.setdefault(source.context.operator_name, {}).update(source.positions())
        self._captured[tick] = positions

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        """Confirm the positions of a tick to the readers, unless its snapshot failed or they were confirmed before.

        Args:
            tick: the tick.
            snapshot: the id of its durable snapshot; None if it failed.

        Yields:
            The sources with a reader that could not confirm its position, with the error.
        """
        positions = self._captured.pop(tick, {})
        if snapshot is None or not positions or snapshot == self._confirmed:
            return
        self._confirmed = snapshot
        for source in self._sources():
            name = source.context.operator_name
            for error in source.confirm(positions.get(name, {})):
                self._confirmed = None
                yield name, error
