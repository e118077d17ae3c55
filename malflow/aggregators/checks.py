"""Checks of the contract of aggregators for ``debug=True``, and notes on errors in generated code."""

from __future__ import annotations

import linecache
import os
import pickle
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from malflow.aggregators.composed import Fold, Merged, Several
from malflow.aggregators.fields import LACKING, TEXT_CURE, TEXTS
from malflow.aggregators.slots import Called, Slot, Slotted, packed, slotted
from malflow.diagnostics import note_missing_field
from malflow.words import short_repr

__all__ = [
    "Watch",
    "explain",
]

_MUTABLE = (list, dict, set, bytearray, deque)
_WATCHED = 10_000
"""The most accumulators to watch at once; each costs a copy of its content. Half of it saves half of the memory and
misses changes after fewer other accumulators."""


class Watch:
    """A record of the contents of accumulators, for detecting unexpected changes.

    Args:
        aggregators: the aggregators of the kernel.
        slots: the slots of its accumulators.
    """

    def __init__(self, aggregators: Sequence[Slotted[Any, Any, Any]], slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._leaves = [leaf for aggregator in aggregators for leaf in _leaves(aggregator)]
        self._noted: OrderedDict[int, tuple[Any, list[Any]]] = OrderedDict()  # the accumulator keeps its id in use

    def note(self, acc: Any) -> None:
        """Record the content of an accumulator; the oldest records are dropped."""
        self._noted[id(acc)] = (acc, self._looks(acc))
        if len(self._noted) > _WATCHED:
            self._noted.popitem(last=False)

    def verify(self, acc: Any) -> None:
        """Check that an accumulator has not changed since it was recorded.

        Raises:
            ValueError: if it has.
        """
        noted, looks = self._noted.get(id(acc), (None, []))
        if noted is acc:
            self._compare(acc, looks, "something else changed its accumulator, or a value in it; aggregate copies")

    def unchanged(self, method: str, call: Callable[[], Any], *accs: Any) -> Any:
        """Call a function of some accumulators, and check that it mutates none of them.

        Raises:
            ValueError: if it does.
        """
        before = [self._looks(acc) for acc in accs]
        outcome = call()
        for acc, looks in zip(accs, before, strict=True):
            self._compare(acc, looks, f"its {method} changed an accumulator that it was given; return a new one")
        return outcome

    def check_aliases(self, merged: Any, *accs: Any) -> None:
        """Check that a merged accumulator shares no slot that can change.

        Raises:
            ValueError: if it does.
        """
        given = [id(state) for acc in accs for state in self._states(acc)]
        for slot, state in zip(self._slots, self._states(merged), strict=True):
            if isinstance(state, _MUTABLE) and id(state) in given and not slot.join:
                raise ValueError(
                    f"{self._owner(slot)!r}: its merge returned an accumulator that it was given; return a new one"
                )

    def check_given_out(self, acc: Any) -> None:
        """Check that a result is not the accumulator itself.

        Raises:
            ValueError: if it is, and is mutable.
        """
        states = {slot.identity: state for slot, state in zip(self._slots, self._states(acc), strict=True)}
        for leaf in self._leaves:
            own = packed([states[slot.identity] for slot in leaf.slots])
            if isinstance(leaf, (Fold, Called, Merged)) and isinstance(own, _MUTABLE) and leaf.result(own) is own:
                raise ValueError(f"{leaf!r}: its result is the accumulator itself, which changes later; copy it")

    def _compare(self, acc: Any, looks: list[Any], what: str) -> None:
        for slot, state, before in zip(self._slots, self._states(acc), looks, strict=True):
            if _look(state) != before:
                was = short_repr(pickle.loads(before)) if isinstance(before, bytes) else before  # noqa: S301 - pickled here
                raise ValueError(f"{self._owner(slot)!r}: {what}; it was {was} and is {short_repr(state)}")

    def _looks(self, acc: Any) -> list[Any]:
        return [_look(state) for state in self._states(acc)]

    def _states(self, acc: Any) -> Sequence[Any]:
        return (acc,) if len(self._slots) == 1 else acc

    def _owner(self, slot: Slot) -> Slotted[Any, Any, Any]:
        return next(leaf for leaf in self._leaves if any(it.identity == slot.identity for it in leaf.slots))


def _leaves(aggregator: Slotted[Any, Any, Any]) -> Iterator[Slotted[Any, Any, Any]]:
    """Yield the elementary aggregators of an aggregator."""
    if isinstance(aggregator, Several):
        for part in aggregator.parts:
            yield from _leaves(slotted(part))
    else:
        yield aggregator


def _look(state: Any) -> bytes | str:
    try:
        return pickle.dumps(state)
    except Exception:  # noqa: BLE001 - an object that can't be pickled is compared by its text
        return short_repr(state)


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
    elif isinstance(error, AttributeError):
        note_missing_field(error, str(error.name), value, LACKING)
    elif isinstance(error, KeyError) and isinstance(error.args[0], str):
        note_missing_field(error, error.args[0], value, LACKING)
    elif (place := _place_read(trace)) is not None:
        note_missing_field(error, place, value, LACKING)
    elif isinstance(error, TypeError) and any(it is None for name, it in names.items() if name[0] in "vx"):
        error.add_note("a field is None, which cannot be aggregated; call .filter() first to drop such records")
    elif TEXT_CURE in str(error):
        return
    elif isinstance(error, TypeError) and any(isinstance(it, TEXTS) for name, it in names.items() if name[0] == "x"):
        error.add_note(f"a field is text where a number is needed; {TEXT_CURE}")


def _place_read(trace: TracebackType) -> int | None:
    """Return the place of the item that generated code was reading; None if it was doing something else."""
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    match = _READS_PLACE.fullmatch(line.strip())
    return int(match[1]) if match else None


_READS_PLACE = re.compile(r"x\d+ = v\[(\d+)\]")


def _is_ours(trace: TracebackType) -> bool:
    """Whether generated code, or what it calls of this package, raised."""
    called = trace.tb_next
    while called is not None:
        if not called.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            return False
        called = called.tb_next
    return True
