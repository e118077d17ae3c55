"""Tables: with rich on a terminal, as aligned columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from malflow.cli.output import Output, as_text, is_colored

__all__ = ["write_table"]


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], output: Output) -> None:
    """Write a table on standard output.

    Args:
        columns: the headings; one that begins with ``>`` is of numbers, which are aligned to the right.
        rows: the texts.
        output: how to write.
    """
    safe = [[as_text(cell) for cell in row] for row in rows]
    if not is_colored(sys.stdout, output.color):
        for line in _aligned(columns, safe):
            output.write(line)
        return
    from rich.console import Console  # noqa: PLC0415 - not where standard output is no terminal
    from rich.table import Table  # noqa: PLC0415 - as there
    from rich.text import Text  # noqa: PLC0415 - as there

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in safe:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, force_terminal=True, highlight=False).print(table)


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with a column each.

    >>> _aligned(["name", ">keys"], [["count", "7"], ["x", "1,203"]])
    ['name    keys', 'count      7', 'x      1,203']
    """
    everything = [[it.removeprefix(">") for it in columns], *rows]
    widths = [max(len(row[at]) for row in everything) for at in range(len(columns))]
    lines = []
    for row in everything:
        cells = [
            cell.rjust(width) if column.startswith(">") else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
