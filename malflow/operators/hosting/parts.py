"""The parts that a source lists, and the base of operators that host a reader or writer of each."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from malflow.checks import is_whole_number
from malflow.diagnostics import operator_error
from malflow.errors import GraphError, MissingDependency, OperatorError
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.hosting.reader import PickledReader
from malflow.partitioners import check_key
from malflow.sources.contract import StatefulSource, StatelessSource
from malflow.states.keyed import ATOMIC_TYPES, Delta, KeyedState
from malflow.words import short_repr

__all__ = [
    "PartOperator",
    "Positions",
    "check_gone",
    "gone_error",
    "list_parts",
    "part_sizes",
]

_COMPARED = ATOMIC_TYPES - {float, complex}
_DIGEST = 16
"""Bytes of a fingerprint: 128 bits make equal digests of different positions impossible in practice."""


class Positions:
    """Keeps the positions of parts in a state; an unchanged position is not part of its delta.

    A part may mutate its position object. The object always equals itself, so digests of pickles are compared. If these
    are inconclusive, the position counts as changed.

    Args:
        state: holds the positions.
    """

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._known: dict[Any, object] = {}

    def note(self, part: Any, position: Any) -> None:
        """Save the position of a part."""
        fingerprint = _fingerprint(position)
        if part in self._known and self._known[part] == fingerprint:
            return
        self._known[part] = fingerprint
        self._state.touch((part,))
        self._state[part] = position

    def apply(self, delta: Delta) -> None:
        """Remember the positions loaded into the state, before a part can change them."""
        if delta.whole:
            self._known.clear()
        for part in delta.deleted:
            self._known.pop(part, None)
        self._known.update((part, _fingerprint(position)) for part, position in delta.changed.items())


def _fingerprint(position: Any) -> object:
    """Return a fingerprint, equal only for indistinguishable positions."""
    kind = type(position)
    if kind in _COMPARED:
        return kind, position
    try:
        return blake2b(pickle.dumps(position, 5), digest_size=_DIGEST).digest()
    except Exception:  # noqa: BLE001 - classes of the user may raise any; the writer of the position reports it
        return object()


class PartOperator(Operator):
    """An operator that hosts user objects, one for each part; its state holds their positions."""

    state: KeyedState

    def __init__(self, context: OperatorContext, callback: Any) -> None:
        super().__init__(context, callback)
        self.state = KeyedState(tracked=context.tracked)
        self._positions = Positions(self.state)

    def delta(self) -> Delta:
        """Save the positions of the parts, and return the changes since the last call."""
        self.note_positions()
        return super().delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the positions."""
        super().apply(delta)
        self._positions.apply(delta)

    def note_positions(self) -> None:
        """Write changed positions to the state.

        This asks every part, even one without records: a reader may have skipped records, and a writer may change with
        every flush.
        """
        raise NotImplementedError

    def _snapshot(self, part: Any, partition: Any) -> Any:
        return self._call(part, _snapshot, partition)

    def _collect(self, part: Any, partition: Any) -> Any:
        return self._call(part, _collect, partition)

    def _call(self, part: Any, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise self.error(error, about=f"part {short_repr(part)}") from error


def _snapshot(partition: Any) -> Any:
    return partition.snapshot()


def _collect(partition: Any) -> Any:
    return partition.collect() if hasattr(partition, "collect") else partition.snapshot()


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
        OperatorError: if the source fails or returns no list, a part can't be used as a key, or one is listed twice.
    """
    try:
        listed = getattr(source.impl, "list_again", source.impl.list_parts) if again else source.impl.list_parts
        found = listed()
        parts = list(found if (is_list := isinstance(found, Iterable)) else ())
        for part in parts:
            check_key(part)
        twice = [part for part, count in Counter(parts).items() if count > 1] if len(set(parts)) < len(parts) else []
    except (GraphError, MissingDependency):
        raise
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl) from error
    if not is_list:
        reason = f"list_parts() must return the parts of the source, such as a list of str; got {short_repr(found)}"
        raise operator_error(operator_name, reason, None, source.impl)
    if twice:
        raise operator_error(operator_name, f"it lists part {short_repr(twice[0])} more than once", None, source.impl)
    return parts


def part_sizes(
    operator_name: str,
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
    parts: Iterable[Any],
) -> dict[Any, int]:
    """Return the sizes of the parts that a source knows the size of.

    Raises:
        OperatorError: if the source fails, or a size is not a number.
    """
    if not hasattr(source.impl, "part_sizes"):
        return {}
    asked = [*parts]
    try:
        found = source.impl.part_sizes(asked)
        sizes = {part: found[part] for part in asked if found.get(part) is not None}
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl) from error
    for part, size in sizes.items():
        if is_whole_number(size, least=0):
            continue
        reason = f"part_sizes() must return whole numbers; got {short_repr(size)} for part {short_repr(part)}"
        raise operator_error(operator_name, reason, None, source.impl)
    return sizes


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
