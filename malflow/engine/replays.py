"""Replays of dead letters on one worker: their records go to their operator before its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from malflow.engine.plan import Program
from malflow.failures import DeadLetter, Replay, Replayed
from malflow.graph import LETTERS_OUTPUT, TimestampsNode
from malflow.message import NoKey
from malflow.operators.contract import Operator
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.guarding import Guarded
from malflow.operators.letters import Letters
from malflow.records.batch import Batch

__all__ = ["reached_by", "replay", "total"]


def replay(
    request: Replay, operator: Operator, letters: Letters, reached: Any, emit: Callable[[Sequence[Batch]], object]
) -> Replayed:
    """Serve a request about the dead letters of an operator; each leaves the state when its record is processed.

    A record that fails again is a new letter, which has one more attempt.

    Args:
        request: the request.
        operator: the operator.
        letters: its letters on this worker.
        reached: the last epoch (watermark) of its input, or None.
        emit: takes the output of the operator.

    Raises:
        OperatorError: if a record fails and the policy is to fail.
    """
    done = late = texts = 0
    going: list[DeadLetter] = []
    for entry, letter in letters.chosen(request.ids):
        if not request.discards and letter.is_text:
            texts += 1
        elif not request.discards and _is_late(letter, reached):
            late += 1
        else:
            letters.drop(entry)
            done += 1
            going.append(letter)
    if going and not request.discards:
        for group in [going] if operator.replays_together else ([letter] for letter in going):
            emit(_processed(operator, group))
    return Replayed(done, late, texts)


def reached_by(program: Program, operators: Mapping[int, Operator], vertex: int) -> Any:
    """Return the last epoch (watermark) that has reached an operator, from upstream in its stage, or None.

    Args:
        program: the program.
        operators: the operators of the stage on a worker, by vertex.
        vertex: the operator.
    """
    (port, *_) = program.vertices[vertex].inputs
    while port.output != LETTERS_OUTPUT and port.vertex in operators:
        operator, upstream = operators[port.vertex], program.vertices[port.vertex]
        if isinstance(operator, GenerateEpochs):
            return operator.epoch
        edges = operator.edges_reached()
        if edges is not None:
            return None if not edges or None in edges.values() else min(edges.values())
        if isinstance(upstream.node, TimestampsNode) or not upstream.inputs:
            return None
        port = upstream.inputs[0]
    return None


def total(found: Sequence[Replayed]) -> Replayed:
    """Return the sum over workers."""
    return Replayed(*map(sum, zip(*found, strict=True))) if found else Replayed()


def _processed(operator: Operator, letters: Sequence[DeadLetter]) -> Sequence[Batch]:
    keys = None if letters[0].key is NoKey else [letter.key for letter in letters]
    batch = Batch(keys, [letter.value for letter in letters], [letter.timestamp for letter in letters])
    if not isinstance(operator, Guarded):
        return operator.process_again(batch)
    operator.guard.attempts = [letter.attempts for letter in letters]
    try:
        return operator.process_again(batch)
    finally:
        operator.guard.attempts = ()


def _is_late(letter: DeadLetter, reached: Any) -> bool:
    try:
        return reached is not None and not letter.timestamp > reached
    except Exception:  # noqa: BLE001 - a timestamp that can't be compared with the epoch is not after it
        return True
