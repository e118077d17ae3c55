"""The settings of a configuration for docs/api.md: each table, from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from malflow.config.documents import default_of, description
from malflow.config.reading import expected
from malflow.config.sections import WHOLE, Entries, Leaf, Shape, TableShape
from malflow.connectors.option_texts import ByteCount
from malflow.durations import span_text

__all__ = ["of_tables"]

INTRODUCTION = """
## Settings

Of [malflow.toml](configuration.md), each with its kind of value and its default, if it has one; otherwise it may be
`"none"`."""
LONG = 24
"""The number of words above which a text is shortened: two lines of the page."""
SHORT = {
    "a time such as 500ms, 30s, 5m, 2h, 1d": "time",
    "a number of bytes such as 64 MiB": "size",
    "a time in ISO format": "time in ISO format",
    "a list of texts": "list",
    "true or false": "boolean",
    "an integer": "integer",
    "a number": "number",
    "a text": "text",
}
"""The kinds of values as this page names them, by their names in errors."""


def of_tables() -> Iterator[str]:
    """Yield the lines of the reference."""
    yield INTRODUCTION
    shown: dict[type, str] = {}
    for name, member in WHOLE.members.items():
        if isinstance(member, TableShape):
            yield from of_table(name, member, shown)
        elif isinstance(member, Entries) and isinstance(member.inner, TableShape):
            yield from of_table(f"{name}.NAME", member.inner, shown)


def of_table(name: str, shape: TableShape, shown: dict[type, str]) -> Iterator[str]:
    """Yield a table and the tables within it; one that was shown is only named."""
    line = (inspect.getdoc(shape.table) or "").partition("\n")[0].partition(";")[0].rstrip(".")
    if (former := shown.setdefault(shape.table, name)) != name:
        yield f"\n### [{name}]\n\nThe settings of `[{former}]`."
        return
    yield f"\n### [{name}]\n\n{line}.\n"
    inner = []
    for setting, member in shape.members.items():
        if isinstance(member, TableShape):
            inner.append((f"{name}.{setting}", member))
        meaning = summary(plain(description(shape.table, setting))).replace(", the default,", "")
        found = default(default_of(shape.table, setting))
        yield f"- `{setting}` ({', '.join(filter(None, (value(member), found)))}): {meaning}"
    for path, member in inner:
        yield from of_table(path, member, shown)


def value(shape: Shape) -> str:
    """Return the kind of a value, in a word where there is one."""
    if not isinstance(shape, Leaf):
        return "table"
    kind = plain(expected(shape)).removesuffix(", or none")
    for long, short in SHORT.items():
        kind = kind.replace(long, short)
    return kind


def summary(text: str) -> str:
    """Return the first sentence of a long text; the documentation of the constructor has the others."""
    kept = text.partition(". ")[0] if len(text.split()) > LONG else text
    return kept.removesuffix(".")


def default(found: Any) -> str:
    """Return a default."""
    if found is None or found == ():
        return ""
    if isinstance(found, timedelta):
        return f'`"{span_text(found)}"`'
    if isinstance(found, ByteCount):
        return f'`"{found // 2**20} MiB"`'
    if isinstance(found, bool):
        return f"`{str(found).lower()}`"
    if isinstance(found, tuple):
        return f"`[{', '.join(map(quoted, found))}]`"
    return f"`{quoted(found)}`"


def quoted(found: Any) -> str:
    """Return a text or a number as TOML."""
    return f'"{found}"' if isinstance(found, str) else str(found)


def plain(text: str) -> str:
    """Return a text as Markdown, on a line."""
    return " ".join(text.replace("``", "`").split())
