"""Stream methods for records as columns: functions of whole batches, and conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from malflow.checks import check_function, check_name
from malflow.failures import ErrorPolicy
from malflow.nodes import StatelessNode
from malflow.operators.contract import Logic
from malflow.streams.arguments import checked_function, checked_policy, malformed
from malflow.streams.handle import StreamHandle
from malflow.words import error_text, short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import OfBatches, OfMappedBatches
    from malflow.streams.stream import Stream

__all__ = ["ColumnOperators"]

F = TypeVar("F")
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


class ColumnOperators(StreamHandle[K, V_co, T]):
    """Methods for operators on columns. They need ``pip install 'malflow[columns]'``."""

    __slots__ = ()

    @overload
    def map_batches(
        self, name: str, function: Callable[[Any], object], *, frame: None = None, **more: Unpack[OfMappedBatches]
    ) -> Stream[K, dict[str, Any], T]: ...
    @overload
    def map_batches(
        self, name: str, function: Callable[[F], object], *, frame: Callable[[Any], F], **more: Unpack[OfMappedBatches]
    ) -> Stream[K, dict[str, Any], T]: ...
    def map_batches(
        self,
        name: str,
        function: Callable[[Any], object],
        *,
        frame: Callable[[Any], Any] | None = None,
        schema: Any = None,
        with_key: str | None = None,
        with_time: str | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Replace the columns of each batch of records with ``function(batch)``: a row for each row.

        Row i of the answer may depend on row i of the batch only, as batches have any size; ``debug=True`` on a runtime
        checks that. The function must not write to its input. Keys and timestamps stay. The values of the new stream
        are dicts by column name.

        Args:
            name: the operator's name.
            function: returns as many rows as it gets: a record batch of Arrow, a data frame of polars or pandas, or
                anything else with ``__arrow_c_stream__`` or ``__arrow_c_array__``.
            frame: makes the function's argument of a `pyarrow.RecordBatch`, such as ``polars.DataFrame``,
                ``pandas.DataFrame`` or ``pyarrow.Table``; by default it gets the record batch itself.
            schema: the columns of the answer and their types, as a `pyarrow.Schema` or a mapping from name to type; by
                default those of the first answer. An answer with others is an error.
            with_key: the name of a further column in the function's argument, with the keys.
            with_time: the name of a further one, with the timestamps.
            on_error: the fate of a row at which the function fails, as for `map`. The function is called again with
                parts of the batch to find such rows, and keeps the others.

        >>> import pyarrow.compute as pc
        >>> def priced(batch):
        ...     return batch.append_column("total", pc.multiply(batch["price"], batch["count"]))
        >>> orders = [{"price": 3, "count": 2}, {"price": 5, "count": 1}]
        >>> run(orders, lambda stream: stream.to_columns("columns").map_batches("total", priced))
        [{'price': 3, 'count': 2, 'total': 6}, {'price': 5, 'count': 1, 'total': 5}]
        """
        from malflow.operators.batches import MapBatches  # noqa: PLC0415 - only dataflows with columns need it

        logic = partial(MapBatches, callback=checked_function(name, "function", function, "batch"), frame=frame)
        self._check_columns(name, frame, with_key, with_time)
        logic = partial(logic, schema=_checked_schema(name, schema), with_key=with_key, with_time=with_time)
        return self._of_batches(name, logic, on_error)

    @overload
    def filter_batches(
        self, name: str, function: Callable[[Any], object], *, frame: None = None, **more: Unpack[OfBatches]
    ) -> Stream[K, V_co, T]: ...
    @overload
    def filter_batches(
        self, name: str, function: Callable[[F], object], *, frame: Callable[[Any], F], **more: Unpack[OfBatches]
    ) -> Stream[K, V_co, T]: ...
    def filter_batches(
        self,
        name: str,
        function: Callable[[Any], object],
        *,
        frame: Callable[[Any], Any] | None = None,
        with_key: str | None = None,
        with_time: str | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Keep the records with a true flag in ``function(batch)``; a null counts as false, as in SQL.

        What `map_batches` says of its function holds for this one.

        Args:
            name: the operator's name.
            function: returns a boolean for each row: an array of Arrow or numpy, a series, or a frame with one column.
            frame: makes the function's argument, as in `map_batches`.
            with_key: the name of a further column in the function's argument, with the keys.
            with_time: the name of a further one, with the timestamps.
            on_error: the fate of a row at which the function fails, as in `map_batches`.

        >>> import pyarrow.compute as pc
        >>> rows = [{"price": 3}, {"price": None}, {"price": 9}]
        >>> dear = lambda batch: pc.greater(batch["price"], 5)
        >>> run(rows, lambda stream: stream.to_columns("columns").filter_batches("dear", dear))
        [{'price': 9}]
        """
        from malflow.operators.batches import FilterBatches  # noqa: PLC0415 - as above

        logic = partial(FilterBatches, callback=checked_function(name, "function", function, "batch"), frame=frame)
        self._check_columns(name, frame, with_key, with_time)
        return self._of_batches(name, partial(logic, with_key=with_key, with_time=with_time), on_error)

    def select_columns(self, name: str, *fields: str, **renamed: str) -> Stream[K, dict[str, Any], T]:
        """Replace each value with a dict of some of its fields; columns are chosen without a copy.

        Args:
            name: the operator's name.
            fields: the names of the fields: columns, items of dicts, or attributes of other values.
            renamed: further ones, by their new names.

        >>> rows = [{"town": "Ulm", "people": 130_000, "river": "Danube"}]
        >>> run(rows, lambda stream: stream.select_columns("short", "town", size="people"))
        [{'town': 'Ulm', 'size': 130000}]
        """
        from malflow.operators.batches import SelectColumns  # noqa: PLC0415 - as above

        chosen: dict[str, str] = {}
        for new, field in (*((field, field) for field in fields), *renamed.items()):
            check_name(partial(malformed, name), "fields", field, "the name of a field")
            if new in chosen:
                raise malformed(name, f"selects two columns with the name {new!r}; rename one: other={field!r}")
            chosen[new] = field
        if not chosen:
            raise malformed(name, f"needs a field or more; write .select_columns({name!r}, 'field')")
        node = StatelessNode(name, partial(SelectColumns, fields=chosen), tells_by=(), needs_columns=True)
        return self._at(self._append(node))  # type: ignore[no-any-return] # its class depends on keys

    def to_columns(
        self, name: str, *, schema: Any = None, key: str | None = None, timestamp: str | None = None
    ) -> Stream[K, dict[str, Any], T]:
        """Make columns of values, for `map_batches` and sinks that take columns: a flat row of each value.

        The columns are the items or fields of the values. The result of a window becomes ``start``, ``end`` and the
        fields of its value: its own names if it has some, ``value_0``, ``value_1`` for several aggregators, ``value``
        for one. All values need the same fields, and each field one type; None is null.

        Args:
            name: the operator's name.
            schema: the columns and their types, as a `pyarrow.Schema` or a mapping from name to type; other fields are
                left out. By default, the fields of the first record, and the types of the first batch.
            key: the name of a further column, with the keys.
            timestamp: the name of a further one, with the timestamps.

        >>> from malflow.windows import tumbling
        >>> def bars(stream):
        ...     keyed = stream.event_time("time", "at", out_of_orderness=0).key_distribute("town", "town")
        ...     sums = keyed.window(tumbling(10)).aggregate("sum", agg.into(dict, n=agg.count(), sum=agg.sum("n")))
        ...     return sums.to_columns("rows", key="town")
        >>> run([{"town": "Ulm", "at": 3, "n": 4}, {"town": "Ulm", "at": 5, "n": 5}], bars)
        [{'start': 0, 'end': 10, 'n': 2, 'sum': 9, 'town': 'Ulm'}]
        """
        from malflow.operators.batches import ToColumns  # noqa: PLC0415 - as above

        _need_columns()
        for option, column in (("key", key), ("timestamp", timestamp)):
            check_name(partial(malformed, name), option, column, "the name of a column", optional=True)
        if key is not None and key == timestamp:
            raise malformed(name, f"has key= and timestamp= with one name, {key!r}; name two columns")
        self._check_keyed(name, "key", key)
        logic = partial(ToColumns, schema=_checked_schema(name, schema), key=key, timestamp=timestamp)
        return self._at(self._append(StatelessNode(name, logic, tells_by=())))  # type: ignore[no-any-return] # as above

    def _check_columns(self, name: str, frame: Any, with_key: Any, with_time: Any) -> None:
        """Check the options of a function of batches, and that columns can be had.

        Raises:
            MissingDependency: if they can't.
        """
        _need_columns()
        if frame is not None:
            check_function(partial(malformed, name), "frame", frame, arguments="batch")
        for option, column in (("with_key", with_key), ("with_time", with_time)):
            check_name(partial(malformed, name), option, column, "the name of a column", optional=True)
        if with_key is not None and with_key == with_time:
            raise malformed(name, f"has with_key= and with_time= with one name, {with_key!r}; name two columns")
        self._check_keyed(name, "with_key", with_key)

    def _check_keyed(self, name: str, option: str, column: object) -> None:
        if column is not None and not self._is_keyed:
            raise malformed(
                name,
                f"needs a keyed stream for its {option}=; its input has no key; call .key_distribute() before",
            )

    def _of_batches(self, name: str, logic: Logic, on_error: ErrorPolicy) -> Any:
        node = StatelessNode(
            name,
            logic,
            on_error=checked_policy(name, on_error),
            placed_by=self._placed_by(),
            tells_by=(),
            needs_columns=True,
        )
        return self._at(self._append(node))


def _need_columns() -> None:
    """Import the library of columns, so that it is missed before the dataflow runs.

    Raises:
        MissingDependency: if it is not installed.
    """
    import malflow.columns  # noqa: F401, PLC0415 - only the extra has it


def _checked_schema(name: str, schema: Any) -> Any:
    """Return a schema of Arrow, or None."""
    if schema is None:
        return None
    from malflow.columns.answers import as_schema  # noqa: PLC0415 - only the extra has it

    try:
        return as_schema(schema)
    except (TypeError, ValueError) as error:
        raise malformed(
            name,
            f"needs a schema of columns; got {short_repr(schema)}: {error_text(error)}; write pyarrow.schema([(name, "
            "type), ...])",
        ) from error
