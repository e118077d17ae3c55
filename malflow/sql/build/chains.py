"""Generated functions of many rows: a condition and columns become one comprehension.

A chain gets a list of tuples and returns as many, with None for the rows that it drops. If it fails, the operator calls
it again with fewer rows; with one row, each part of its expressions is tried by itself, inner ones first, so the
error names the part and its place in the text.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from hashlib import blake2b
from typing import Any

from malflow.sql.functions import namespace
from malflow.sql.functions.numbers import DECIMALS
from malflow.sql.python import PythonWriter
from malflow.sql.text import NOWHERE, Source
from malflow.sql.typed import Called, Keeping, Lenient, Strict, Typed, all_within, stands_alone

__all__ = ["chain", "defined"]

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


def chain(where: Typed | None, items: Sequence[Typed], width: int, text: Source) -> Chain:
    """Return the function that filters rows of so many columns, and computes columns of those that stay.

    Args:
        where: the condition; None for all rows.
        items: the columns.
        width: how many columns a row has.
        text: the text, for the places in errors.
    """
    writer = PythonWriter()
    row = f"({''.join(f'{writer.value(it)}, ' for it in items)})"
    if where is not None:
        row = f"{row} if {writer.when(where)} else None"
    columns = "".join(f"c{at}, " if at in writer.used else "_, " for at in range(width))
    parts = _parts([*([where] if where is not None else []), *items], width, text)
    needs_context = any(it.type.kind == "DECIMAL" for node in items for it in all_within(node)) or (
        where is not None and any(it.type.kind == "DECIMAL" for it in all_within(where))
    )
    lines = [
        "def calc(rows):",
        "    try:",
        *(["        with localcontext(DECIMALS):"] if needs_context else ["        if True:"]),
        f"            return [{row} for {columns.rstrip() or '_'} in rows]",
        "    except Exception as error:",
        "        if len(rows) == 1: explain(parts, rows[0], error)",
        "        raise",
    ]
    return defined(  # type: ignore[no-any-return]  # a generated function
        "calc",
        "\n".join(lines),
        localcontext=localcontext,
        DECIMALS=DECIMALS,
        Decimal=Decimal,
        explain=explain,
        parts=parts,
        **writer.constants,
    )


Part = tuple[str, str, dict[str, object]]
"""A part of an expression: its text and place, its source as a function of a row, and the constants of that."""


def _parts(nodes: Sequence[Typed], width: int, text: Source) -> list[Part]:
    """Return the parts of expressions that can fail, inner ones first."""
    found: list[Part] = []
    for node in nodes:
        for it in reversed([*all_within(node)]):
            is_user = isinstance(it, Called) and it.span != NOWHERE
            is_part = isinstance(it, Strict | Lenient | Keeping) or is_user
            if is_part and stands_alone(it) and len(found) < _MOST_PARTS:
                writer = PythonWriter()
                source = writer.value(it)
                columns = ", ".join(f"c{at}" for at in range(width))
                line, column = text.position(it.span.start)
                place = f"{text.quoted(it.span)!r} ({text.name}:{line}:{column})"
                found.append((place, f"lambda {columns}: {source}", writer.constants))
    return found


def explain(parts: Sequence[Part], row: Sequence[Any], error: Exception) -> None:
    """Raise the error of the first part that fails for a row, with its place.

    Raises:
        ValueError: or another class of the same error, if a part fails.
    """
    for place, source, constants in parts:
        function = eval(source, {**namespace(), "Decimal": Decimal, **constants})  # noqa: S307 - as in `defined`
        try:
            with localcontext(DECIMALS):
                function(*row)
        except Exception as found:  # noqa: BLE001 - of the generated code, whatever it is
            raise _class_of(found)(f"{found} in {place}") from found.__cause__


def _class_of(error: Exception) -> type[Exception]:
    """Return the class of an error that takes a message alone."""
    return next((it for it in (OverflowError, ZeroDivisionError, TypeError) if isinstance(error, it)), ValueError)
