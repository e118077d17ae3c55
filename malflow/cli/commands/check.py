"""``malflow check``: build a dataflow without running it, and list its mistakes and suspicious parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import click

from malflow.cli.output.documents import check_document
from malflow.cli.output.exits import Exit
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import FLOW, NUMBER, FlowCommand, output_options, script_arguments
from malflow.cli.output.output import Output
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import inspect_flow
from malflow.cli.running.script import Target, parsed
from malflow.config.settings import On, kind_of
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import check_deliveries
from malflow.errors import GraphError, MissingDependency
from malflow.nodes import (
    EpochsNode,
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
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.options import RunOptions
from malflow.runtime.progress.progress import unread_late
from malflow.runtime.transport.program_pickle import ON_SPARK, check_sources, dumps_program
from malflow.runtime.transport.sink_proxies import check_sinks, with_sink_proxies
from malflow.words import plural

__all__ = [
    "Finding",
    "check",
    "findings_of",
    "refusal_elsewhere",
]

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
    kind: Literal["unread", "late", "state", "snapshots", "elsewhere", "name"]
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
        layout = node.layout if isinstance(node, StatefulNode | EpochsNode) else None
        if layout is not None and layout.remark:
            yield Finding("warning", "name", node.name, layout.remark, vertex.location)
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


@click.command(cls=FlowCommand, short_help="Build a flow without running it, and list its mistakes.")
@click.argument("flow", type=FLOW)
@script_arguments
@click.option("--on", type=click.Choice(["single", "processes", "spark"]), help="Check it for this kind of runtime.")
@click.option("--persistence", metavar="URL", help="The store of the run; exactly-once sinks need one.")
@click.option("--call", type=NUMBER, default=1, metavar="N", help="The script's N-th run.")
@config_options
@output_options
def check(
    flow: str, arguments: tuple[str, ...], call: int, output: Output, configuration: Configuration, **_options: Any
) -> None:
    """Build a flow without running it, and list its mistakes.

    An error ends with exit code 3; warnings, such as a result that nothing reads, with 10; notes with 0. The script
    runs up to its first execute(), with everything that it does before; `flow.py:build` avoids that.
    """
    target = parsed(flow)

    def look(runtime: Runtime, program: Program) -> int:
        return _looked_at(runtime, program, target, output)

    write_log(output)
    inspect_flow(target, arguments, look, output, configuration.settings(target), call)


def _looked_at(runtime: Runtime, program: Program, target: Target, output: Output) -> int:
    options = declared_by(runtime).options
    check_deliveries(program, keeps=options.persistence.is_enabled)
    kind = kind_of(options)
    found = [*dict.fromkeys(findings_of(program, options, kind))]  # an operator may be several vertices
    if output.json:
        click.echo(check_document(target.title, kind, program, found))
    else:
        output.write(f"{target.title}: {', '.join(_counts(program))}, {_PLACES[kind]}")
        for line in _lines(found):
            output.write(line)
    return Exit.FOUND if any(it.level == "warning" for it in found) else Exit.DONE


_PLACES = {"single": "on one thread", "processes": "in several processes", "spark": "on Spark"}


def _counts(program: Program) -> Iterator[str]:
    states = sum(isinstance(it.node, StatefulNode) for it in program.vertices)
    counts: list[tuple[Any, str]] = [
        (len({it.node.name for it in program.vertices}), "operator"),
        (len(program.stages), "stage"),
        (len(program.sources), "source"),
        (len(program.sinks), "sink"),
        (states, "state"),
    ]
    yield from (plural(count, noun) for count, noun in counts)


def _lines(found: list[Finding]) -> Iterator[str]:
    for it in found:
        place = f" [{it.location}]" if it.location else ""
        yield f"  {it.level}: {it.message}{place}"
