"""Operators that set the keys of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import chain
from typing import Any

from malflow.errors import failures
from malflow.operators.columns import Place, column_of, read_each, read_one
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import Calls, MessageView, attempt, faults_of, same_item, settled, without
from malflow.partitioners import PLAIN_TYPES, check_key
from malflow.records.batch import Batch
from malflow.records.column import is_column
from malflow.records.columnar import read_apart
from malflow.words import error_text, short_repr

__all__ = ["AssignPart", "KeyBy", "KeyByField", "check_keys"]


class KeyBy(Operator):
    """Set each record's key to `key_fn(message)`."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the key column, and check that every key is valid."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        keys = self.key_column(batch)
        check_keys(self, keys, batch)
        if self.context.debug:
            self._check_again(keys, batch)
        return (Batch(keys, batch.values, batch.timestamps, batch.epochs),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Drop the records without a valid key."""
        with MessageView(guard, self.context, batch) as view:
            keys, failed = attempt(guard, *self.key_calls(batch, guard, view), batch)
        batch = guard.renewed(batch)
        keyed = without(failed, Batch(keys, batch.values, batch.timestamps, batch.epochs))
        if self.context.debug:
            self._check_again(keyed.keys or (), without(failed, batch))
        return (keyed,)

    def key_column(self, batch: Batch) -> Sequence[Any]:
        """Return the key of each record; an error names the record."""
        rest = iter(batch.values)
        try:
            return self.keys_of(batch, rest)
        except failures() as error:
            raise self.fail(error, batch, rest) from error

    def keys_of(self, batch: Batch, rest: Iterator[Any]) -> list[Any]:
        """Return the key of each record, advancing the iterator `rest` over the values one by one."""
        return self.call_each(self.callback, batch, rest)

    def key_calls(self, batch: Batch, guard: Guard, view: Iterator[Any]) -> tuple[Calls, Iterable[Any]]:
        """Return the calls that make valid keys of items, and the items, for a batch with a guard."""
        del batch, guard
        key_fn = self.callback
        return lambda rest: (_valid(key_fn(message)) for message in rest), view

    def _check_again(self, keys: Sequence[Any], batch: Batch) -> None:
        """Check that another call returns the same keys.

        Raises:
            OperatorError: naming the record with another key.
        """
        values = read_apart(batch.values)
        again = self.keys_of(batch.with_values(values), iter(values))
        for index, (key, other) in enumerate(zip(keys, again, strict=True)):
            if key != other:
                reason = (
                    f"it returned key {short_repr(key)}, and {short_repr(other)} when called again; it must depend "
                    "only on the record"
                )
                raise self.error(reason, (key, batch.values[index], batch.timestamps[index]))


class KeyByField(KeyBy):
    """Set each record's key to a field of its value: an item of a mapping, or an attribute of any other value.

    Args:
        context: the operator's context.
        field: the name of the item or attribute; or the place of an item of a tuple, several for a tuple of them.
    """

    def __init__(self, context: OperatorContext, field: str | Place) -> None:
        super().__init__(context)
        self._field = field

    def key_column(self, batch: Batch) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        column = column_of(batch, self._field)
        return super().key_column(batch) if column is None else column

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Drop the records without a valid key. Of a column, only these become values."""
        column = column_of(batch, self._field)
        if column is None or not is_column(column):
            return super()._guarded(batch, guard)
        faults = faults_of(column, _valid)
        kept = without(sorted(faults), Batch(column, range(len(column)), range(len(column))))
        kinds = kept.keys.kinds() if is_column(kept.keys) else ()
        if not _VALID_IN_COLUMNS.issuperset(kinds):
            faults |= faults_of(column, _valid, [*kept.values])
        left, _ = settled(guard, batch, faults)
        keyed = without(left, Batch(column, batch.values, batch.timestamps, batch.epochs))
        if self.context.debug:
            self._check_again(keyed.keys or (), without(left, batch))
        return (keyed,)

    def keys_of(self, batch: Batch, rest: Iterator[Any]) -> list[Any]:
        """Read the field of each value."""
        return read_each(batch, self._field, rest, _INSTEAD)

    def key_calls(self, batch: Batch, guard: Guard, view: Iterator[Any]) -> tuple[Calls, Iterable[Any]]:
        """Return the calls that make valid keys of the field's column, or of values."""
        del view
        column, field = column_of(batch, self._field), self._field
        if column is not None:
            return partial(map, _valid), guard.turns(column, batch, same_item)
        return lambda rest: (_valid(read_one(value, field)) for value in rest), guard.turns(batch.values, batch)


_VALID_IN_COLUMNS = PLAIN_TYPES | {float, date}
"""Types whose values in a column are all valid keys, but for nulls and NaN."""

_INSTEAD = "pass a function of the message if keys are not in a field, or call .filter() first"


class AssignPart(KeyBy):
    """Key each record by its part of a stateful sink; its own key travels with the value."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the parts, and pack key and value."""
        (parted,) = super().process(batch)
        packed = list(zip(batch.key_column(), batch.values, strict=True))
        return (parted.with_values(packed),)


_PLAIN_PARTS = PLAIN_TYPES | {type(None)}
"""Types of parts of a tuple that are valid in a key, whatever their value."""


def check_keys(operator: Operator, keys: Sequence[Any], batch: Batch) -> None:
    """Check the keys that an operator's function has returned for the records of a batch.

    Raises:
        OperatorError: naming the record with an invalid key.
    """
    if PLAIN_TYPES.issuperset(keys.kinds() if is_column(keys) else map(type, keys)):
        return
    if not is_column(keys) and {*map(type, keys)} == {tuple} and _PLAIN_PARTS.issuperset(map(type, chain(*keys))):
        return
    for index, key in enumerate(keys):
        try:
            check_key(key)
        except Exception as error:
            reason = f"its key is invalid: {error_text(error)}"
            raise operator.error(reason, (key, batch.values[index], batch.timestamps[index])) from error


def _valid(key: Any) -> Any:
    if type(key) not in PLAIN_TYPES:
        check_key(key)
    return key
