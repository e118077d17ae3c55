"""The table of a stream of rows: the last row of each key, with values that the database did not send."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import eq, not_
from typing import Any

from malflow.errors import OperatorError, failures
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.keyed.throttle import check_span
from malflow.operators.keyed.timed_op import TIMERS, LogicTimers
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.records.changes import changes_of, make_change, with_changes
from malflow.states.keyed import ATOMIC_TYPES, KeyedState, copied
from malflow.words import short_repr

__all__ = [
    "ToTable",
    "Unsent",
    "incomparable",
]

_HOME = "malflow.connectors.tables.change"
"""The module of `UNCHANGED` and `Change`: a value can't be one of them before it is loaded."""

_MEND = "alter table ... replica identity full, so that the database sends every value"


class Unsent:
    """Finds `UNCHANGED` in rows, and changes of a database that are no rows; both are possible only with connectors.

    Rows may be mappings, tuples, named tuples and dataclasses; in other objects, `UNCHANGED` is not found.
    """

    def __init__(self) -> None:
        home = sys.modules[_HOME]
        self._mark: Any = home.UNCHANGED
        self.change: Any = home.Change

    @staticmethod
    def known() -> Unsent | None:
        """Return one; None if no connector is loaded that makes such values."""
        return Unsent() if _HOME in sys.modules else None

    def check_not_change(self, value: Any) -> None:
        """Check that a value is not a change as a database tells it.

        Raises:
            TypeError: if it is, with the way to make rows of it.
        """
        if type(value) is not self.change:
            return
        if value.kind == "truncate":
            raise TypeError(
                f"a truncation of {value.table} has no key; make rows of the changes first: "
                '.flat_map("rows", rows_by_key("id")), of malflow.connectors.tables, whose on_truncate="skip" drops it'
            )
        raise TypeError(
            "a Change of a database is not a row, and may move a row to another key; make rows of it first: "
            '.flat_map("rows", rows_by_key("id")).key_distribute("by id", "key").to_table("table", row="row"), with '
            "rows_by_key of malflow.connectors.tables and the columns of the key"
        )

    def are_whole(self, rows: Sequence[Any], kinds: set[type]) -> bool:
        """Whether all values of all rows were surely sent, by a look at the columns of rows of one usual kind.

        None is whole.
        """
        if kinds <= ATOMIC_TYPES:
            return True
        if type(None) in kinds:
            rows, kinds = [row for row in rows if row is not None], kinds - {type(None)}
        if kinds == {dict}:
            return self._mark not in chain.from_iterable(map(dict.values, rows))
        return all(issubclass(kind, tuple) for kind in kinds) and self._mark not in chain.from_iterable(rows)

    def is_partial(self, row: Any) -> bool:
        """Whether a value of a row was not sent."""
        mark = self._mark
        if isinstance(row, Mapping):
            return any(value is mark for value in row.values())
        if isinstance(row, tuple):
            return any(value is mark for value in row)
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            return any(getattr(row, field.name) is mark for field in dataclasses.fields(row))
        return row is mark

    def completed(self, row: Any, present: Any) -> Any:
        """Return a row with the values that were not sent taken from the present one.

        Args:
            row: the new row.
            present: the present row, or None.

        Raises:
            ValueError: if there is no present row, or it does not have the value.
        """
        if row is None or not self.is_partial(row):
            return row
        if present is None or type(present) is not type(row):
            raise self._unknown(row, "there is no row of this key yet to take it from")
        mark = self._mark
        if isinstance(row, Mapping):
            lost = [name for name, value in row.items() if value is mark and present.get(name, mark) is mark]
            if lost:
                raise self._unknown(row, "the present row of this key does not have it")
            return {name: present[name] if value is mark else value for name, value in row.items()}
        if isinstance(row, tuple):
            values = (old if new is mark else new for new, old in zip(row, present, strict=True))
            return type(row)(*values) if hasattr(row, "_fields") else tuple(values)
        if row is mark:
            return present
        names = [field.name for field in dataclasses.fields(row) if getattr(row, field.name) is mark]
        return dataclasses.replace(row, **{name: getattr(present, name) for name in names})

    def _unknown(self, row: Any, why: str) -> ValueError:
        names = [repr(name) for name, value in row.items() if value is self._mark] if isinstance(row, Mapping) else []
        what = f"column {', '.join(names)}" if names else "a value of the row"
        return ValueError(f"{what} was not sent, as it did not change, and {why}; {_MEND}")


_NONE = type(None)


class ToTable(Operator):
    """Keep the last row of each key; emit its changes, and beside them all rows of the input, completed.

    Output 0 has the changes. None of them leaves its row as it was. Output 1 has each row of the input with its own
    timestamp, or None for a deletion: the versions that a join in event time looks for.

    A batch of rows alone, without deletions, takes one pass of a comprehension; one with deletions takes a loop. All
    else, such as expiries, takes a longer one.

    Args:
        context: the operator's context.
        row: returns the row of a value; None if the value is the row.
        ttl: the span of event time after its last record at which a row is deleted; None to keep it.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, row: Callable[[Any], Any] | None, ttl: Any = None) -> None:
        super().__init__(context, row)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._ttl = ttl
        self._expiries = LogicTimers(context)
        self._has_untimed = False
        self._given: dict[Any, Any] | None = {} if context.debug else None  # copies of the rows, to find changed ones
        self._sent: list[tuple[Any, Any, Any]] = []  # in debug, the rows of this tick, each with its key and its copy
        if ttl is not None:
            self.hidden = {TIMERS: self._expiries}

    def open(self) -> None:
        """Drop the expiries of rows that a migration has dropped, and find rows from before there was a `ttl`."""
        if self._ttl is not None:
            self._expiries.retain(self.state)
            self._has_untimed = len(self._expiries.pending.at) < len(self.state)

    def waiting(self) -> Waiting | None:
        """Return the number of rows that will expire, and the first time."""
        pending = self._expiries.pending
        return Waiting("expiries", len(pending.at), pending.earliest) if pending.at else None

    def held(self) -> Waiting | None:
        """Return None: no row expires at the end of the input."""
        return None

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Replace rows, and expire rows once an epoch has reached their time."""
        unsent = Unsent.known()
        rows = self._rows_of(batch, unsent)
        kinds = set(map(type, rows))
        is_plain = self._ttl is None and self._given is None
        if is_plain and (unsent is None or unsent.are_whole(rows, kinds)):
            return self._replace(batch, rows) if _NONE not in kinds else self._replace_or_delete(batch, rows)
        return self._change(batch, rows, unsent)

    def _rows_of(self, batch: Batch, unsent: Unsent | None) -> Sequence[Any]:
        row, values, rest = self.callback, batch.values, iter(batch.values)
        try:
            if unsent is not None and unsent.change in set(map(type, values)):
                for value in rest:
                    unsent.check_not_change(value)
            return list(values) if row is None else list(map(row, rest))
        except failures() as error:
            raise self.fail(error, batch, rest) from error

    def _replace(self, batch: Batch, rows: Sequence[Any]) -> Sequence[Batch]:
        """Replace rows; the last `for` stores the row."""
        states, rest = self.state, iter(rows)
        try:
            olds = [
                old
                for key, row in zip(batch.key_column(), rest, strict=True)
                for old in (states[key],)
                for states[key] in (row,)
            ]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        try:
            sames = list(map(eq, olds, rows))
            fresh = list(map(not_, sames)) if any(sames) else None
        except Exception as error:
            rest = iter(rows)
            raise self.fail(_incomparable(zip(olds, rows, strict=True), rest), batch, rest) from error
        if fresh is None:
            changed = batch.with_values(changes_of(olds, rows))
        else:
            changed = self._changed_of(batch, olds, rows, fresh)
        states.touch(changed.key_column())
        return changed, batch.with_values(rows)

    def _changed_of(self, batch: Batch, olds: Sequence[Any], rows: Sequence[Any], fresh: Sequence[bool]) -> Batch:
        """Return the changes of a batch, and keep the row where a change left it as it was."""
        kept: dict[Any, Any] = {}
        befores: list[Any] = []
        for key, old, row, is_fresh in zip(batch.key_column(), olds, rows, fresh, strict=True):
            before = kept.get(key, old)
            kept[key] = row if is_fresh else before
            befores.append(before)
        self.state.update(kept)
        return with_changes(batch, befores, rows, fresh)

    def _replace_or_delete(self, batch: Batch, rows: Sequence[Any]) -> Sequence[Batch]:
        states, rest, befores, fresh = self.state, iter(rows), [], []
        try:
            for key, row in zip(batch.key_column(), rest, strict=True):
                old = states[key]
                befores.append(old)
                if old == row:
                    fresh.append(False)
                    continue
                fresh.append(True)
                if row is None:
                    del states[key]
                else:
                    states[key] = row
        except Exception as error:
            raise self._failed(error, batch, rows, rest) from error
        changed = with_changes(batch, befores, rows, fresh)
        states.touch(changed.key_column())
        return changed, batch.with_values(rows)

    def _change(self, batch: Batch, rows: Sequence[Any], unsent: Unsent | None) -> Sequence[Batch]:
        """Replace and delete rows one by one, with their expiries."""
        rest = iter(rows)
        records = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        changes, versions = Results(), Results()
        try:
            if self._ttl is not None and len(batch):
                check_span("ttl", self._ttl, batch.timestamps[0])
            for count, epoch in batch.runs():
                self._take(islice(records, count), changes, versions, unsent)
                if epoch is None:
                    continue
                if self._ttl is not None and epoch is not MAX:
                    self._expire(epoch, changes, versions)
                changes.mark(((0, epoch),))
                versions.mark(((0, epoch),))
        except OperatorError:
            raise
        except Exception as error:
            raise self._failed(error, batch, rows, rest) from error
        self.state.touch(changes.keys)
        return changes.batch(), versions.batch()

    def _take(
        self, records: Iterable[tuple[Any, Any, Any]], changes: Results, versions: Results, unsent: Unsent | None
    ) -> None:
        states, ttl, given, expiries = self.state, self._ttl, self._given, self._expiries
        for key, sent, timestamp in records:
            old = states[key]
            if given is not None:
                self._check_given(key, old)
            row = sent if unsent is None else unsent.completed(sent, old)
            versions.add((key,), (row,), timestamp)
            if ttl is not None and row is not None:
                expiries.set(key, timestamp + ttl)
            if old == row:
                continue
            changes.add((key,), (make_change((old, row)),), timestamp)
            if row is None:
                self._delete(key)
                continue
            states[key] = row
            if given is not None:
                given[key] = copied(row)
                self._sent.append((key, row, given[key]))

    def flush(self) -> None:
        """Check, in debug, that those who read the rows of this tick have not changed them."""
        for key, row, given in self._sent:
            self._check_same(key, row, given)
        self._sent.clear()

    def _delete(self, key: Any) -> None:
        del self.state[key]
        if self._ttl is not None:
            self._expiries.cancel(key)
        if self._given is not None:
            self._given.pop(key, None)

    def _expire(self, epoch: Any, changes: Results, versions: Results) -> None:
        """Delete the rows that are due; rows from before there was a `ttl` have their time from now on."""
        states, expiries = self.state, self._expiries
        if self._has_untimed:
            for key in [key for key in states if key not in expiries.pending.at]:
                expiries.set(key, epoch + self._ttl)
            self._has_untimed = False
        while (at := expiries.pending.earliest) is not None and at <= epoch:
            for key in expiries.take(at):
                old = states[key]
                if self._given is not None:
                    self._check_given(key, old)
                self._delete(key)
                changes.add((key,), (make_change((old, None)),), at)
                versions.add((key,), (None,), at)

    def _check_given(self, key: Any, row: Any) -> None:
        given: Any = self._given
        if key in given:
            self._check_same(key, row, given[key])

    def _check_same(self, key: Any, row: Any, given: Any) -> None:
        if not row == given:
            raise self.error(
                f"a row of the table was changed after it was given: it was {short_repr(given)}, and is "
                f"{short_repr(row)}; rows are values, which its readers share: make a new one, such as "
                "{**row, 'name': value}",
                (key, row, None),
            )

    def _failed(self, error: Exception, batch: Batch, rows: Sequence[Any], rest: Any) -> Exception:
        at = len(rows) - rest.__length_hint__() - 1
        if batch.keys is None or not 0 <= at < len(rows):
            return self.fail(error, batch, rest)
        return self.fail(incomparable(error, self.state.get(batch.keys[at]), rows[at]), batch, rest)


def _incomparable(pairs: Iterable[tuple[Any, Any]], rest: Iterator[Any]) -> Exception | str:
    """Return the error of the first pair that can't be compared, and take the rows up to it."""
    for old, row in pairs:
        next(rest)
        try:
            bool(old == row)
        except Exception as error:  # noqa: BLE001 - of the user's class
            return incomparable(error, old, row)
    return TypeError("rows could not be compared")


def incomparable(error: Exception, old: Any, row: Any) -> Exception | str:
    """Return the error of comparing two rows, with a cure if this is where it came from."""
    try:
        bool(old == row)
    except Exception as reason:  # noqa: BLE001 - of the user's class
        return (
            f"rows of a table are compared by ==, which fails ({reason}); pass row=, a function that returns a row of "
            "plain values, such as a tuple or a dict, or give its class an __eq__ that returns True or False"
        )
    return error
