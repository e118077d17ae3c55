"""Tables, with rich on a terminal and as aligned columns elsewhere; and a screen that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from malflow.cli.output import Output, is_colored
from malflow.store.redaction import safe_line

__all__ = ["aligned", "columns_of", "fitting", "redrawn", "write_table"]


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], output: Output) -> None:
    """Write a table on standard output.

    Args:
        columns: the headings; one that begins with ``>`` is of numbers, aligned to the right.
        rows: the texts.
        output: how to write.
    """
    safe = [[safe_line(cell) for cell in row] for row in rows]
    if not is_colored(sys.stdout, output.color):
        for line in aligned(columns, safe):
            output.write(line)
        return
    from rich.console import Console  # noqa: PLC0415 - needed only on a terminal
    from rich.table import Table  # noqa: PLC0415 - needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - needed only on a terminal

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in safe:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, force_terminal=True, highlight=False).print(table)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with a column each.

    >>> aligned(["name", ">keys"], [["count", "7"], ["x", "1,203"]])
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


def columns_of(text: str) -> int:
    """Return the columns that a text takes on a terminal, where some characters take two."""
    from rich.cells import cell_len  # noqa: PLC0415 - needed only on a terminal

    return cell_len(text)


def fitting(text: str, columns: int) -> str:
    """Return the beginning of a text that fits into some columns of a terminal."""
    from rich.cells import set_cell_size  # noqa: PLC0415 - needed only on a terminal

    return text if columns_of(text) <= columns else set_cell_size(text, columns).rstrip()


def redrawn(screens: Iterable[Sequence[str]]) -> None:
    """Draw screens on the terminal of standard output, each over the one before; Ctrl-C leaves the last one.

    Args:
        screens: the lines of each.
    """
    from rich.console import Console  # noqa: PLC0415 - needed only on a terminal
    from rich.live import Live  # noqa: PLC0415 - needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - needed only on a terminal

    with Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False) as live:
        for lines in screens:
            live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)
