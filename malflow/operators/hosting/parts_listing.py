"""The parts that a source lists, and those that it no longer lists."""

from __future__ import annotations

import pickle
from typing import Any

from malflow.diagnostics import operator_error
from malflow.errors import GraphError, MissingDependency, OperatorError
from malflow.operators.hosting.reader import PickledReader
from malflow.partitioners import check_key
from malflow.sources.contract import StatefulSource, StatelessSource
from malflow.words import short_repr

__all__ = ["check_gone", "gone_error", "list_parts"]


def list_parts(
    operator_name: str,
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
    *,
    again: bool = False,
) -> list[Any]:
    """Return the parts that a source lists.

    Args:
        operator_name: the name of the source's operator.
        source: the source.
        again: whether a run that listed them before looks for new ones.

    Raises:
        OperatorError: if the source fails, a part can't be used as a key, or one is listed twice.
    """
    try:
        listed = getattr(source.impl, "list_again", source.impl.list_parts) if again else source.impl.list_parts
        parts = list(listed())
        for part in parts:
            check_key(part)
        twice = [part for part in parts if parts.count(part) > 1] if len(set(parts)) < len(parts) else []
    except (GraphError, MissingDependency):
        raise
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl) from error
    if twice:
        raise operator_error(operator_name, f"it lists part {short_repr(twice[0])} more than once", None, source.impl)
    return parts


def check_gone(
    operator_name: str,
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
    part: Any,
    position: Any,
) -> None:
    """Reject a part that is no longer listed, unless a reader built from its last position is finished.

    Raises:
        OperatorError: naming the part.
    """
    about = f"part {short_repr(part)}"
    try:
        is_pickled = isinstance(position, PickledReader)
        reader = pickle.loads(position.data) if is_pickled else source.build_part(part, position)  # noqa: S301 - of this run
        is_finished = bool(reader.is_finished())
        if hasattr(reader, "suspend"):
            reader.suspend()
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl, about=f"{about}, which is gone") from error
    if not is_finished:
        raise gone_error(operator_name, part, source.impl)


def gone_error(operator_name: str, part: Any, impl: Any) -> OperatorError:
    """Return the error for an unfinished part that is no longer listed."""
    reason = (
        "list_parts() no longer lists it, though its reader is not finished; bring it back, start without the snapshot "
        "by restore=None, or return True from is_finished() of its reader"
    )
    return operator_error(operator_name, reason, None, impl, about=f"part {short_repr(part)}")
