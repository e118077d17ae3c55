"""Describe how two runs of one dataflow differ, by operator and key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from malflow.engine.plan import Program
from malflow.engine.state_specs import hidden_id
from malflow.nodes import SinkNode, SourceNode, StatefulNode
from malflow.operators.failures.dead_letters import LETTERS
from malflow.testing.trial import Outcome, State, Written

__all__ = ["difference"]

_SHOWN = 3
"""Records in a message. More: longer messages; fewer: less to diagnose by."""


def difference(program: Program, expected: Outcome, got: Outcome) -> list[str]:
    """Return lines that describe the first difference, in operator order; an empty list if the runs agree."""
    for vertex in program.vertices:
        node = vertex.node
        lines: list[str] = []
        match node:
            case SourceNode() | StatefulNode():
                lines = _of_states(node.name, expected.states[node.name], got.states[node.name])
            case SinkNode():
                lines = _of_messages(node.name, expected.kept[node.name], got.kept[node.name])
        if not lines and node.on_error is not None:
            letters = hidden_id(node, LETTERS)
            lines = _of_states(letters, expected.states.get(letters, {}), got.states.get(letters, {}))
        if lines:
            return lines
    for name, refused in got.letters.items():
        lines = _of_refusals(name, expected.written[name], got.kept[name], refused)
        lines = lines or _of_letters(name, expected.letters[name], refused)
        if lines:
            return lines
    for name, written in got.written.items():
        lines = _of_surplus(name, expected.written[name], written)
        if lines:
            return lines
    return []


def _of_states(name: str, expected: dict[Hashable, State], got: dict[Hashable, State]) -> list[str]:
    for key in (*expected, *(key for key in got if key not in expected)):
        before, after = expected.get(key), got.get(key)
        either = before or after
        if either is None or (before and after and before.like == after.like):
            continue
        worker = "" if either.worker is None else f" on worker {either.worker}"
        return [
            f"operator '{name}' has a different state for key {either.key}{worker}:",
            f"  expected {'none' if before is None else before.text}",
            f"  got      {'none' if after is None else after.text}",
        ]
    return []


def _of_messages(name: str, expected: Sequence[Written], got: Sequence[Written]) -> list[str]:
    missing, surplus = _left(expected, got), _left(got, expected)
    if not missing and not surplus:
        return []
    key = (missing or surplus)[0].key
    return [
        f"sink '{name}' got different messages for key {key}:",
        f"  expected {_values(missing, key)}",
        f"  got      {_values(surplus, key)}",
    ]


def _of_refusals(
    name: str, delivered: Sequence[Written], accepted: Sequence[Written], letters: Sequence[Written]
) -> list[str]:
    """Compare the records of a target, and the dead letters of its sink, with the records that the sink received."""
    found = [*accepted, *letters]
    lost, more = _left(delivered, found), _left(found, delivered)
    if not lost and not more:
        return []
    key = (lost or more)[0].key
    return [
        f"a record of sink '{name}' with key {key} is not exactly once in its target or among its dead letters:",
        f"  expected {_values(lost, key)}",
        f"  got      {_values(more, key)}",
    ]


def _of_letters(name: str, expected: Sequence[Written], got: Sequence[Written]) -> list[str]:
    missing, surplus = _left(expected, got), _left(got, expected)
    if not missing and not surplus:
        return []
    key = (missing or surplus)[0].key
    return [
        f"sink '{name}' has different dead letters for key {key}:",
        f"  expected {_values(missing, key)}",
        f"  got      {_values(surplus, key)}",
    ]


def _of_surplus(name: str, expected: Sequence[Written], got: Sequence[Written]) -> list[str]:
    known = set(expected)
    wrong = [written for written in got if written not in known]
    if not wrong:
        return []
    key = wrong[0].key
    return [
        f"sink '{name}' got wrong messages for key {key}, although a crash discarded them:",
        f"  expected {_values([written for written in expected if written.key == key], key)}",
        f"  got      {_values(wrong, key)}",
    ]


def _left(these: Iterable[Written], those: Iterable[Written]) -> list[Written]:
    """Return the multiset difference of two groups of messages, in the order of the first."""
    away = Counter(those)
    left = []
    for written in these:
        if away[written]:
            away[written] -= 1
        else:
            left.append(written)
    return left


def _values(messages: Sequence[Written], key: str) -> str:
    texts = [written.text for written in messages if written.key == key]
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return (", ".join(texts[:_SHOWN]) or "nothing in its place") + more
