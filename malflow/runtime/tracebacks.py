"""The frames of an error that its reader wrote: tracebacks without malflow's own."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, TypeVar

from malflow.diagnostics import is_of_malflow

__all__ = ["VARIABLE", "of_user"]

_Error = TypeVar("_Error", bound=BaseException)

VARIABLE: Final = "MALFLOW_TRACEBACK"
"""The environment variable that keeps all frames, if it is ``full``."""


def of_user(error: _Error) -> _Error:
    """Return an error after removing malflow's frames from its traceback and from the tracebacks of its causes."""
    if os.environ.get(VARIABLE) == "full":
        return error
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = _without_own(link.__traceback__)
        link = link.__cause__ or link.__context__
    return error


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        if not is_of_malflow(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace
