"""Policies for failed records that replace those of a program's code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from malflow.engine.letter_checks import calls_out, letter_readers, letters_of_letters, letters_taken, no_parking
from malflow.engine.plan import Program
from malflow.errors import GraphError
from malflow.failures import OnError, Retry
from malflow.nodes import SinkNode, SourceNode, StatelessNode, Vertex
from malflow.operators.calls.calling_out import CallingOut
from malflow.words import did_you_mean

__all__ = ["with_policies"]


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
    nodes = [vertex.node for vertex in program.vertices]
    guarded = {node.name: node.on_error for node in nodes if node.on_error is not None}
    calling = {node.name for node in nodes if calls_out(node)}.intersection(retries)
    for name in (*policies, *retries):
        if name not in guarded and name not in calling:
            location = next((vertex.location for vertex in program.vertices if vertex.node.name == name), None)
            raise GraphError(
                _refusal(name, {node.name for node in nodes}, is_retry=name not in policies),
                operator=name,
                location=location,
            )
    for vertex in letter_readers(program.vertices):
        policy = policies.get(vertex.node.name, None if isinstance(vertex.node, SinkNode) else default)
        if vertex.node.on_error is not None and policy is not None and policy.may_keep:
            raise letters_of_letters(vertex)
    taken = letters_taken(program.vertices)
    for vertex in program.vertices:
        parks = vertex.node.name in policies and policies[vertex.node.name].fate == "park"
        if parks and (error := no_parking(vertex, taken)) is not None:
            raise error
    chosen = dict(policies)
    if default is not None:
        of_letters = {vertex.node.name for vertex in letter_readers(program.vertices)}
        never = [
            vertex
            for vertex in program.vertices
            if (held := vertex.node.on_error) and held.fate == "fail" and not _writes_letters(vertex, of_letters)
        ]
        chosen = {vertex.node.name: _fitting(default, vertex, taken) for vertex in never} | chosen
    now = {**program.policies, **chosen}
    for name, held in guarded.items():
        if name not in calling and (retry := retries.get(name, held.retry)) is not None:
            now[name] = _with_retry(name, now.get(name, held), retry)
    vertices = tuple(_set(vertex, now, retries) for vertex in program.vertices)
    return replace(program, policies=now, vertices=vertices)


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
    if default.fate == "park" and no_parking(vertex, taken) is not None:
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
