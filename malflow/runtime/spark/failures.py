"""How errors travel from the processes of Spark to the driver."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

from malflow.errors import MalflowError, OperatorError, RunFailed
from malflow.operators.failure import shown

__all__ = ["dumps_error", "loaded_error"]


def dumps_error(error: MalflowError) -> bytes:
    """Pickle an error with its cause; or what can be said of it."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    for shape in (_whole_error, _bare_error):
        with suppress(Exception):
            data: bytes = cloudpickle.dumps(shape(error))
            pickle.loads(data)  # noqa: S301 - just written
            return data
    return pickle.dumps((RunFailed(str(error)), None, ()))


def _whole_error(error: MalflowError) -> tuple[Any, ...]:
    return error, error.__cause__, tuple(getattr(error, "__notes__", ()))


def _bare_error(error: MalflowError) -> tuple[Any, ...]:
    """Take what can travel of an error, and a text for what can't."""
    notes = tuple(getattr(error, "__notes__", ()))
    cause: Any = error.__cause__
    if cause is not None and not _can_travel(cause):
        cause = RuntimeError(f"{type(cause).__name__}: {cause}")
    if not isinstance(error, OperatorError):
        return type(error)(str(error)), cause, notes
    record = (error.key, error.value, error.timestamp)
    told = tuple(fact if _can_travel(fact) else shown(fact) for fact in record) if error.has_record else None
    return OperatorError(str(error), operator=error.operator, record=told, callback=error.callback), cause, notes  # type: ignore[arg-type] # three facts


def _can_travel(thing: Any) -> bool:
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    try:
        pickle.loads(cloudpickle.dumps(thing))  # noqa: S301 - just written
    except Exception:  # noqa: BLE001 - classes of the user may raise any
        return False
    return True


def loaded_error(data: bytes) -> Exception:
    """Read an error that `dumps_error` wrote."""
    error: Exception
    error, cause, notes = pickle.loads(data)  # noqa: S301 - of this run
    error.__cause__ = cause
    for note in notes:
        error.add_note(note)
    return error
