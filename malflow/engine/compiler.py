"""Compiles a graph to a program of stages, and sets policies for failed records: checks of the code's, and others.

A worker never needs this module, nor the graph: its process does not import them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from malflow.engine.plan import Channel, Program, Stage, Step, written_files
from malflow.errors import GraphError
from malflow.failures import OnError, Retry
from malflow.graph import Graph, stages_of
from malflow.nodes import (
    LETTERS_OUTPUT,
    ExchangeNode,
    Node,
    Port,
    SinkNode,
    SourceNode,
    StatefulNode,
    StatelessNode,
    TellsBy,
    TimestampsNode,
    Vertex,
)
from malflow.operators.calls.calling_out import CallingOut
from malflow.operators.windows.local_aggregate import LocalAggregate
from malflow.partitioners import Partitioner, rendezvous_select
from malflow.records.rows import ReadField
from malflow.words import did_you_mean

__all__ = ["compile_graph", "with_policies"]


def compile_graph(graph: Graph) -> Program:
    """Complete a graph and cut it into stages, by `malflow.graph.stages_of`.

    Raises:
        GraphError: if the graph can't be completed.
    """
    graph.close()
    vertices = tuple(graph.vertices)
    _check_targets(vertices)
    _check_policies(vertices)
    levels = stages_of(vertices)
    channels = _channels(vertices, levels)
    stages = tuple(_stage(vertices, levels, level, channels) for level in range(max(levels, default=-1) + 1))
    return Program(vertices, stages, channels)


def _channels(vertices: tuple[Vertex, ...], levels: list[int]) -> tuple[Channel, ...]:
    """Return the edges that lead to a later stage, numbered in the order of their targets."""
    telling = _telling(vertices)
    edges = (
        (port, target, edge)
        for target, vertex in enumerate(vertices)
        for edge, port in enumerate(vertex.inputs)
        if levels[port.vertex] < levels[target]
    )
    return tuple(
        Channel(
            number,
            port,
            target,
            edge,
            _partitioner(vertices[target].node),
            vertices[target].node.name,
            _fields_read(vertices, target),
            _local_of(vertices, target),
            telling[target],
        )
        for number, (port, target, edge) in enumerate(edges)
    )


def _telling(vertices: Sequence[Vertex]) -> list[TellsBy]:
    """Return, for each vertex, the partitions of time by which it, or an operator after it, tells epochs apart."""
    telling = [vertex.node.tells_by for vertex in vertices]
    for index, vertex in reversed([*enumerate(vertices)]):
        passed = () if isinstance(vertex.node, TimestampsNode) else telling[index]  # new timestamps end epochs
        for port in vertex.inputs if passed != () else ():
            before = telling[port.vertex]
            both = None if passed is None or before is None else {id(it): it for it in (*before, *passed)}
            telling[port.vertex] = None if both is None else tuple(both.values())
    return telling


def _fields_read(vertices: tuple[Vertex, ...], exchange: int) -> Mapping[str, ReadField] | None:
    """Return the fields that all readers of an exchange need; None if one of them needs whole values.

    Several readers may name different functions alike, so their functions need whole values.
    """
    readers = [vertex.node for vertex in vertices if any(port.vertex == exchange for port in vertex.inputs)]
    fields: dict[str, ReadField] = {}
    for node in readers:
        if not isinstance(node, StatefulNode) or node.reads is None:
            return None
        fields |= node.reads
    if len(readers) > 1 and not all(isinstance(field, str | int) for field in fields.values()):
        return None
    return fields if readers and isinstance(vertices[exchange].node, ExchangeNode) else None


def _local_of(vertices: tuple[Vertex, ...], exchange: int) -> Callable[[], LocalAggregate] | None:
    """Return a function that makes the aggregation of an exchange's records, if it may precede the exchange.

    The order of records must be that of their senders: by epochs downstream, records without epochs are taken in turn.
    """
    readers = [vertex.node for vertex in vertices if any(port.vertex == exchange for port in vertex.inputs)]
    if len(readers) != 1 or not isinstance(readers[0], StatefulNode) or _is_timed(vertices, exchange):
        return None
    return readers[0].local if _partitioner(vertices[exchange].node) is rendezvous_select else None


def _partitioner(node: Node) -> Partitioner | None:
    return node.partitioner if isinstance(node, ExchangeNode) else None


def _check_targets(vertices: tuple[Vertex, ...]) -> None:
    """Check that no two sinks write to the same file."""
    taken: dict[str, tuple[str, object]] = {}
    for vertex, impl, target in written_files(vertices):
        name = vertex.node.name
        other, holder = taken.setdefault(target, (name, impl))
        if holder is not impl:
            raise GraphError(
                f"sinks '{other}' and '{name}' both write to '{target}'; use a separate file for each, or merge their "
                "streams by .union() and write them with one sink",
                operator=name,
                location=vertex.location,
            )


def _stage(vertices: tuple[Vertex, ...], levels: list[int], level: int, channels: tuple[Channel, ...]) -> Stage:
    outputs = tuple(channel for channel in channels if levels[channel.source.vertex] == level)
    inputs = tuple(channel for channel in channels if levels[channel.target] == level)
    members = [index for index in range(len(vertices)) if levels[index] == level]
    return Stage(tuple(_step(vertices, levels, index, outputs) for index in members), inputs, outputs)


def _step(vertices: tuple[Vertex, ...], levels: list[int], index: int, outputs: tuple[Channel, ...]) -> Step:
    *ports, letters = [Port(index, output) for output in (*range(vertices[index].node.outputs), LETTERS_OUTPUT)]
    consumers = {
        output: tuple(
            (target, edge)
            for target, vertex in enumerate(vertices)
            for edge, port in enumerate(vertex.inputs)
            if port == output and levels[target] == levels[index]
        )
        for output in (*ports, letters)
    }
    leaving = {
        port: tuple(channel.number for channel in outputs if channel.source == port) for port in (*ports, letters)
    }
    return Step(
        index,
        max(1, len(vertices[index].inputs)),
        _is_timed(vertices, index),
        tuple(consumers[port] for port in ports),
        tuple(leaving[port] for port in ports),
        consumers[letters],
        leaving[letters],
    )


def _is_timed(vertices: tuple[Vertex, ...], index: int) -> bool:
    reached = {index}
    for target, vertex in enumerate(vertices):
        if any(port.vertex in reached for port in vertex.inputs):
            if vertex.node.issues_epochs:
                return True
            reached.add(target)
    return False


# Policies


def _check_policies(vertices: Sequence[Vertex]) -> None:
    """Check the policies of the code."""
    for vertex in _letter_readers(vertices):
        if vertex.node.on_error is not None and vertex.node.on_error.may_keep:
            raise _letters_of_letters(vertex)
    taken = _letters_taken(vertices)
    for vertex in vertices:
        parks = vertex.node.on_error is not None and vertex.node.on_error.fate == "park"
        if parks and (error := _no_parking(vertex, taken)) is not None:
            raise error


def _calls_out(node: Node) -> bool:
    """Whether an operator makes concurrent calls. These have their own retry."""
    return isinstance(node, StatelessNode) and isinstance(node.logic, CallingOut)


def _letter_readers(vertices: Sequence[Vertex]) -> Iterator[Vertex]:
    """Yield the operators downstream of dead letters."""
    reached: set[int] = set()
    for index, vertex in enumerate(vertices):
        if vertex.has_letters or any(port.vertex in reached for port in vertex.inputs):
            reached.add(index)
            yield vertex


def _letters_of_letters(vertex: Vertex) -> GraphError:
    """Return the error for an operator that processes dead letters and could create more of them."""
    name = vertex.node.name
    message = f"operator '{name}' processes dead letters, and can only fail or skip; write on_error='fail' or 'skip'"
    return GraphError(message, operator=name, location=vertex.location)


def _letters_taken(vertices: Sequence[Vertex]) -> frozenset[str]:
    """Return the operators that have their dead letters read as a stream."""
    ports = (port for vertex in vertices for port in vertex.inputs if port.output == LETTERS_OUTPUT)
    return frozenset(vertices[port.vertex].node.name for port in ports)


def _no_parking(vertex: Vertex, taken: Collection[str]) -> GraphError | None:
    """Return the error for an operator that can't have the policy ``"park"``; None if it can.

    Args:
        vertex: the operator.
        taken: the operators that have their dead letters read as a stream.
    """
    name = vertex.node.name
    if isinstance(vertex.node, SourceNode):
        reason = "a source has no keys before its records are read; write on_error='dead_letter'"
    elif isinstance(vertex.node, SinkNode):
        reason = "a sink writes the later records of a key all the same; write on_error='dead_letter'"
    elif vertex.node.placed_by is None:
        reason = (
            "its input is not distributed by .key_distribute(), so the records of a key may be on "
            "several workers; call .key_distribute() before it, or write on_error='dead_letter'"
        )
    elif name in taken:
        reason = (
            "on_dead_letters() takes its letters, so later records of a key could not wait for them; write "
            "on_error='dead_letter', or leave it out of operators="
        )
    else:
        return None
    message = f"operator '{name}' can't have on_error='park': {reason}"
    return GraphError(message, operator=name, location=vertex.location)


def with_policies(
    program: Program,
    policies: Mapping[str, OnError],
    default: OnError | None = None,
    retries: Mapping[str, Retry] = MappingProxyType({}),
) -> Program:
    """Return a program with other policies for failed records.

    Args:
        program: the program.
        policies: the policies by operator; they precede the policies of the code.
        default: the policy of all other operators that have the policy to fail in the code; None leaves them. With
            ``"park"``, operators without keys that an exchange has distributed keep dead letters.
        retries: how calls of an operator's function are retried, by operator, whatever its policy.

    Raises:
        GraphError: if there is no such operator, or it can't have a policy or a retry.
    """
    vertices = program.vertices
    nodes = [vertex.node for vertex in vertices]
    guarded = {node.name: node.on_error for node in nodes if node.on_error is not None}
    calling = {node.name for node in nodes if _calls_out(node)}.intersection(retries)
    for name in (*policies, *retries):
        if name not in guarded and name not in calling:
            location = next((vertex.location for vertex in vertices if vertex.node.name == name), None)
            raise GraphError(
                _refusal(name, {node.name for node in nodes}, is_retry=name not in policies),
                operator=name,
                location=location,
            )
    for vertex in _letter_readers(vertices):
        policy = policies.get(vertex.node.name, None if isinstance(vertex.node, SinkNode) else default)
        if vertex.node.on_error is not None and policy is not None and policy.may_keep:
            raise _letters_of_letters(vertex)
    taken = _letters_taken(vertices)
    for vertex in vertices:
        parks = vertex.node.name in policies and policies[vertex.node.name].fate == "park"
        if parks and (error := _no_parking(vertex, taken)) is not None:
            raise error
    chosen = dict(policies)
    if default is not None:
        of_letters = {vertex.node.name for vertex in _letter_readers(vertices)}
        never = [
            vertex
            for vertex in vertices
            if (held := vertex.node.on_error) and held.fate == "fail" and not _writes_letters(vertex, of_letters)
        ]
        chosen = {vertex.node.name: _fitting(default, vertex, taken) for vertex in never} | chosen
    for name, held in guarded.items():
        if name not in calling and (retry := retries.get(name, held.retry)) is not None:
            chosen[name] = _with_retry(name, chosen.get(name, held), retry)
    return replace(program, vertices=tuple(_set(it, chosen, retries) for it in vertices), policies=chosen)


def _writes_letters(vertex: Vertex, of_letters: Collection[str]) -> bool:
    """Whether a sink writes dead letters, for which a default policy does not count."""
    return isinstance(vertex.node, SinkNode) and vertex.node.name in of_letters


def _with_retry(name: str, policy: OnError, retry: Retry) -> OnError:
    """Return a policy with a retry, unless it has one.

    Raises:
        GraphError: if the retry is too long.
    """
    try:
        return replace(policy, retry=policy.retry or retry)
    except GraphError as error:
        raise GraphError(f"operator '{name}' can't have this retry: {error.reason}", operator=name) from None


def _fitting(default: OnError, vertex: Vertex, taken: Collection[str]) -> OnError:
    """Return the default policy for an operator: dead letters if the default is to park and it can't."""
    if default.fate == "park" and _no_parking(vertex, taken) is not None:
        return replace(default, fate="dead_letter")
    return default


def _set(vertex: Vertex, policies: Mapping[str, OnError], retries: Mapping[str, Retry]) -> Vertex:
    """Return an operator with its policy or retry, if it is a source or calls out, and so applies that itself.

    Raises:
        GraphError: if it can't have it.
    """
    node = vertex.node
    if isinstance(node, SourceNode) and node.name in policies:
        try:
            return replace(vertex, node=node.with_policy(policies[node.name]))
        except GraphError as error:
            raise GraphError(
                f"source '{node.name}' can't have this policy: {error.reason}",
                operator=node.name,
                location=vertex.location,
            ) from None
    if isinstance(node, StatelessNode) and isinstance(node.logic, CallingOut) and node.name in retries:
        options = replace(node.logic.options, retry=retries[node.name])
        return replace(vertex, node=replace(node, logic=CallingOut(options)))
    return vertex


def _refusal(name: str, names: set[str], *, is_retry: bool) -> str:
    if name in names:
        what, instead = ("a retry", "it") if is_retry else ("an on_error=", "that on_error=")
        return (
            f"operator '{name}' can't have {what}: it has no function of the user's that is called record by record; "
            f"put a .map() with {instead} before it, which fails at the records that it can't take"
        )
    what = "retry" if is_retry else "on_error="
    return f"there is no operator '{name}' for this {what}{did_you_mean(name, names, else_='')}"
