"""Replays of dead letters on one worker: their records go to their operator before its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from malflow.engine.plan import Program
from malflow.failures import DeadLetter, Replay, Replayed
from malflow.message import NoKey
from malflow.nodes import LETTERS_OUTPUT, TimestampsNode
from malflow.operators.contract import Operator
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.failures.letters import Chosen, Letters
from malflow.records.batch import Batch

__all__ = ["reached_by", "replay", "total"]


def replay(
    request: Replay, operator: Operator, letters: Letters, reached: Any, emit: Callable[[Sequence[Batch]], object]
) -> Replayed:
    """Serve a request about the dead letters of an operator; each leaves the state when its record is processed.

    A record that fails again becomes a letter with one more attempt. If its key is parked, that letter takes the old
    place, and the later letters of the key stay.

    Args:
        request: the request.
        operator: the operator.
        letters: its letters on this worker.
        reached: the last epoch (watermark) of its input, or None.
        emit: takes the output of the operator.

    Raises:
        OperatorError: if a record fails and the policy is to fail.
    """
    found = letters.chosen(request.ids)
    if request.discards:
        for entry, _ in found:
            letters.drop(entry)
        return Replayed(len(found))
    done = late = texts = parked = 0
    queues = letters.queues()
    together: list[Chosen] = []
    for entry, letter in found:
        if letter.is_parked and queues[entry[1]][0] != letter.id:
            parked += 1
        elif letter.is_text:
            texts += 1
        elif _is_late(letter, reached):
            late += 1
        else:
            done += 1
            if operator.replays_together and not letter.is_parked:
                together.append((entry, letter))
            elif _settled(operator, letters, [(entry, letter)], emit) and letter.is_parked:
                queues[entry[1]].popleft()
    if together:
        _settled(operator, letters, together, emit)
    return Replayed(done, late, texts, parked)


def reached_by(program: Program, operators: Mapping[int, Operator], vertex: int) -> Any:
    """Return the last epoch (watermark) that has reached an operator, from upstream in its stage, or None.

    Args:
        program: the program.
        operators: the operators of the stage on a worker, by vertex.
        vertex: the operator.
    """
    if not program.vertices[vertex].inputs:
        return None
    if (edges := operators[vertex].edges_reached()) is not None:
        return _least(edges)
    (port, *_) = program.vertices[vertex].inputs
    while port.output != LETTERS_OUTPUT and port.vertex in operators:
        operator, upstream = operators[port.vertex], program.vertices[port.vertex]
        if isinstance(operator, GenerateEpochs):
            return operator.epoch
        if (edges := operator.edges_reached()) is not None:
            return _least(edges)
        if isinstance(upstream.node, TimestampsNode) or not upstream.inputs:
            return None
        port = upstream.inputs[0]
    return None


def _least(edges: Mapping[int, Any]) -> Any:
    """Return the least epoch of the edges of an operator, or None if one has none."""
    return None if not edges or None in edges.values() else min(edges.values())


def total(found: Sequence[Replayed]) -> Replayed:
    """Return the sum over workers."""
    return Replayed(*map(sum, zip(*found, strict=True))) if found else Replayed()


def _settled(
    operator: Operator, letters: Letters, group: Sequence[Chosen], emit: Callable[[Sequence[Batch]], object]
) -> bool:
    """Process the records of letters; return whether all the letters left. The next one of a key can then follow."""
    chosen = [letter for _, letter in group]
    is_keyed = any(letter.key is not NoKey for letter in chosen)  # some may be from before the stream had keys
    keys = [letter.key for letter in chosen] if is_keyed else None
    batch = Batch(keys, [letter.value for letter in chosen], [letter.timestamp for letter in chosen])
    guard = operator.guard
    operator.turn_to(chosen[0].input)
    if guard is None:
        for entry, _ in group:
            letters.drop(entry)
        emit(operator.process_again(batch))
        return True
    with guard.replaying(group):
        emit(operator.process_again(batch))
    return not any(entry in letters for entry, _ in group)


def _is_late(letter: DeadLetter, reached: Any) -> bool:
    try:
        return reached is not None and not letter.timestamp > reached
    except Exception:  # noqa: BLE001 - a timestamp that can't be compared with the epoch is not after it
        return True
