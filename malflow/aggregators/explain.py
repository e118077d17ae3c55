"""Notes on errors that are raised in generated code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from malflow.aggregators.fields import LACKING, TEXT_CURE, TEXTS
from malflow.diagnostics import note_missing_field

__all__ = ["explain"]

_PACKAGE = f"{Path(__file__).parent}{os.sep}"

_MIXED = (
    "fields are looked up as the first value needed it, as items of a mapping or as attributes, and this value is of "
    "the other kind; call .map() first to make all values alike, or pass a function that reads the field"
)


def explain(error: Exception) -> None:
    """Add a note to an error of generated code: which field is missing, or that one is None.

    An error of a user's function is left unchanged.
    """
    trace = error.__traceback__
    if trace is None or not _is_ours(trace):
        return
    names, reads_items = trace.tb_frame.f_locals, trace.tb_frame.f_globals["reads_items"]
    value = names.get("v")
    is_mapping = isinstance(value, Mapping)
    if reads_items not in (None, is_mapping) and isinstance(error, (AttributeError, TypeError)):
        error.add_note(_MIXED)
    elif isinstance(error, KeyError | AttributeError):
        field = error.name if isinstance(error, AttributeError) else error.args[0]
        note_missing_field(error, str(field), value, LACKING)
    elif isinstance(error, TypeError) and any(it is None for name, it in names.items() if name[0] in "vx"):
        error.add_note("a field is None, which cannot be aggregated; call .filter() first to drop such records")
    elif TEXT_CURE in str(error):
        return
    elif isinstance(error, TypeError) and any(isinstance(it, TEXTS) for name, it in names.items() if name[0] == "x"):
        error.add_note(f"a field is text where a number is needed; {TEXT_CURE}")


def _is_ours(trace: TracebackType) -> bool:
    """Whether generated code, or what it calls of this package, raised."""
    called = trace.tb_next
    while called is not None:
        if not called.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            return False
        called = called.tb_next
    return True
