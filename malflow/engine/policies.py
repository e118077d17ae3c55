"""Policies for failed records: checks of the code's, and the ones that replace them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from malflow.errors import GraphError
from malflow.failures import OnError, Retry
from malflow.nodes import LETTERS_OUTPUT, Node, SinkNode, SourceNode, StatelessNode, Vertex
from malflow.operators.calls.calling_out import CallingOut
from malflow.words import did_you_mean

__all__ = ["check_policies", "replaced"]


def check_policies(vertices: Sequence[Vertex]) -> None:
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


class Replaced(NamedTuple):
    """A program's operators with other policies.

    Attributes:
        vertices: the operators. A source has its policy in its node, and a call its retry.
        policies: the policies, by operator, that replace the policies of the code.
    """

    vertices: tuple[Vertex, ...]
    policies: dict[str, OnError]


def replaced(
    vertices: Sequence[Vertex],
    policies: Mapping[str, OnError],
    default: OnError | None,
    retries: Mapping[str, Retry],
) -> Replaced:
    """Replace the policies of a program's operators.

    Args:
        vertices: the operators.
        policies: the policies by operator; they precede the policies of the code.
        default: the policy of all other operators that have the policy to fail in the code; None leaves them. With
            ``"park"``, operators without keys that an exchange has distributed keep dead letters.
        retries: how calls of an operator's function are retried, by operator, whatever its policy.

    Raises:
        GraphError: if there is no such operator, or it can't have a policy or a retry.
    """
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
    return Replaced(tuple(_set(vertex, chosen, retries) for vertex in vertices), chosen)


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
