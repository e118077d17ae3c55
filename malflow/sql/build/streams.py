"""Relations become streams of tuples: for each the rows on time, and the late ones."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from malflow import agg
from malflow.sources import SingleIteratorSource
from malflow.sql.bind.relations import Calc, Group, Literals, Relation, Scan, Union, Windowed, WindowSpec
from malflow.sql.build.aggregates import aggregator_of
from malflow.sql.build.chains import chain
from malflow.sql.text import Source
from malflow.windows import Windows, session, sliding, tumbling

__all__ = ["Rows", "StreamBuilder"]


class Rows(NamedTuple):
    """The streams of a relation.

    Attributes:
        on_time: the rows ahead of the watermark.
        late: the rows at or behind it; None if there can be none.
    """

    on_time: Any
    late: Any = None


class StreamBuilder:
    """Builds the streams of relations, each once.

    Args:
        provider: the dataflow.
        table: returns the streams of a table by its name.
        text: the text, for the places in errors.
    """

    def __init__(self, provider: Any, table: Callable[[str], Rows], text: Source) -> None:
        self._provider = provider
        self._table = table
        self._text = text
        self._built: dict[int, Rows] = {}

    def rows(self, relation: Relation) -> Rows:
        """Return the streams of a relation."""
        if id(relation) not in self._built:
            self._built[id(relation)] = self._build(relation)
        return self._built[id(relation)]

    def _build(self, relation: Relation) -> Rows:
        match relation:
            case Scan():
                return self._table(relation.table)
            case Literals():
                return self._literals(relation)
            case Calc():
                return self._calc(relation)
            case Union():
                return self._union(relation)
            case Windowed():
                return self._windowed(relation)
            case Group():
                return self._group(relation)
        raise TypeError(f"{type(relation).__name__} is no relation that can be built")

    def _each(self, rows: Rows, build: Callable[[Any, str], Any]) -> Rows:
        """Return both streams after an operator; that of the late rows has a name of its own."""
        return Rows(build(rows.on_time, ""), None if rows.late is None else build(rows.late, ".late"))

    def _literals(self, relation: Literals) -> Rows:
        evaluate = [chain(None, row, 0, self._text) for row in relation.rows]
        values = [it([()])[0] for it in evaluate]
        return Rows(self._provider.new_stream().source(relation.name, SingleIteratorSource(values)))

    def _calc(self, relation: Calc) -> Rows:
        made = chain(relation.where, relation.items, len(relation.input.fields), self._text)
        source = self.rows(relation.input)
        return self._each(source, lambda stream, end: stream.filter_map_many(f"{relation.name}{end}", made))

    def _union(self, relation: Union) -> Rows:
        parts = [self.rows(it) for it in relation.inputs]
        on_time, late = [it.on_time for it in parts], [it.late for it in parts if it.late is not None]
        return Rows(on_time[0].union(*on_time[1:]), late[0].union(*late[1:]) if late else None)

    def _windowed(self, relation: Windowed) -> Rows:
        made = _with_windows(relation.time, relation.spec)
        source = self.rows(relation.input)
        return self._each(source, lambda stream, end: stream.flat_map(f"{relation.name}{end}", made))

    def _group(self, relation: Group) -> Rows:
        keys = itemgetter(*range(relation.keys)) if relation.keys else None
        key_of = _key_of(keys, relation.keys)
        source = self._each(
            self.rows(relation.input), lambda stream, end: stream.key_distribute(f"{relation.name}.key{end}", key_of)
        )
        windows = source.on_time.window(_windows(relation.spec))
        aggregator = agg.tuple_(*map(aggregator_of, relation.aggregates or ())) if relation.aggregates else agg.count()
        if source.late is None:
            results = windows.aggregate(relation.name, aggregator)
        else:
            results = windows.allow_late(source.late).aggregate(relation.name, aggregator).results
        has_values = bool(relation.aggregates)
        return Rows(results.map_with_key(f"{relation.name}.row", _row_of(relation.keys, has_values)))


def _windows(spec: WindowSpec) -> Windows:
    match spec.kind:
        case "TUMBLE":
            return tumbling(spec.size, offset=spec.offset)
        case "HOP":
            return sliding(spec.size, spec.step, offset=spec.offset)
    return session(spec.size, touch=True)


def _key_of(keys: Callable[[Any], Any] | None, count: int) -> Callable[[Any], Any]:
    """Return the function that returns the key of a message: NULL is a key too."""
    if keys is None:
        return lambda message: ()
    if count == 1:
        return lambda message: (None,) if (key := message.value[0]) is None else key
    return lambda message: message.value[:count]


def _row_of(keys: int, has_values: bool) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Return the function that makes a row of a key and the result of its window."""

    def row(key: Any, result: Any) -> tuple[Any, ...]:
        own = key if keys != 1 else key if key == (None,) else (key,)
        values = result.value if has_values else ()
        return (result.start, result.end, result.end - 1, *own, *values)

    return row


def _with_windows(time: int, spec: WindowSpec) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function that adds its windows to a row, once for each; a row without a time is in none."""
    size, step, offset = spec.size, spec.step or spec.size, spec.offset

    def rows(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        at = row[time]
        if at is None:
            return []
        last = (at - offset) // step * step + offset
        starts = range(last, at - size, -step)
        return [(*row, start, start + size, start + size - 1) for start in starts]

    return rows
