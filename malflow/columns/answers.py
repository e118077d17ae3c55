"""What functions of batches get and answer: record batches of as many rows, and flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.arrays import canonical, has_no_type, in_microseconds, is_readable
from malflow.columns.frame import Frame
from malflow.columns.objects import array_of_column
from malflow.errors import MalflowError
from malflow.records.batch import Batch
from malflow.words import did_you_mean, listed, plural, short_repr

__all__ = [
    "AnswerReader",
    "BadAnswer",
    "WrongLength",
    "as_batch",
    "as_schema",
    "chosen",
    "flags_as_column",
    "flags_of",
    "form_of",
    "given",
    "joined_flags",
    "rows_at",
    "together",
]

_INDEX = "__index_level_"
"""How the names of columns begin in which pandas passes an index on. An index of rows is not a column."""


class BadAnswer(MalflowError, TypeError):
    """A function of batches has answered something that no row is to blame for, such as None, or another schema."""


class WrongLength(ValueError):
    """A function of batches has answered more or fewer rows than it got."""


def form_of(frame: Any) -> Callable[[pa.RecordBatch], Any] | None:
    """Return a function that makes what a function of batches gets of a record batch; None for the batch itself.

    >>> form_of(None) is None, form_of(pa.Table)(pa.record_batch({"n": [1]})).num_rows
    (True, 1)
    """
    if frame is None or frame is pa.RecordBatch:
        return None
    if frame is pa.Table:
        return _as_table
    room = str(getattr(frame, "__module__", "")).partition(".")[0]
    if room == "pandas" and isinstance(frame, type):
        return _as_pandas
    if room == "narwhals":
        return lambda batch: frame(_as_table(batch))
    return frame  # type: ignore[no-any-return] # a function of the user


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _as_pandas(batch: pa.RecordBatch) -> Any:
    return batch.to_pandas()


def given(batch: Batch, columns: pa.RecordBatch, with_key: str | None, with_time: str | None) -> pa.RecordBatch:
    """Return the columns of a batch for a function, with its keys and timestamps as further ones.

    Dictionaries become plain items: most functions take no others, and whether a file has one depends on its items.

    Args:
        batch: the batch.
        columns: its columns.
        with_key: the name of the column of keys; None for none.
        with_time: the name of the column of timestamps; None for none.

    Raises:
        BadAnswer: if there is a column of this name.
        UnfitItem: if the keys or timestamps can't be a column.
    """
    columns = _plain_items(columns)
    for option, name, items in (("with_key", with_key, batch.keys), ("with_time", with_time, batch.timestamps)):
        if name is None or items is None:
            continue
        if name in columns.schema.names:
            raise BadAnswer(f"{option}={name!r} is the name of a column that there is: {listed(columns.schema.names)}")
        columns = columns.append_column(name, _plain_array(array_of_column(items, name)))
    return columns


def _plain_items(columns: pa.RecordBatch) -> pa.RecordBatch:
    if not any(map(pa.types.is_dictionary, columns.schema.types)):
        return columns
    return pa.record_batch([_plain_array(it) for it in columns.columns], names=columns.schema.names)


def _plain_array(array: pa.Array) -> pa.Array:
    return canonical(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def encoded_again(answer: pa.RecordBatch, given: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return an answer with dictionaries in the columns that the function has passed on.

    Args:
        answer: the answer.
        given: the columns that the function got.
        columns: the columns of the batch.
    """
    names, found = answer.schema.names, list(answer.columns)
    for at, name in enumerate(names):
        place = columns.schema.get_field_index(name)
        if place < 0 or not pa.types.is_dictionary(columns.schema.types[place]):
            continue
        if _is_one(answer.column(at), given.column(place)):
            found[at] = columns.column(place)
    return pa.record_batch(found, names=names)


def _is_one(array: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same items in memory."""
    if array.type != other.type or len(array) != len(other) or array.offset != other.offset:
        return False
    both = zip(array.buffers(), other.buffers(), strict=True)
    return all((it and it.address) == (its and its.address) for it, its in both)


def as_schema(schema: Any) -> pa.Schema:
    """Return a schema of Arrow, from one, a mapping from name to type, or an object with ``__arrow_c_schema__``.

    Raises:
        TypeError: if it is none of these.
        ValueError: if a name occurs twice, or there is no column.
    """
    if not isinstance(schema, pa.Schema):
        schema = pa.schema(schema)
    names = schema.names
    if not names:
        raise ValueError("it has no column")
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have one name: {listed(names)}")
    exact = [field.with_type(in_microseconds(field.type) or field.type) for field in schema]
    return pa.schema([pa.field(field.name, _plain(field.type), field.nullable) for field in exact])


def _plain(kind: pa.DataType) -> pa.DataType:
    return canonical(pa.nulls(0, kind)).type


class AnswerReader:
    """Reads the answers of a function as record batches of one schema.

    Args:
        schema: the schema; None for the first answer's.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.schema = schema
        self._is_stated = schema is not None

    def read(self, answer: Any, rows: int) -> pa.RecordBatch:
        """Return an answer as a record batch.

        Args:
            answer: the answer.
            rows: the number of rows that the function got.

        Raises:
            BadAnswer: if it has no columns, or other ones than expected.
            WrongLength: if it has more or fewer rows.
            ValueError: if an item can't be kept.
        """
        batch = as_batch(answer)
        names = batch.schema.names
        if not names:
            raise BadAnswer(f"it answered no columns for {plural(rows, 'row')}; answer one or more")
        if len(set(names)) < len(names):
            raise BadAnswer(f"it answered two columns of one name: {listed(names)}; rename them")
        if batch.num_rows != rows:
            raise WrongLength(
                f"it answered {plural(batch.num_rows, 'row')} for {rows:,}, and must answer a row for each; call "
                ".filter_batches() to drop rows, .aggregate() for totals"
            )
        found = [_kept(column, name) for name, column in zip(names, batch.columns, strict=True)]
        return self.conformed(pa.record_batch(found, names=names))

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the schema that is due; the types of columns with nulls only may be learnt later.

        Raises:
            BadAnswer: if it has another one.
            ValueError: if an item does not fit.
        """
        if self.schema is None:
            self.schema = batch.schema
        if batch.schema.equals(self.schema):
            return batch
        wanted = self.schema
        if set(batch.schema.names) != set(wanted.names):
            raise BadAnswer(self._other_names(batch.schema.names, wanted.names))
        columns = []
        for place, field in enumerate(wanted):
            column = batch.column(batch.schema.get_field_index(field.name))
            kind, due = column.type, field.type
            if kind != due and not self._is_stated and has_no_type(due):
                due = kind
                self.schema = self.schema.set(place, pa.field(field.name, kind))
            columns.append(column if kind == due else self._cast(column, field.name, due))
            if not field.nullable and columns[-1].null_count:
                raise ValueError(f"column '{field.name}' is null, and schema= says that it never is")
        return pa.record_batch(columns, names=wanted.names)

    def _cast(self, column: pa.Array, name: str, due: pa.DataType) -> pa.Array:
        if not self._is_stated and not has_no_type(column.type):
            raise BadAnswer(
                f"it answered column '{name}' as {column.type}, and as {due} before; answer one type, or pass schema="
            )
        try:
            return canonical(column.cast(due))
        except pa.ArrowNotImplementedError as error:
            raise BadAnswer(f"it answered column '{name}' as {column.type}, and schema= has {due}") from error
        except pa.ArrowInvalid as error:
            raise ValueError(f"column '{name}' does not fit its type in schema=, {due}: {error}") from error

    def _other_names(self, names: Sequence[str], due: Sequence[str]) -> str:
        by = "schema= has" if self._is_stated else "before it answered"
        odd = next((name for name in names if name not in due), None)
        meant = "" if odd is None else did_you_mean(odd, due)
        return f"it answered the columns {listed(names)}, and {by} {listed(due)}{meant}"


def as_batch(answer: Any) -> pa.RecordBatch:
    """Return columns as one record batch.

    Raises:
        BadAnswer: if they are none.
    """
    if isinstance(answer, pa.RecordBatch):
        return answer
    try:
        if isinstance(answer, pa.Table):
            table = answer
        elif hasattr(answer, "__arrow_c_stream__"):
            _check_objects(answer)
            table = pa.RecordBatchReader.from_stream(answer).read_all()
        elif hasattr(answer, "__arrow_c_array__"):
            return pa.record_batch(answer)
        else:
            raise BadAnswer(_no_columns(answer))
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, BadAnswer):
            raise
        raise BadAnswer(f"{_no_columns(answer)}: {error}") from error
    if any(name.startswith(_INDEX) for name in table.column_names):
        table = table.select([name for name in table.column_names if not name.startswith(_INDEX)])
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise ValueError(_TOO_LARGE)
    if batches:
        return batches[0]
    return pa.record_batch([pa.nulls(0, kind) for kind in table.schema.types], names=table.column_names)


def _check_objects(answer: Any) -> None:
    """Check that a frame of polars has no column of Python objects: it would pass on their addresses as bytes."""
    kinds = getattr(answer, "dtypes", ())
    objects = [name for name, kind in zip(getattr(answer, "columns", ()), kinds, strict=False) if str(kind) == "Object"]
    if objects:
        raise BadAnswer(f"it answered Python objects in column '{objects[0]}'; answer a type of polars")


_TOO_LARGE = "its answer has more than 2 GiB of texts in one column, which one batch can't hold"


def _no_columns(answer: Any) -> str:
    cure = "call .collect() in the function" if hasattr(answer, "collect") else "answer a data frame or a record batch"
    return f"it answered {_shown(answer)}, which is not a frame of columns; {cure}"


def _shown(answer: Any) -> str:
    text, kind = short_repr(answer), type(answer).__name__
    if answer is None:
        return text
    return f"an object of type {kind}" if "\n" in text else f"{text}, of type {kind}"


def _kept(column: pa.Array, name: str) -> pa.Array:
    """Return a column with a type that columns have, and microseconds for nanoseconds.

    Raises:
        ValueError: if an item can't be kept.
    """
    exact = in_microseconds(column.type)
    if exact is not None:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        try:
            column = plain.cast(exact)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"column '{name}' has times with a fraction of a microsecond, which Python can't hold; round them in "
                "the function, as by pyarrow.compute.floor_temporal(times, unit='microsecond')"
            ) from error
    column = canonical(column)
    if pa.types.is_temporal(column.type) and not is_readable(column):
        raise ValueError(f"column '{name}' ({column.type}) has a time outside of the years 1 to 9999")
    return column


def flags_of(answer: Any, rows: int) -> np.ndarray[Any, Any]:
    """Return the flags that a function of batches has answered; a null is False.

    Args:
        answer: an array, a series, or a frame with one column.
        rows: the number of rows that the function got.

    Raises:
        BadAnswer: if they are not booleans.
        WrongLength: if there are more or fewer of them.
    """
    array = _as_array(answer)
    if pa.types.is_struct(array.type) and array.type.num_fields == 1:
        (array,) = array.flatten()
    if not pa.types.is_boolean(array.type) and not pa.types.is_null(array.type):
        raise BadAnswer(f"it answered {array.type}, and must answer booleans, as of a comparison: a flag for each row")
    if len(array) != rows:
        raise WrongLength(
            f"it answered {plural(len(array), 'flag')} for {plural(rows, 'row')}, and must answer one each"
        )
    if pa.types.is_null(array.type):
        return np.zeros(rows, np.bool_)
    chosen: np.ndarray[Any, Any] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return chosen


def _as_array(answer: Any) -> pa.Array:
    try:
        if isinstance(answer, pa.Array):
            return answer
        if isinstance(answer, pa.ChunkedArray):
            return _one(answer)
        if hasattr(answer, "__arrow_c_array__"):
            return pa.array(answer)
        if hasattr(answer, "__arrow_c_stream__"):
            return _one(pa.chunked_array(answer))
        if hasattr(answer, "__array__") and getattr(answer, "ndim", 0) == 1:
            return _one(pa.array(answer, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadAnswer(f"{_no_flags(answer)}: {error}") from error
    raise BadAnswer(_no_flags(answer))


def _one(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _no_flags(answer: Any) -> str:
    return f"it answered {_shown(answer)}; answer an array or a series of booleans, one for each row"


def chosen(batch: Batch, flags: Any) -> Batch:
    """Return the records with a true flag, and all epochs."""
    if flags.all():
        return batch
    kept = Batch(batch.keys, batch.values, batch.timestamps).select(flags)
    if not batch.epochs:
        return kept
    before = np.concatenate([[0], np.cumsum(flags)]).tolist()
    return Batch(kept.keys, kept.values, kept.timestamps, [(before[at], epoch) for at, epoch in batch.epochs])


def rows_at(columns: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    """Return some rows of columns."""
    return columns.take(pa.array(places, pa.int64()))


def joined_flags(answers: Sequence[np.ndarray[Any, Any]], mask: Sequence[bool] | None) -> np.ndarray[Any, Any]:
    """Return the flags of several answers as one, without those at a false one of a mask."""
    whole: np.ndarray[Any, Any] = answers[0] if len(answers) == 1 else np.concatenate(answers)
    return whole if mask is None else whole[np.asarray(mask, np.bool_)]


def flags_as_column(flags: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Return flags as a column."""
    return pa.record_batch([pa.array(flags)], names=["flag"])


def together(batches: Sequence[pa.RecordBatch], mask: Sequence[bool] | None = None) -> pa.RecordBatch:
    """Return record batches of one schema as one, without the rows at a false flag of a mask."""
    whole: Any = Frame(batches[0]).join([Frame(batch) for batch in batches], in_turn=False)
    if whole is None:
        raise ValueError(_TOO_LARGE)
    return (whole if mask is None else whole.select(mask)).batch
