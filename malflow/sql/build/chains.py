"""Generated functions of many rows: a condition and columns become one comprehension.

A chain gets a list of tuples and returns as many, with None for the rows that it drops. If it fails, the operator calls
it again with fewer rows; with one row, each part of its expressions is tried by itself, inner ones first, so the
error names the part and its place in the text.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from functools import partial
from hashlib import blake2b
from typing import Any

from malflow.records.columnar import is_columnar
from malflow.sql.bind.scope import Field
from malflow.sql.build.columns import columns_of
from malflow.sql.build.doors import Door, Exit
from malflow.sql.functions import namespace
from malflow.sql.functions.numbers import DECIMALS
from malflow.sql.python import PythonWriter
from malflow.sql.text import NOWHERE, Source
from malflow.sql.typed import Called, Column, Keeping, Lenient, Strict, Typed, all_within, stands_alone

__all__ = ["Chain", "chain", "defined", "every", "leaves"]

Chain = Callable[[Sequence[Any]], list[Any]]

_MOST_PARTS = 200
"""Parts of a chain that are tried when it fails: more are in generated texts only, and the first ones are named."""


def defined(name: str, source: str, **names: object) -> Any:
    """Return the function that a source defines; its lines are shown in tracebacks."""
    file = f"<malflow SQL {blake2b(source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {**namespace(), "__name__": "__malflow_sql__", **names}
    exec(compile(source, file, "exec"), scope)  # noqa: S102 - of typed expressions; texts and names are quoted
    return scope[name]


def every(fields: Sequence[Field]) -> list[Typed]:
    """Return columns as they are."""
    return [Column(it.type, NOWHERE, at, it.name, it.is_time) for at, it in enumerate(fields)]


def chain(
    given: Door | int,
    items: Sequence[Typed],
    text: Source,
    where: Typed | None = None,
    leaving: Exit | None = None,
    *,
    is_checked: bool = False,
) -> Chain:
    """Return the function that filters rows, and computes columns of those that stay.

    Args:
        given: the number of columns of the rows; or the door that makes them, if the function gets values of a stream.
        items: the columns.
        text: the text, for the places in errors.
        where: the condition; None for all rows.
        leaving: makes what the function returns of the columns; None for tuples.
        is_checked: whether the columns of the rows fit their types.
    """
    width = given if isinstance(given, int) else len(given.fields)
    writer = PythonWriter()
    columns = [writer.value(it) for it in items]
    fitting = [it.type.kind if is_checked and isinstance(it, Column) else "" for it in items]
    row = f"({''.join(f'{it}, ' for it in columns)})" if leaving is None else leaving.source(columns, fitting)
    if where is not None:
        row = f"{row} if {writer.when(where)} else None"
    nodes = [*items] if where is None else [where, *items]
    needs_context = any(it.type.kind == "DECIMAL" for node in nodes for it in all_within(node))
    named = {} if leaving is None else leaving.constants
    constants = {
        **writer.constants,
        **named,
        "parts": partial(_parts, nodes, items, leaving, width, text),
        "explain": explain,
        "row_of": tuple,
    }
    if isinstance(given, int):
        columns = [f"c{at}, " if at in writer.used else "_, " for at in range(width)]
        return _function(row, f"for {''.join(columns).rstrip() or '_'} in rows", needs_context, constants)
    constants |= {**given.constants, "row_of": given.row}
    return _of_values(given, lambda clauses, more: _function(row, clauses, needs_context, {**constants, **more}))


def leaves(leaving: Exit) -> Chain:
    """Return the function that makes what leaves of rows."""
    return chain(len(leaving.fields), every(leaving.fields), Source(""), leaving=leaving)


def _function(row: str, clauses: str, needs_context: bool, constants: dict[str, object]) -> Chain:
    """Return the function of one comprehension."""
    lines = [
        "def calc(rows):",
        "    try:",
        *(["        with localcontext(DECIMALS):"] if needs_context else ["        if True:"]),
        f"            return [{row} {clauses}]",
        "    except Exception as error:",
        "        if len(rows) == 1: explain(parts, row_of(rows[0]), error)",
        "        raise",
    ]
    return defined(  # type: ignore[no-any-return]  # a generated function
        "calc", "\n".join(lines), localcontext=localcontext, DECIMALS=DECIMALS, Decimal=Decimal, **constants
    )


def _of_values(door: Door, make: Callable[[str, dict[str, object]], Chain]) -> Chain:
    """Return the function of values. Its loops are made for each class of values, and kind of columns, that comes."""
    made: dict[object, Chain] = {}

    def calc(values: Sequence[Any]) -> list[Any]:
        if is_columnar(values) and len(values) > 1:  # a value alone is explained, if it fails
            columns = columns_of(values, door.fields)
            if columns is not None:
                items, unsure = columns
                if unsure not in made:
                    made[unsure] = make(door.clauses_of_columns(unsure), {})
                return made[unsure](items)
        kind = type(values[0])
        if kind not in made:
            made[kind] = make(door.clauses(kind), {"kind": kind})
        return made[kind](values)

    calc.reads_columns = True  # type: ignore[attr-defined]  # a mark for `filter_map_many`
    return calc


Part = tuple[str, str, dict[str, object]]
"""A part of an expression: its text and place, its source as a function of a row, and the constants of that."""


def _parts(
    nodes: Sequence[Typed], items: Sequence[Typed], leaving: Exit | None, width: int, text: Source
) -> list[Part]:
    """Return the parts of expressions that can fail, inner ones first, then the columns as they leave."""
    found: list[Part] = []
    columns = ", ".join(f"c{at}" for at in range(width))

    def add(node: Typed, source: str, constants: dict[str, object]) -> None:
        line, column = text.position(node.span.start)
        place = f"{text.quoted(node.span)!r} ({text.name}:{line}:{column})"
        found.append((place, f"lambda {columns}: {source}", constants))

    for node in nodes:
        for it in reversed([*all_within(node)]):
            is_user = isinstance(it, Called) and it.span != NOWHERE
            is_part = isinstance(it, Strict | Lenient | Keeping) or is_user
            if is_part and stands_alone(it) and len(found) < _MOST_PARTS:
                writer = PythonWriter()
                add(it, writer.value(it), writer.constants)
    for at, it in enumerate(items if leaving else ()):
        if leaving and it.span != NOWHERE:
            writer = PythonWriter()
            add(
                it,
                leaving.value(writer.value(it), leaving.fields[at].type, at),
                {**leaving.constants, **writer.constants},
            )
    return found


def explain(parts: Callable[[], Sequence[Part]], row: Sequence[Any], error: Exception) -> None:
    """Raise the error of the first part that fails for a row, with its place.

    Raises:
        ValueError: or another class of the same error, if a part fails.
    """
    for place, source, constants in parts():
        function = eval(source, {**namespace(), "Decimal": Decimal, **constants})  # noqa: S307 - as in `defined`
        try:
            with localcontext(DECIMALS):
                function(*row)
        except Exception as found:  # noqa: BLE001 - of the generated code, whatever it is
            raise _class_of(found)(f"{found} in {place}") from found.__cause__


def _class_of(error: Exception) -> type[Exception]:
    """Return the class of an error that takes a message alone."""
    return next((it for it in (OverflowError, ZeroDivisionError, TypeError) if isinstance(error, it)), ValueError)
