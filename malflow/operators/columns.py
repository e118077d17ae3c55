"""Columns of a batch: a field of each value, arrays beside a state, and results with the epochs between them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from malflow.diagnostics import note_missing_field
from malflow.operators.contract import Operator
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit, is_columnar
from malflow.states.keyed import Delta

if TYPE_CHECKING:
    from malflow.aggregators.fuse import Kernel

__all__ = [
    "Arrays",
    "KeepsArrays",
    "Place",
    "Results",
    "are_columns",
    "column_of",
    "read_each",
    "read_one",
]

A = TypeVar("A")
R = TypeVar("R")

_log = logging.getLogger("malflow.runtime")


Place = int | tuple[int, ...]
"""The place of an item of a tuple; several for a tuple of items."""


def column_of(batch: Batch, field: str | Place) -> Sequence[Any] | None:
    """Return the column of this name; None if the values are not columns, or lack it."""
    return batch.values.column(field) if isinstance(field, str) and is_columnar(batch.values) else None


def read_each(batch: Batch, field: str | Place, rest: Iterator[Any], instead: str) -> list[Any]:
    """Read an item of each mapping, or an attribute of any other value, without a call per value if all have one kind.

    Args:
        batch: the batch.
        field: the name of the item or attribute, or the place of an item.
        rest: the remaining values.
        instead: the remedy for values that lack the field.
    """
    if not isinstance(field, str):
        try:
            return list(map(_at(field), rest))
        except (LookupError, TypeError) as error:
            _note_places(error, field, batch.values[len(batch) - length_hint(rest) - 1])
            raise
    are_mappings = {issubclass(kind, Mapping) for kind in set(map(type, batch.values))}
    try:
        if are_mappings == {True}:
            return [value[field] for value in rest]
        if are_mappings == {False}:
            return [getattr(value, field) for value in rest]
        return [value[field] if issubclass(type(value), Mapping) else getattr(value, field) for value in rest]
    except (KeyError, AttributeError) as error:
        value = batch.values[len(batch) - length_hint(rest) - 1]
        note_missing_field(error, field, value, instead)
        raise


def _at(place: Place) -> Callable[[Any], Any]:
    """Return the function that reads the item at a place, or a tuple of those at several."""
    places = place if isinstance(place, tuple) else (place,)
    read: Callable[[Any], Any] = itemgetter(*places)
    return read if len(places) > 1 or place is not places else lambda value: (read(value),)


def _note_places(error: Exception, place: Place, value: Any) -> None:
    for it in place if isinstance(place, tuple) else (place,):
        note_missing_field(error, it, value, "")


def read_one(value: Any, field: str | Place) -> Any:
    """Read an item of a mapping, or an attribute of any other value; the error for a missing one has a note."""
    if not isinstance(field, str):
        try:
            return _at(field)(value)
        except (LookupError, TypeError) as error:
            _note_places(error, field, value)
            raise
    try:
        return value[field] if isinstance(value, Mapping) else getattr(value, field)
    except (KeyError, AttributeError) as error:
        note_missing_field(error, field, value, "filter such records, or pass a function of the message")
        raise


def are_columns(kernel: Kernel) -> bool:
    """Whether the results of aggregators are columns, where arrays add up the records."""
    from malflow.columns.aggregates.outcomes import outcomes_of  # noqa: PLC0415 - only the extra has it

    have_arrays = all(slot.kernel for slot in kernel.slots)
    return have_arrays and outcomes_of(kernel.aggregators, kernel.slots) is not None


class Results:
    """The results of a batch, as columns, with the epochs between them."""

    __slots__ = ("epochs", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []

    def add(self, keys: Iterable[Any], values: Iterable[Any], timestamp: Any) -> None:
        """Append results with one timestamp."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(repeat(timestamp, len(self.values) - len(self.timestamps)))

    def add_each(self, keys: Iterable[Any], values: Iterable[Any], timestamps: Iterable[Any]) -> None:
        """Append results."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(timestamps)

    def mark(self, epochs: Iterable[tuple[int, Any]]) -> None:
        """Append epochs after the results so far."""
        at = len(self.keys)
        self.epochs.extend([(at, epoch) for _, epoch in epochs])

    def batch(self) -> Batch:
        """Return results and epochs as one batch."""
        return Batch(self.keys, self.values, self.timestamps, self.epochs)


class Arrays(Generic[A]):
    """The arrays that an operator keeps beside its state while batches of columns arrive.

    They begin as a copy of the state with the first such batch. From then on they are ahead of the state, until
    `sync_state` of the operator writes the changes back. Once something does not fit, the operator continues without
    them until its next start.

    Args:
        operator: the operator.
        begin: makes the arrays from the state; None if the time has not come.
        on_drop: called when the arrays have been dropped, to forget data of the operator that refers to them.

    Attributes:
        held: the arrays; None before the first batch of columns, and afterwards if something did not fit.
    """

    def __init__(
        self, operator: Operator, begin: Callable[[], A | None], on_drop: Callable[[], None] | None = None
    ) -> None:
        self.held: A | None = None
        self._operator = operator
        self._begin = begin
        self._on_drop = on_drop
        self._ended = operator.context.debug  # the checks look at records one by one

    def take(self, batch: Batch, act: Callable[[A, Batch], R]) -> R | None:
        """Add a batch to the arrays; return None if it must go record by record. The state is up to date then.

        Args:
            batch: the batch.
            act: adds it. If it raises `Unfit`, it has changed nothing.
        """
        if self._ended or not len(batch):
            return None
        if not batch.has_arrays:
            if self.held is not None:
                self.end("records have come that are no columns")
            return None
        try:
            if self.held is None:
                self.held = self._begin()
            return None if self.held is None else act(self.held, batch)
        except Unfit as misfit:
            self.end(str(misfit))
            return None

    def end(self, reason: str) -> None:
        """Continue without arrays, and log why."""
        self.drop()
        self._ended = True
        if self._operator.state:  # and so they had been of use
            self._operator.demotions += 1
        _log.info(
            "operator '%s' adds records one by one from here on: %s", self._operator.context.operator_name, reason
        )

    def drop(self) -> None:
        """Write the arrays to the state, and forget them."""
        if self.held is not None:
            self._operator.sync_state()
            self.held = None
            if self._on_drop is not None:
                self._on_drop()


class KeepsArrays(Operator):
    """An operator with arrays beside its state. They are dropped when a state comes from elsewhere."""

    _arrays: Arrays[Any]

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        self._arrays.drop()
        super().apply(delta)

    def forget(self) -> None:
        """Make the next delta complete."""
        self._arrays.drop()
        super().forget()
