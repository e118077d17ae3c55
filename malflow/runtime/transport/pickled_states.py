"""Pickling of states that move between processes; errors name the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from malflow.errors import MalflowError, RunFailed
from malflow.runtime.transport.pickling import NotPicklable, dumps, load_states, starved
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.files.data_file import encode_delta
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta
from malflow.words import error_line

__all__ = ["dumps_state", "loaded_state", "not_picklable"]


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
