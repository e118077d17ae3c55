"""Pickling of errors for the process that started the run."""

from __future__ import annotations

import pickle
from contextlib import suppress
from traceback import StackSummary, TracebackException
from typing import Any

from malflow.diagnostics import is_of_malflow
from malflow.errors import MalflowError, OperatorError, RunFailed
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.words import error_line, short_repr

__all__ = ["TracebackElsewhere", "dumps_error", "loaded_error"]

_MOST_FRAMES = 32
"""The last frames of a traceback that are shown: a recursion may have thousands."""


class TracebackElsewhere(Exception):
    """The traceback that an error had in another process, as text: it stands as the cause of the error."""

    def __str__(self) -> str:
        return f"in another process:\n\n{self.args[0]}"


def dumps_error(error: MalflowError) -> bytes:
    """Pickle an error with its cause, or with descriptions in place of parts that can't be pickled."""
    frames = _frames_of(error.__cause__)
    for shape in (_whole_error, _bare_error):
        with suppress(BaseException):  # classes of the user may raise any
            data = dumps_by_value((*shape(error), frames))
            pickle.loads(data)  # noqa: S301 - just written
            return data
    return pickle.dumps((RunFailed(str(error)), None, (), ""))


def _frames_of(cause: BaseException | None) -> str:
    """Return the traceback of the user's error as text, with its own causes, without malflow's frames."""
    if cause is None or cause.__traceback__ is None:
        return ""
    with suppress(Exception):  # classes of the user may raise any
        whole = TracebackException.from_exception(cause, limit=-_MOST_FRAMES)
        told: TracebackException | None = whole
        while told is not None:
            told.stack = StackSummary.from_list([it for it in told.stack if not is_of_malflow(it.filename)])
            told = told.__cause__ or told.__context__
        return "".join(whole.format()).rstrip()
    return ""


def _whole_error(error: MalflowError) -> tuple[Any, ...]:
    return error, error.__cause__, tuple(getattr(error, "__notes__", ()))


def _bare_error(error: MalflowError) -> tuple[Any, ...]:
    """Return an error's parts, with text in place of those that can't be pickled."""
    notes = tuple(getattr(error, "__notes__", ()))
    cause: Any = error.__cause__
    if cause is not None and not _is_picklable(cause):
        cause = RuntimeError(error_line(cause))
    if not isinstance(error, OperatorError):
        return type(error)(str(error)), cause, notes
    record = (error.key, error.value, error.timestamp)
    facts = tuple(fact if _is_picklable(fact) else short_repr(fact) for fact in record) if error.has_record else None
    return OperatorError(str(error), operator=error.operator, record=facts, callback=error.callback), cause, notes  # type: ignore[arg-type] # three facts


def _is_picklable(thing: Any) -> bool:
    try:
        pickle.loads(dumps_by_value(thing))  # noqa: S301 - just written
    except BaseException:  # noqa: BLE001 - classes of the user may raise any
        return False
    return True


def loaded_error(data: bytes) -> Exception:
    """Unpickle an error that `dumps_error` pickled."""
    error: Exception
    error, cause, notes, frames = pickle.loads(data)  # noqa: S301 - of this run
    error.__cause__ = cause
    if cause is not None and frames and cause.__cause__ is None:
        cause.__cause__ = TracebackElsewhere(frames)
    for note in notes:
        if note not in getattr(error, "__notes__", ()):  # most errors are pickled with theirs
            error.add_note(note)
    return error
