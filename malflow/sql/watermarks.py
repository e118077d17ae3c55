"""Watermarks of tables: the column of their time, when time advances, and which options say more about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from malflow.errors import GraphError
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.layouts import epochs_of
from malflow.sql.build.streams import Rows
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Call, Operation
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Strict, Value
from malflow.sql.types import TIMES
from malflow.words import did_you_mean

__all__ = ["Option", "Options", "Watermark", "read_span", "watermark_of"]


class Option(NamedTuple):
    """An option of a table.

    Attributes:
        value: its value.
        span: its place.
        source: the text that it is written in.
    """

    value: str
    span: Span
    source: Source


Options = dict[str, Option]
"""The options of a table by their keys."""


@dataclass(frozen=True)
class Watermark:
    """The time of the rows of a table.

    Attributes:
        column: the name of its column.
        place: the place of the column.
        span: the place of the rule in the text.
        text: the text.
        bound: how far rows may be out of order, in units of the column; None if they bring their watermark.
        rule: the rule, as it is written.
        late: the name of the table of the late rows, with its place; None if it has none.
        options: more arguments of `event_time`.
    """

    column: str
    place: int
    span: Span
    text: Source
    bound: int | None
    rule: str
    late: tuple[str, Span] | None
    options: Mapping[str, Any]

    def rows(self, stream: Any, name: str) -> Rows:
        """Return the rows of a stream on time, and the late ones.

        Raises:
            SqlError: if they have no order of their own.
        """
        try:
            timed = stream.event_time(name, self.place, out_of_orderness=self.bound, **self.options)
        except GraphError as error:
            cure = "write SOURCE_WATERMARK() for the watermark that the rows have already"
            wrong = f"{error.reason.partition(';')[0]}; {cure}"
            raise SqlError([Fault(wrong, self.span, self.text)]) from None
        return Rows(timed, timed.late, stream)


def watermark_of(
    statement: tree.CreateTable, fields: Sequence[Field], options: Options, text: Source
) -> Watermark | None:
    """Return the watermark of a table, and take its options from the others; None if it has none.

    Raises:
        SqlError: if the rule or an option is wrong.
    """
    marks = [it for it in statement.elements if isinstance(it, tree.Watermark)]
    if len(marks) > 1:
        raise _fault("a table has one watermark; remove this one", marks[1].span, text)
    taken = {key: options.pop(key) for key in _OPTIONS if key in options}
    for key, (_, span, source) in options.items():
        _check_unknown(key, span, source)
    if not marks:
        for key, (_, span, source) in taken.items():
            raise _fault(f"{key!r} is about the watermark of a table; write WATERMARK FOR", span, source)
        return None
    mark = marks[0]
    place = next((at for at, it in enumerate(fields) if it.name == mark.column.text), None)
    if place is None:
        hint = did_you_mean(mark.column.text, [it.name for it in fields])
        raise _fault(f"no column {mark.column.text!r}{hint}", mark.column.span, text)
    field = fields[place]
    if field.type.kind not in TIMES:
        raise _fault(f"{field.type.name} is not a time; use TIMESTAMP, or compute one", mark.column.span, text)
    second = 10**field.type.size
    more: dict[str, Any] = {"layout": epochs_of([replace(field, is_time=True)])}
    if (every := _span_of("watermark.every", taken)) is not None:
        units, rest = divmod(every * second, timedelta(seconds=1))
        if rest or not units:
            _, span, source = taken["watermark.every"]
            raise _fault(f"'watermark.every' is a multiple of the units of {field.type.name}", span, source)
        more["every"] = units
    if idle := _span_of(_IDLE, taken):
        more |= {"idle_after": idle, "second": second}
    return Watermark(
        field.name,
        place,
        mark.rule.span,
        text,
        _bound(mark, fields, text),
        str(mark.rule),
        (taken["late"].value, taken["late"].span) if "late" in taken else None,
        more,
    )


_IDLE = "scan.watermark.idle-timeout"
_OPTIONS = (_IDLE, "watermark.every", "late")
"""The options about watermarks; the first one is Flink's."""

_REFUSED = {
    "scan.watermark.emit.strategy": "each row may move the watermark; write 'watermark.every' for a step in its time",
    "scan.watermark.emit.on-event.gap": "write 'watermark.every' for a step in the time of rows",
    "scan.watermark.alignment.group": "sources do not wait for each other; remove it",
    "scan.watermark.alignment.max-drift": "sources do not wait for each other; remove it",
    "scan.watermark.alignment.update-interval": "sources do not wait for each other; remove it",
}
"""Options of Flink that are not here, with what to do instead."""


def _check_unknown(key: str, span: Span, text: Source) -> None:
    """Check that an option of a connector is not meant to be one about watermarks."""
    if key in _REFUSED:
        raise _fault(f"there is no {key!r}: {_REFUSED[key]}", span, text)
    if "watermark" in key or key.startswith(("late", "idle")):
        raise _fault(f"no option {key!r}{did_you_mean(key, _OPTIONS)}", span, text)


_SPAN = re.compile(r"(\d+) *([a-zµ]+)")
_UNITS = {
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), timedelta(milliseconds=1)),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), timedelta(microseconds=1)),
}
"""The units of spans, as Flink writes them."""


def _span_of(key: str, options: Options) -> timedelta | None:
    """Return the span of time that an option gives; None without it."""
    if key not in options:
        return None
    value, span, text = options[key]
    found = read_span(value)
    if found is None:
        raise _fault(f"{key!r} is a span of time with its unit, as in '5 s' or '1 min'; got {value!r}", span, text)
    return found


def read_span(text: str) -> timedelta | None:
    """Return a span of time as Flink writes it, such as ``5 s``; None for another text."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        return None
    try:
        return int(found[1]) * _UNITS[found[2]]
    except OverflowError:
        return None


def _bound(mark: tree.Watermark, fields: Sequence[Field], text: Source) -> int | None:
    """Return how far rows may be out of order, in units of the column; None if they bring their watermark."""
    if isinstance(mark.rule, Call) and mark.rule.name.text.upper() == "SOURCE_WATERMARK" and not mark.rule.arguments:
        return None
    name = mark.column.text
    finest = [replace(it, type=replace(it.type, size=6)) if it.name == name else it for it in fields]
    binder = ExpressionBinder(Scope(finest, text))  # so the interval may be finer than the column: it is rounded up
    rule = binder.bind(mark.rule)
    if isinstance(rule, Column) and rule.name == name:
        return 0
    if isinstance(rule, Strict) and rule.template == "({0} - {1})" and isinstance(mark.rule, Operation):
        column, span = rule.operands[0], binder.bind(mark.rule.operands[-1])
        if isinstance(column, Column) and column.name == name and isinstance(span, Value) and span.value >= 0:
            unit = int(10 ** (6 - next(it.type.size for it in fields if it.name == name)))
            return -(-int(span.value) // unit)  # the part of a unit counts: it lets a row of the same time come
    cure = f"write {name}, or {name} - INTERVAL '5' SECOND"
    raise _fault(f"a watermark follows its column at a constant distance; {cure}", mark.rule.span, text)


def _fault(message: str, span: Span, text: Source) -> SqlError:
    return SqlError([Fault(message, span, text)])
