"""What is suspicious about a dataflow that can start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from malflow.config.settings import On
from malflow.engine.plan import Program
from malflow.errors import GraphError, MissingDependency
from malflow.nodes import (
    ExchangeNode,
    KeyNode,
    Port,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
    Vertex,
)
from malflow.operators.stateless import Filter, FilterMap, FlatMap, Flatten, Map, MapWithKey, Sample
from malflow.runtime.options import RunOptions
from malflow.runtime.progress.progress import unread_late
from malflow.runtime.transport.program_pickle import ON_SPARK, check_sources, dumps_program
from malflow.runtime.transport.sink_proxies import check_sinks, with_sink_proxies

__all__ = ["Finding", "findings_of", "refusal_elsewhere"]

_WITHOUT_EFFECT = (Filter, FilterMap, FlatMap, Flatten, Map, MapWithKey, Sample)
"""Operators that are there for their results; others may be there for their effects, or for a state that is asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something suspicious about an operator.

    Attributes:
        level: ``"warning"`` for a likely mistake, ``"note"`` for something to know.
        kind: which of the findings it is.
        operator: the name of the operator.
        message: a sentence.
        location: ``file:line`` of the operator, or None.
    """

    level: Literal["warning", "note"]
    kind: Literal["unread", "late", "state", "snapshots", "elsewhere"]
    operator: str
    message: str
    location: str | None


def findings_of(program: Program, options: RunOptions, kind: On) -> Iterator[Finding]:
    """Yield suspicious facts about a program with the options of a run.

    Args:
        program: the program.
        options: the options.
        kind: the kind of the runtime.

    Raises:
        GraphError: if it can't run on this kind.
    """
    yield from _unread(program)
    yield from _state(program, options)
    refusal = refusal_elsewhere(program, kind)
    if refusal is None:
        return
    if kind != "single":
        raise refusal
    message = f"it runs in one process only: {refusal.reason}"
    yield Finding("note", "elsewhere", refusal.operator or "", message, refusal.location)


def _unread(program: Program) -> Iterator[Finding]:
    read = {port for vertex in program.vertices for port in vertex.inputs}
    late = unread_late(program)
    for index, vertex in enumerate(program.vertices):
        name = vertex.node.name
        unread = [output for output in range(_outputs(vertex)) if Port(index, output) not in read]
        if unread and _is_for_its_result(vertex):
            which = f"output {unread[0]}" if isinstance(vertex.node, SplitNode) else "the result"
            message = f"nothing reads {which} of '{name}'; call .sink() on it, or leave the operator out"
            yield Finding("warning", "unread", name, message, vertex.location)
        if name in late:
            message = f"late records of '{name}' are dropped; send .late of its result to a sink to see them"
            yield Finding("note", "late", name, message, vertex.location)


def _outputs(vertex: Vertex) -> int:
    return vertex.node.outputs


def _is_for_its_result(vertex: Vertex) -> bool:
    node = vertex.node
    if isinstance(node, StatelessNode):
        return getattr(node.logic, "func", node.logic) in _WITHOUT_EFFECT
    return isinstance(node, SourceNode | KeyNode | ExchangeNode | TimestampsNode | SplitNode | UnionNode)


def _state(program: Program, options: RunOptions) -> Iterator[Finding]:
    keeps = options.persistence.is_enabled
    for vertex in program.vertices:
        node = vertex.node
        if isinstance(node, StatefulNode) and not keeps:
            message = f"the state of '{node.name}' is not kept; pass persistence=, or --persistence PATH to malflow run"
            yield Finding("note", "state", node.name, message, vertex.location)
        if isinstance(node, SinkNode) and node.is_transactional and keeps and options.snapshots is None:
            message = (
                f"sink '{node.name}' commits with snapshots, and no snapshot is taken before the end of the run; pass "
                "snapshots=timedelta(seconds=10)"
            )
            yield Finding("warning", "snapshots", node.name, message, vertex.location)


def refusal_elsewhere(program: Program, kind: On) -> GraphError | None:
    """Return the error that several processes would raise; None if they can run the program."""
    place = ON_SPARK if kind == "spark" else "in several processes"
    try:
        check_sources(program, place)
        check_sinks(program)
        dumps_program(with_sink_proxies(program), place)
    except GraphError as error:
        return error
    except MissingDependency:
        return None  # it can't be known
    return None
