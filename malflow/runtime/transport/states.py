"""States and questions to them as bytes between processes; errors name the state."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from malflow.engine.plan import Program
from malflow.engine.state_queries import Found, Outcome, Question, find
from malflow.engine.worker import Worker
from malflow.errors import MalflowError, QueryError, RunFailed
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.runtime.transport.pickling import NotPicklable, dumps, load_states, missing_module, starved
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.files.data_file import encode_delta
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta
from malflow.words import error_line

__all__ = [
    "MOST_BYTES",
    "PackedQuestion",
    "answered",
    "dumps_state",
    "loaded_state",
    "not_picklable",
    "outcome",
    "packed_or_error",
]


def dumps_state(name: str, state: Mapping[Any, Any]) -> bytes:
    """Pickle the state of an operator on one worker.

    Raises:
        NotPicklable: naming the key and its state that can't be pickled.
        OperatorError: if there is too little memory.
    """
    try:
        return dumps(dict(state))
    except BaseException as error:  # classes of the user may raise any
        raise not_picklable({name: Delta(state, whole=True)}, error) from error


def loaded_state(name: str, data: bytes) -> dict[Any, Any]:
    """Unpickle the state of an operator on one worker.

    Raises:
        NotPicklable: naming the key and its state that can't be unpickled.
    """
    state: dict[Any, Any] = load_states(data, lambda states: {name: states})
    return state


def not_picklable(deltas: Mapping[str, Delta], error: BaseException) -> MalflowError:
    """Return the error that names the state that can't be pickled, or the operators if there is too little memory.

    Args:
        deltas: changes of states, by the name of the state.
        error: the error that they raised.
    """
    if isinstance(error, MemoryError):
        return starved("', '".join(deltas), "write its states")
    for name, delta in deltas.items():
        try:
            for _ in encode_delta(PickleCodec(), delta, BaseException):
                pass
        except StateNotSerializable as unwritable:
            unwritable.operator = name
            return unwritable.as_operator_error(NotPicklable, "on this runtime states move between processes")
    return RunFailed(f"states can't be sent to another process: {error_line(error)}")


MOST_BYTES: Final = 4 << 20
"""The bytes of the largest answer of a worker to one question."""


class PackedQuestion(NamedTuple):
    """A question in a form that every process can read.

    Attributes:
        name: the name of the state.
        stage: the stage that has it.
        workers: the workers that are asked; None for all.
        limit: how many pairs are enough, over all workers; 0 for all of them.
        data: the question, pickled.
    """

    name: str
    stage: int
    workers: frozenset[int] | None
    limit: int
    data: bytes

    def asks(self, stage: int, worker: int) -> bool:
        """Whether a stage of a worker is asked."""
        return stage == self.stage and (self.workers is None or worker in self.workers)


class _Answer(NamedTuple):
    """The pairs that a worker finds, pickled, or its error."""

    found: bytes
    error: bytes | None = None


def packed_or_error(question: Question) -> PackedQuestion | QueryError:
    """Pickle a question; return an error if a key can't be pickled."""
    try:
        data = dumps(question)
    except Exception as error:  # noqa: BLE001 - classes of the user may raise any
        return _unsent(question.name, "a key can't be sent to the workers", error)
    return PackedQuestion(question.name, question.stage, question.workers, question.limit, data)


def answered(program: Program, worker: Worker, asked: PackedQuestion) -> bytes:
    """Return the pairs that a worker finds, pickled; an error is in it, and never raised.

    Args:
        program: the program.
        worker: the worker.
        asked: the question.
    """
    try:
        return dumps(_Answer(_found(program, worker, asked)))
    except MalflowError as error:
        return dumps(_Answer(b"", dumps_error(error)))
    except BaseException as error:  # noqa: BLE001 - classes of the user may raise any
        return dumps(_Answer(b"", dumps_error(_unsent(asked.name, "it could not be asked", error))))


def outcome(asked: PackedQuestion, answers: Iterable[bytes]) -> Outcome:
    """Return the pairs that the workers have found, or the error of one of them.

    Args:
        asked: the question.
        answers: what `answered` has returned, in the order of workers.
    """
    found: list[Found] = []
    for data in answers:
        answer: _Answer = pickle.loads(data)  # noqa: S301 - this run wrote it
        if answer.error is not None:
            error = loaded_error(answer.error)
            return error if isinstance(error, MalflowError) else QueryError(str(error), operator=asked.name)
        try:
            found.append(pickle.loads(answer.found))  # noqa: S301 - as above
        except Exception as error:  # noqa: BLE001 - classes of the user may raise any
            return _unsent(asked.name, "the answer can't be read here", error)
        if asked.limit and sum(map(len, found)) >= asked.limit:
            break
    return found


def _found(program: Program, worker: Worker, asked: PackedQuestion) -> bytes:
    try:
        question: Question = pickle.loads(asked.data)  # noqa: S301 - this run wrote it
    except BaseException as error:  # classes of the user may raise any
        raise _unsent(asked.name, "a key can't be read by the workers", error) from error
    found = find(program, worker, question)
    try:
        data = dumps(found)
    except BaseException as error:  # as above
        raise _unsent(asked.name, "a state can't be sent", error) from error
    if len(data) > MOST_BYTES:
        raise QueryError(
            f"operator '{asked.name}': the answer of worker {worker.worker_id} has {len(data):,} bytes, more than "
            f"{MOST_BYTES:,}; ask for fewer keys, or take a snapshot() and use read_state()",
            operator=asked.name,
        )
    return data


def _unsent(name: str, reason: str, error: BaseException) -> QueryError:
    hint = missing_module(error) or "; the classes of keys and states must be importable in all processes"
    made = QueryError(f"operator '{name}': {reason}: {error_line(error)}{hint}", operator=name)
    made.__cause__ = error
    return made
