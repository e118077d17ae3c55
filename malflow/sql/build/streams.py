"""Relations become streams of tuples: for each the rows on time, and the late ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from malflow import agg
from malflow.sources import SingleIteratorSource
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import (
    Calc,
    Collected,
    Expanded,
    Group,
    Joined,
    Literals,
    Lost,
    Parted,
    Relation,
    Scan,
    Top,
    Union,
    Windowed,
    Within,
)
from malflow.sql.bind.sources import collected
from malflow.sql.build.aggregates import FirstRows, aggregator_of
from malflow.sql.build.chains import chain, every
from malflow.sql.build.doors import Door, Exit
from malflow.sql.build.layouts import LayoutMaker
from malflow.sql.build.rows import (
    BY_ARRIVAL,
    Pairs,
    at_once,
    bounded,
    elements_of,
    join_key,
    key_of,
    no_rows,
    numbered,
    numbered_windows,
    overlap,
    own_window,
    pair_of,
    row_of,
    same,
    windows_of,
    with_windows,
)
from malflow.sql.text import NOWHERE, Fault, Source, SqlError
from malflow.sql.typed import Column, Typed
from malflow.states.kinds import StateLayout

__all__ = ["Leaving", "Rows", "StreamBuilder", "united"]


T = TypeVar("T")


class Readable(Protocol):
    """A table that queries read."""

    is_checked: bool

    def rows(self) -> Rows | None:
        """Return its streams; None if nothing fills it."""

    def values(self) -> tuple[Rows, Door] | None:
        """Return streams of values, and the door that makes rows of them; None if other steps come after it."""


class Rows(NamedTuple):
    """The streams of a relation.

    Attributes:
        on_time: the rows ahead of the watermark.
        late: the rows at or before it; None if there can be none.
        arrived: all rows, in the order of their arrival; None if that is not known.
    """

    on_time: Any
    late: Any = None
    arrived: Any = None

    @property
    def together(self) -> Any:
        """The rows on time and the late ones."""
        return self.on_time if self.late is None else self.on_time.union(self.late)

    @property
    def every(self) -> Any:
        """All rows, by their arrival if that is known."""
        return self.together if self.arrived is None else self.arrived


Leaving = Callable[[Exit], Any]
"""Builds the stream of what leaves of rows."""


class Taken(NamedTuple):
    """The input of a chain.

    Attributes:
        rows: the rows, or the values that the door makes rows of.
        door: the door; None for rows.
        is_checked: whether the columns fit their types.
    """

    rows: Rows
    door: Door | None = None
    is_checked: bool = True


def united(parts: Sequence[Rows], name: str, layout: StateLayout | None) -> Rows:
    """Return the rows of several streams.

    The least watermark counts. So a row that is late by its own may be in time, and rows on time and late ones are
    parted again: if they have a time attribute, and so a layout. Without one their timestamps may not be comparable.
    """
    if len(parts) == 1:
        return parts[0]
    late = [it.late for it in parts if it.late is not None]
    first, *others = [*(it.on_time for it in parts), *late]
    every = first.union(*others)
    if not late or layout is None:
        return Rows(every)
    return Rows(*every.generate_epochs(name, _no_epoch, per_part=False, layout=layout))


def _no_epoch(_message: Any, _epoch: Any) -> None:
    """Issue no epoch beside those that arrive."""
    return None  # noqa: RET501 - a generator says so if that is meant


class StreamBuilder:
    """Builds the streams of relations, each once.

    Args:
        provider: the dataflow.
        table: returns a table by its name.
        layouts: makes the layouts of states.
    """

    def __init__(self, provider: Any, table: Callable[[str], Readable], layouts: LayoutMaker) -> None:
        self._provider = provider
        self._table = table
        self._layouts = layouts
        self._text = Source("")
        self._on_error: Any = "fail"
        self._built: dict[str, Rows] = {}
        self._picks: dict[str, Calc] = {}  # by an operator's name the columns of its rows, if no operator picks them
        self._lost_by: dict[str, list[Any]] = {}  # by an operator's name the late rows that it drops, of each input

    def rows(self, relation: Relation) -> Rows:
        """Return the streams of a relation. Views and common tables are read several times, and have one name."""
        if isinstance(relation, Within):
            return self._with(relation, lambda: self.rows(relation.input))
        if relation.name not in self._built:
            self._built[relation.name] = self._build(relation)
        return self._built[relation.name]

    def _with(self, within: Within, build: Callable[[], T]) -> T:
        """Build something with a policy and a text of its own."""
        before = self._text, self._on_error
        self._text, self._on_error = within.source or self._text, within.on_error
        try:
            return build()
        finally:
            self._text, self._on_error = before

    def _build(self, relation: Relation) -> Rows:
        build = self._BUILDERS.get(type(relation))
        if build is None:
            raise TypeError(f"{type(relation).__name__} is not a relation that can be built")
        return build(self, relation)

    def _scan(self, relation: Scan) -> Rows:
        """Return the rows of a table; none of one that nothing fills."""
        rows = self._table(relation.table).rows()
        return rows or Rows(self._no_rows(f"{relation.name}.nothing"))

    def _no_rows(self, name: str) -> Any:
        return self._provider.new_stream().source(name, SingleIteratorSource([]))

    def _each(self, rows: Rows, build: Callable[[Any, str], Any]) -> Rows:
        """Return both streams after an operator; that of the late rows has a name of its own."""
        late = None if rows.late is None else build(rows.late, ".late")
        return Rows(build(rows.on_time, ""), late)

    def _literals(self, relation: Literals) -> Rows:
        values = collected(self._literal, relation.rows)
        return Rows(self._provider.new_stream().source(relation.name, SingleIteratorSource(values)))

    def _literal(self, row: Sequence[Typed]) -> Any:
        """Return a row of VALUES, computed once.

        Raises:
            SqlError: if it can't be computed.
        """
        try:
            return chain(0, row, self._text)([()])[0]
        except Exception as error:
            span = row[0].span if row else NOWHERE
            raise SqlError([Fault(f"VALUES can't be computed: {error}", span, self._text)]) from error

    def _calc(self, relation: Calc) -> Rows:
        return self._computed(relation, self._taken(relation.input), relation.name)

    def _taken(self, relation: Relation) -> Taken:
        """Return the input of a chain: of a table the values, if its door can be a part of the chain."""
        if not isinstance(relation, Scan):
            return Taken(self.rows(relation), None, False)
        table = self._table(relation.table)
        values = table.values()
        return Taken(self.rows(relation), None, table.is_checked) if values is None else Taken(*values)

    def _computed(self, relation: Calc, source: Taken, name: str, leaving: Exit | None = None) -> Rows:
        """Return the rows of a chain, or what leaves of them."""
        given = source.door or len(relation.input.fields)
        made = chain(given, relation.items, self._text, relation.where, leaving, is_checked=source.is_checked)
        on_error = self._on_error
        return self._each(source.rows, lambda it, end: it.filter_map_many(f"{name}{end}", made, on_error=on_error))

    def leaving(self, relation: Within, kind: str, names: Names) -> Leaving:
        """Return the function that builds the stream of what leaves of rows: their last chain makes it.

        Args:
            relation: the rows, with their policy and text.
            kind: the kind of the operator's name if there is no chain, or it is built once more.
            names: gives names.
        """
        context = relation
        while isinstance(context.input, Within):
            context = replace(context.input, source=context.input.source or context.source)
        rows = context.input
        if isinstance(rows, Calc) and rows.name not in self._built:
            last = rows
        else:
            last = Calc(rows.fields, names.give(kind), rows, None, tuple(every(rows.fields)))
        source, free = self._with(context, lambda: self._taken(last.input)), [last.name]

        def build(leaving: Exit) -> Any:
            name = free.pop() if free else names.give(kind)
            made = self._with(context, lambda: self._computed(last, source, name, leaving))
            return made.together

        return build

    def _union(self, relation: Union) -> Rows:
        return united([self.rows(it) for it in relation.inputs], relation.name, self._layouts.of_union(relation))

    def _parted(self, relation: Parted) -> Rows:
        source = self.rows(relation.input)
        if not relation.is_late:
            return Rows(source.on_time)
        return Rows(source.on_time.filter_map_many(relation.name, no_rows), source.late)  # it has the epochs still

    def _windowed(self, relation: Windowed) -> Rows:
        made = with_windows(relation.time, relation.spec)
        source = self.rows(relation.input)
        return self._each(source, lambda stream, end: stream.flat_map(f"{relation.name}{end}", made))

    def _keyed(self, rows: Rows, name: str, key_of: Any) -> Rows:
        return self._each(rows, lambda stream, end: stream.key_distribute(f"{name}.key{end}", key_of))

    def _picked(self, relation: Group) -> tuple[Rows, Sequence[int]] | None:
        """Return rows, and the places of the columns that the input picks of them; None if it does more than that."""
        calc = relation.input
        if not isinstance(calc, Calc) or calc.where is not None or calc.name in self._built:
            return None
        places = [it.index for it in calc.items if isinstance(it, Column)]
        is_first = isinstance(calc.input, Scan) and self._table(calc.input.table).values() is not None
        if len(places) < len(calc.items) or is_first or relation.spec.kind in BY_ARRIVAL:
            return None
        self._picks[relation.name] = calc
        return self.rows(calc.input), places

    def _aggregated(
        self, relation: Group | Top | Collected, aggregator: Any, layout: StateLayout, picked: Any = None
    ) -> Any:
        """Return the results of the windows and keys of a relation."""
        places = range(relation.keys)
        if picked is not None:
            source, places = picked
        elif relation.spec.kind == "END":
            timed = self._every(relation.input).assign_timestamps(f"{relation.name}.time", at_once)
            source = Rows(timed.generate_epochs(f"{relation.name}.end", _no_epoch, per_part=False).on_time)
        elif relation.spec.kind == "COUNTING":
            source = Rows(self._every(relation.input))
        else:
            source = self.rows(relation.input)
        source = self._keyed(source, relation.name, key_of(relation.input.fields[: relation.keys], places))
        windows = source.on_time.window(windows_of(relation.spec))
        if source.late is None:
            return windows.aggregate(relation.name, aggregator, layout=layout)
        found = windows.allow_late(source.late).aggregate(relation.name, aggregator, layout=layout)
        self._lost_by[relation.name] = [found.too_late]
        return found.results

    def _every(self, relation: Relation) -> Any:
        """Return all rows of a relation as one stream, by their arrival if that is known."""
        if isinstance(relation, Within):
            return self._with(relation, lambda: self._every(relation.input))
        if not isinstance(relation, Calc):
            return self.rows(relation).every
        name = f"{relation.name}.all"
        if name not in self._built:
            is_scan = isinstance(relation.input, Scan)
            taken = self._taken(relation.input) if is_scan else Taken(Rows(self._every(relation.input)), None, False)
            self._built[name] = self._computed(relation, taken._replace(rows=Rows(taken.rows.every)), name)
        return self._built[name].on_time

    def _group(self, relation: Group) -> Rows:
        picked = self._picked(relation)
        places = range(len(relation.input.fields)) if picked is None else picked[1]
        aggregates = [aggregator_of(it, places) for it in relation.aggregates]
        aggregator = agg.tuple_(*aggregates) if aggregates else agg.count()
        results = self._aggregated(relation, aggregator, self._layouts.of_group(relation), picked)
        made = row_of(relation, bool(aggregates))
        results = self._numbered(relation, results)
        if relation.is_carried and overlap(relation.spec):
            results = self._owned(results, relation.name)
        return Rows(results.map_with_key(f"{relation.name}.row", made))

    @staticmethod
    def _owned(results: Any, name: str) -> Any:
        """Return results without the windows that only overlap the one of their rows."""
        return results.map_with_key(f"{name}.own", own_window).filter_map(f"{name}.owned", same)

    def _top(self, relation: Top) -> Rows:
        first = relation.keys + len(relation.order)
        aggregator = FirstRows(relation.count, relation.keys, relation.order, newest=relation.is_newest)
        results = self._aggregated(relation, aggregator, self._layouts.of_top(relation))
        if overlap(relation.spec):
            results = self._owned(results, relation.name)
        return Rows(results.flat_map(f"{relation.name}.rows", numbered(first)))

    def _collected(self, relation: Collected) -> Rows:
        results = self._numbered(relation, self._aggregated(relation, agg.collect(), self._layouts.of_rows(relation)))
        return Rows(results.flat_map(f"{relation.name}.rows", bounded(relation)))

    def _numbered(self, relation: Group | Collected, results: Any) -> Any:
        """Return results with the numbers of their rows as bounds, if windows count rows."""
        if relation.spec.kind != "COUNTING":
            return results
        return results.stateful_map(f"{relation.name}.number", numbered_windows(relation.spec.size), int)

    def _joined(self, relation: Joined) -> Rows:
        left, right = self.rows(relation.left), self.rows(relation.right)
        if relation.spec is None:  # late rows of joins in time are dropped
            self._lost_by[relation.name] = [left.late, right.late]
            left, right = Rows(left.on_time), Rows(right.on_time)
        name, keys = relation.name, relation.keys
        widths = len(relation.left.fields) - keys, len(relation.right.fields) - keys
        left = self._keyed(left, f"{name}.left", join_key(relation.left.fields[:keys], "left"))
        right = self._keyed(right, f"{name}.right", join_key(relation.right.fields[:keys], "right"))
        how = {"FULL": "outer"}.get(relation.how, relation.how.lower())
        pair, layout = pair_of(keys, widths), self._layouts.of_join(relation)
        if relation.spec is None:
            before, after = relation.interval
            pairs = left.on_time.interval_join(name, right.on_time, before=before, after=after, how=how, layout=layout)
            return Rows(pairs.map(f"{name}.row", pair))
        spec = relation.spec
        if spec.kind == "CUMULATE":  # a window that grows is part of the hopping one with its end
            spec = replace(spec, kind="HOP")
        is_swapped = left.late is None and right.late is not None
        first, second = (right, left) if is_swapped else (left, right)
        layout = replace(layout, parts=layout.parts[::-1]) if is_swapped else layout
        windows = first.on_time.window(windows_of(spec))
        if first.late is None:
            groups = windows.cogroup(name, second.on_time, layout=layout)
        else:
            late = windows.allow_late(first.late)
            groups, lost = late.cogroup(name, second.on_time, late=[second.late], layout=layout)
            self._lost_by[name] = lost[::-1] if is_swapped else lost
        if overlap(relation.spec):
            groups = self._owned(groups, name)
        pairs = Pairs(pair, how, self._test(relation.rest, sum(widths)), widths[0], is_swapped=is_swapped)
        return Rows(groups.flat_map(f"{name}.rows", pairs))

    def _test(self, condition: Typed | None, width: int) -> Callable[[Any], list[Any]] | None:
        """Return the function that returns None for the rows that a condition is not true for; None without one."""
        return None if condition is None else chain(width, (), self._text, condition)

    def _expanded(self, relation: Expanded) -> Rows:
        operand = chain(len(relation.input.fields), (relation.operand,), self._text)
        made = elements_of(operand, relation)
        source, name, on_error = self.rows(relation.input), relation.name, self._on_error
        return self._each(source, lambda it, end: it.flat_map(f"{name}{end}", made, on_error=on_error))

    def _lost(self, relation: Lost) -> Rows:
        self.rows(relation.input)
        found = self._lost_by.get(relation.input.name, [None, None])[relation.side]
        if found is None:
            return Rows(self._no_rows(relation.name))
        calc = self._picks.get(relation.input.name)
        return Rows(found) if calc is None else self._computed(calc, Taken(Rows(found), None, False), calc.name)

    _BUILDERS: ClassVar[dict[type[Relation], Callable[[Any, Any], Rows]]] = {
        Scan: _scan,
        Literals: _literals,
        Calc: _calc,
        Union: _union,
        Parted: _parted,
        Windowed: _windowed,
        Group: _group,
        Joined: _joined,
        Expanded: _expanded,
        Top: _top,
        Lost: _lost,
        Collected: _collected,
    }
    """What builds each relation."""
