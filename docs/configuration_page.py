"""Write the reference at the end of docs/configuration.md: each table with its settings, from the code.

`make reference` runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow.config.documents import default_of, description
from malflow.config.reading import expected
from malflow.config.secrets import time_text
from malflow.config.tables import WHOLE, Entries, Leaf, Shape, TableShape
from malflow.connectors.option_texts import ByteCount

PAGE = Path(__file__).parent / "configuration.md"
HEADING = "## All settings\n"


def page() -> str:
    """Return the text of the page, with the reference of the code."""
    written = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    return written + HEADING + "\n".join(of_tables()) + "\n"


def of_tables() -> Iterator[str]:
    """Yield the lines of the reference."""
    yield "\nWritten by `make reference` from the code."
    for name, member in WHOLE.members.items():
        if isinstance(member, TableShape):
            yield from of_table(name, member)
        elif isinstance(member, Entries) and isinstance(member.inner, TableShape):
            yield from of_table(f"{name}.NAME", member.inner)


def of_table(name: str, shape: TableShape) -> Iterator[str]:
    """Yield a table and the tables within it."""
    line = (inspect.getdoc(shape.table) or "").partition("\n")[0].partition(";")[0].rstrip(".")
    yield f"\n### [{name}]\n\n{line}.\n\n| setting | value | default | |\n|---|---|---|---|"
    inner = []
    for setting, member in shape.members.items():
        if isinstance(member, TableShape):
            inner.append((f"{name}.{setting}", member))
        meaning = plain(description(shape.table, setting))
        yield f"| `{setting}` | {value(member)} | {default(default_of(shape.table, setting))} | {meaning} |"
    for path, member in inner:
        yield from of_table(path, member)


def value(shape: Shape) -> str:
    """Return the kind of a value."""
    if isinstance(shape, Leaf):
        return plain(expected(shape))
    return "a table"


def default(found: Any) -> str:
    """Return a default."""
    if found is None or found == ():
        return ""
    if isinstance(found, timedelta):
        return f'`"{time_text(found)}"`'
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
    """Return a text for a cell."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
