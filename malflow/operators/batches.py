"""Operators with functions of whole batches as columns, and operators that make and choose columns.

They import `malflow.columns` when they are made or meet columns: `import malflow` needs no Arrow.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from malflow.errors import MalflowError, failures
from malflow.operators.columns import read_each
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.halves import Answered
from malflow.operators.failures.surviving import record_of, rows_parked, settled, without
from malflow.operators.many import CallsTogether
from malflow.records.batch import Batch, concat
from malflow.records.columnar import is_columnar
from malflow.records.rows import Rows
from malflow.words import did_you_mean, plural

if TYPE_CHECKING:
    import pyarrow as pa

    from malflow.columns.laws import RowsAlone

__all__ = ["FilterBatches", "MapBatches", "SelectColumns", "ToColumns"]


class _TakesBatches(Operator):
    """An operator that gets whole batches in a debug run too. Other operators get records one by one there."""

    takes_batches = True
    keeps_columns = True
    replays_together = True

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Process each batch; in a debug run all of a tick as one, since operators before have cut them."""
        if not self.context.debug:
            yield from super().run(edges)
        elif edges[0]:
            yield self.process(concat(edges[0]))


class _CallsBatches(_TakesBatches, CallsTogether):
    """The base of operators with a function of a batch.

    Args:
        context: the operator's context.
        callback: the function.
        frame: makes its argument of a record batch; None for the record batch itself.
        with_key: the name of the column of keys that it gets as well; None for none.
        with_time: the name of the column of timestamps that it gets as well; None for none.
    """

    def __init__(
        self,
        context: OperatorContext,
        callback: Callable[[Any], Any],
        frame: Callable[[Any], Any] | None = None,
        with_key: str | None = None,
        with_time: str | None = None,
    ) -> None:
        from malflow.columns.answers import form_of  # noqa: PLC0415 - only the extra has it

        super().__init__(context, callback)
        self._form = form_of(frame)
        self._with_key, self._with_time = with_key, with_time
        self._like: tuple[Any, Any] | None = None  # the schema and the rows of the last frame, for rows of letters
        self._types: bytes | None = None  # the same, as letters have it
        self._types_again: bytes | None = None  # that of the letters that are processed next
        self._laws: RowsAlone | None = None
        self._calls = 0

    @abstractmethod
    def read(self, answer: Any, rows: int) -> Any:
        """Return an answer of the function for some rows, as columns or flags; an exception is a failure of it."""

    @abstractmethod
    def joined(self, answers: Sequence[Any], mask: Sequence[bool] | None) -> Any:
        """Return several answers as one, without the rows that have a false flag."""

    @abstractmethod
    def applied(self, batch: Batch, given: pa.RecordBatch, answer: Any) -> Batch:
        """Return a batch as the answer for it says, from the columns that the function got."""

    @abstractmethod
    def as_columns(self, answer: Any) -> pa.RecordBatch:
        """Return an answer as columns, to be compared."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the function, unless there is no record."""
        if not len(batch):
            return (_empty(batch),)
        given = self._given(batch)
        if self.guard is not None:
            return (self._guarded(batch, given, self.guard),)
        try:
            answer = self._answer(given)
        except failures() as error:
            note = partial(_note, batch, given.schema.names)
            raise self.first_failure(batch, self._part_of(given), error, note) from error
        return (self._checked(batch, given, answer),)

    def turn_to_columns(self, types: bytes | None) -> None:
        """Take the rows of the next dead letters as rows of columns with these types."""
        self._types_again = types

    def process_again(self, batch: Batch) -> Sequence[Batch]:
        """Process the rows of dead letters, as the columns that they were rows of, or like the last frame."""
        from malflow.columns.flat_rows import frame_like, like_of  # noqa: PLC0415 - as above

        types = self._types_again
        like = self._like if types is None else like_of(types, batch.values[0])
        if self.guard is not None:
            self.guard.note_columns(types)
        unfit: dict[int, BaseException] = {}
        for at, row in enumerate(batch.values):
            try:
                frame_like([row], like)
            except ValueError as error:
                if self.guard is None:
                    raise self.fail_at(error, batch, at, None) from error
                unfit[at] = error
        if unfit and self.guard is not None:
            left, _ = settled(self.guard, batch, unfit)
            self.guard.leave(left)
            batch = without(left, batch)
        return self.process(batch.with_values(frame_like(batch.values, like)) if len(batch) else batch)

    def _given(self, batch: Batch) -> pa.RecordBatch:
        """Return the argument of the function, as a record batch.

        Raises:
            OperatorError: if the values are no columns, or keys or timestamps can't be one.
        """
        from malflow.columns.answers import given  # noqa: PLC0415 - as above

        values = batch.values
        if not is_columnar(values) or values.batch is None or values.is_composed:
            raise self.error(_NO_COLUMNS, record_of(batch, 0))
        frame: Any = values
        self._note(frame.schema, frame.row)
        try:
            return given(batch, values.batch, self._with_key, self._with_time)
        except (TypeError, ValueError) as error:
            raise self.error(f"{error}", record_of(batch, getattr(error, "row", 0))) from error

    def _note(self, schema: pa.Schema, row: Any) -> None:
        """Note the types of a frame, for letters."""
        is_known = (schema, row) == self._like
        self._like = schema, row
        if self.guard is None:
            return
        if not is_known or self._types is None:
            from malflow.columns.flat_rows import types_of  # noqa: PLC0415 - as above

            self._types = types_of(schema, row)
        self.guard.note_columns(self._types)

    def _answer(self, given: pa.RecordBatch) -> Any:
        """Return the answer of the function for some rows, checked and read."""
        if not self.context.debug:
            return self.read(self.callback(given if self._form is None else self._form(given)), given.num_rows)
        from malflow.columns.laws import check_unchanged, copied  # noqa: PLC0415 - as above

        before = copied(given)
        answer = self.read(self.callback(given if self._form is None else self._form(given)), given.num_rows)
        check_unchanged(before, given, "its input")
        return answer

    def _checked(self, batch: Batch, given: pa.RecordBatch, answer: Any) -> Batch:
        """Return a batch as its answer says; in a debug run, after calling the function again with parts of it.

        Raises:
            OperatorError: if it answers other rows for a part, or an answer has changed.
        """
        if not self.context.debug:
            return self.applied(batch, given, answer)
        from malflow.columns.laws import LawBroken, RowsAlone, check_unchanged, copied  # noqa: PLC0415 - as above

        if self._laws is None:
            self._laws = RowsAlone(lambda part: self.as_columns(self._answer(part)))
        self._calls += 1
        columns = self.as_columns(answer)
        kept, chance = copied(columns), f"{self.context.operator_name} {self.context.worker_id} {self._calls}"
        try:
            self._laws.check(given, kept, chance)
            check_unchanged(kept, columns, "an earlier answer")
        except LawBroken as broken:
            raise self.fault(batch, broken) from broken
        return self.applied(batch, given, answer)

    def fault(self, batch: Batch, error: BaseException) -> Exception:
        """Return the error for a failure that no row is to blame for, or one that names its row itself."""
        row = getattr(error, "row", None)
        reason = f"{error}" if isinstance(error, MalflowError) else error
        if row is not None:
            return self.error(reason, record_of(batch, row))
        return self.error(reason, about=f"a batch of {plural(len(batch), 'row')}")

    def _part_of(self, given: pa.RecordBatch) -> Callable[[int, int], Any]:
        return lambda start, stop: self._answer(given.slice(start, stop - start))

    def _guarded(self, batch: Batch, given: pa.RecordBatch, guard: Guard) -> Batch:
        """Drop the rows at which the function fails alone, and those that follow a parked one."""
        from malflow.columns.answers import rows_at  # noqa: PLC0415 - as above

        parked = rows_parked(guard, batch)
        places: Sequence[int] = range(len(batch))
        if parked:
            places = sorted({*places}.difference(parked))
            given = rows_at(given, places)
        answers, failed = self.answers_of(batch, self._part_of(given), places, guard)
        if not failed and not parked:
            return self._checked(batch, given, self.joined([it.answer for it in answers], None))
        rows = {places[at]: at for at in failed}
        part = self._part_of(given)
        errors = {places[at]: error for at, error in failed.items()}
        left, again = settled(guard, batch, errors, lambda at: part(rows[at], rows[at] + 1), parked)
        answers = sorted([*answers, *(Answered(rows[at], rows[at] + 1, it) for at, it in again.items())])
        gone = frozenset(left)
        mask = [places[at] not in gone for it in answers for at in range(it.start, it.stop)]
        if not any(mask):
            return without(left, _bare(batch))
        staying = [at for at, place in enumerate(places) if place not in gone]
        answer = self.joined([it.answer for it in answers], mask)
        return self._checked(without(left, batch), rows_at(given, staying), answer)


_QUOTED = re.compile('"([^"]*)"')
"""The name of a column in an error of Arrow or polars."""


def _note(batch: Batch, names: Sequence[str], error: BaseException, at: int) -> None:
    """Add notes to an error of one row: the columns, if it lacks one, and the place of the row."""
    _note_missing_column(error, names)
    note = f"it is row {at} of a batch of {len(batch):,}"
    if len(batch) > 1 and note not in getattr(error, "__notes__", ()):  # a function may raise one object again
        error.add_note(note)


def _note_missing_column(error: BaseException, names: Sequence[str]) -> None:
    """Add a note to an error about a column that a batch lacks: the names that it has."""
    if not isinstance(error, KeyError) and type(error).__name__ != "ColumnNotFoundError":
        return
    text = str(error.args[0]) if error.args else ""
    quoted = _QUOTED.search(text)
    name = text if quoted is None else quoted[1]
    if name not in names:
        error.add_note(f"the batch has no column {name!r}{did_you_mean(name, names)}")


_NO_COLUMNS = (
    "it needs columns, and gets Python objects: the source emits them, or an operator before it has read the rows of "
    "its columns; call .to_columns(...) before it"
)


def _empty(batch: Batch) -> Batch:
    """Return the epochs of a batch without records."""
    return Batch(None, (), (), batch.epochs)


def _bare(batch: Batch) -> Batch:
    """Return a batch without its records, with values that cost nothing."""
    return Batch(None, range(len(batch)), range(len(batch)), batch.epochs)


class MapBatches(_CallsBatches):
    """Replace the columns of each batch with the function's answer: as many rows.

    Args:
        context: the operator's context.
        callback: the function.
        schema: the schema of its answers; None for the first one's.
        frame: makes its argument.
        with_key: the column of keys.
        with_time: the column of timestamps.
    """

    def __init__(
        self,
        context: OperatorContext,
        callback: Callable[[Any], Any],
        schema: Any = None,
        frame: Callable[[Any], Any] | None = None,
        with_key: str | None = None,
        with_time: str | None = None,
    ) -> None:
        from malflow.columns.answers import AnswerReader  # noqa: PLC0415 - as above

        super().__init__(context, callback, frame, with_key, with_time)
        self._reader = AnswerReader(schema)

    def read(self, answer: Any, rows: int) -> pa.RecordBatch:
        """Return the answer as a record batch."""
        return self._reader.read(answer, rows)

    def joined(self, answers: Sequence[pa.RecordBatch], mask: Sequence[bool] | None) -> pa.RecordBatch:
        """Return several answers as one."""
        from malflow.columns.answers import together  # noqa: PLC0415 - as above

        return together([self._reader.conformed(it) for it in answers], mask)

    def applied(self, batch: Batch, given: pa.RecordBatch, answer: pa.RecordBatch) -> Batch:
        """Return the batch with the answer as its values. Columns that it has unchanged keep their dictionaries."""
        from malflow.columns import Frame  # noqa: PLC0415 - as above
        from malflow.columns.answers import encoded_again  # noqa: PLC0415 - as above

        columns = batch.values.batch if is_columnar(batch.values) else None
        return batch.with_values(Frame(answer if columns is None else encoded_again(answer, given, columns)))

    def as_columns(self, answer: pa.RecordBatch) -> pa.RecordBatch:
        """Return the answer."""
        return answer


class FilterBatches(_CallsBatches):
    """Keep the rows with a true flag in the function's answer."""

    def read(self, answer: Any, rows: int) -> Any:
        """Return the flags as an array of numpy."""
        from malflow.columns.answers import flags_of  # noqa: PLC0415 - as above

        return flags_of(answer, rows)

    def joined(self, answers: Sequence[Any], mask: Sequence[bool] | None) -> Any:
        """Return the flags of several answers."""
        from malflow.columns.answers import joined_flags  # noqa: PLC0415 - as above

        return joined_flags(answers, mask)

    def applied(self, batch: Batch, given: pa.RecordBatch, answer: Any) -> Batch:
        """Return the rows with a true flag."""
        del given
        from malflow.columns.answers import chosen  # noqa: PLC0415 - as above

        return chosen(batch, answer)

    def as_columns(self, answer: Any) -> pa.RecordBatch:
        """Return the flags as a column."""
        from malflow.columns.answers import flags_as_column  # noqa: PLC0415 - as above

        return flags_as_column(answer)


class SelectColumns(Operator):
    """Replace each value with some of its fields: as columns if it has columns, otherwise as a dict.

    Args:
        context: the operator's context.
        fields: the names of the items or attributes, by their new names.
    """

    takes_batches = True
    keeps_columns = True

    def __init__(self, context: OperatorContext, fields: Mapping[str, str]) -> None:
        super().__init__(context)
        self._fields = fields

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Choose the columns, or read the fields."""
        if not len(batch):
            return (_empty(batch),)
        values = batch.values
        if is_columnar(values) and (found := values.renamed(self._fields)) is not None:
            return (batch.with_values(found),)
        columns = {}
        for name, field in self._fields.items():
            rest = iter(batch.values)
            try:
                columns[name] = read_each(batch, field, rest, "name a field that all values have")
            except failures() as error:
                raise self.fail(error, batch, rest) from error
        return (batch.with_values(Rows(columns)),)


class ToColumns(_TakesBatches):
    """Replace each value with a flat row, as columns.

    Args:
        context: the operator's context.
        schema: the columns and their types; None to take them from the first batch.
        key: the name of a column for the key; None for none.
        timestamp: the name of a column for the timestamp; None for none.
    """

    makes_columns = True

    def __init__(
        self, context: OperatorContext, schema: Any = None, key: str | None = None, timestamp: str | None = None
    ) -> None:
        from malflow.columns.flat_rows import FlatRows  # noqa: PLC0415 - as above

        super().__init__(context)
        self._rows = FlatRows(schema, key, timestamp)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Make the columns."""
        if not len(batch):
            return (_empty(batch),)
        try:
            frame = self._rows.frame_of(batch)
        except (TypeError, ValueError) as error:
            raise self.error(f"{error}", record_of(batch, getattr(error, "row", 0))) from error
        return (batch.with_values(frame),)
