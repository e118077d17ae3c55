"""Policies for failed records that replace those of a program's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from malflow.engine.plan import Program, letter_readers, letters_of_letters
from malflow.errors import GraphError
from malflow.failures import OnError

__all__ = ["with_policies"]


def with_policies(program: Program, policies: Mapping[str, OnError], default: OnError | None = None) -> Program:
    """Return a program with other policies for failed records.

    Args:
        program: the program.
        policies: the policies by operator; they precede those of the code.
        default: the policy of all other operators whose code has the policy to fail; None leaves them.

    Raises:
        GraphError: if there is no such operator, or it can't have a policy.
    """
    nodes = [vertex.node for vertex in program.vertices]
    guarded = {node.name: node.on_error for node in nodes if node.on_error is not None}
    for name in policies:
        if name not in guarded:
            location = next((vertex.location for vertex in program.vertices if vertex.node.name == name), None)
            raise GraphError(_refusal(name, {node.name for node in nodes}), operator=name, location=location)
    for vertex in letter_readers(program.vertices):
        policy = policies.get(vertex.node.name, default)
        if vertex.node.on_error is not None and policy is not None and policy.may_keep:
            raise letters_of_letters(vertex)
    chosen = dict(policies)
    if default is not None:
        chosen = {name: default for name, policy in guarded.items() if policy.never_passes} | chosen
    return replace(program, policies={**program.policies, **chosen})


def _refusal(name: str, names: set[str]) -> str:
    if name in names:
        return (
            f"operator '{name}' can't have an on_error=: it has no function of the user's that is called record by "
            "record; put a .map() with that on_error= before it, which fails at the records that it can't take"
        )
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"there is no operator '{name}' for this on_error={hint}"
