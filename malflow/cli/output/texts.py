"""Numbers, ages and sizes as people read them; bars and tables, with rich on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from malflow.cli.output.output import Output, is_colored
from malflow.store.redaction import safe_line

__all__ = [
    "age",
    "aligned",
    "as_options",
    "bar",
    "bytes_text",
    "columns_of",
    "duration",
    "fitting",
    "redrawn",
    "sparkline",
    "write_table",
]

_KILO = 1000
"""The factor between units: kB and MB are powers of 1,000, not of 1,024."""

_RENAMED = re.compile(r"renamed=\{'([^']*)': '([^']*)'\}")
_DROPPED = re.compile(r"allow_dropped_state=\['([^']*)'\]")
_WORD = re.compile(r"\b(recovery|sinks)='(\w+)'")
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """Return a duration in its largest unit.

    >>> duration(0.004), duration(4.2), duration(150), duration(7200), duration(200_000)
    ('4 ms', '4 s', '2 min', '2 h', '2 d')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a moment was.

    >>> age(datetime(2026, 3, 28, 12, 0, tzinfo=UTC), datetime(2026, 3, 28, 12, 5, tzinfo=UTC)), age(None)
    ('5 min old', 'of an unknown time')
    """
    if moment is None:
        return "of an unknown time"
    return f"{duration(max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds()))} old"


def bytes_text(count: int) -> str:
    """Return a number of bytes.

    >>> bytes_text(84), bytes_text(84_000), bytes_text(3_200_000)
    ('84 B', '84 kB', '3.2 MB')
    """
    if count < _KILO:
        return f"{count} B"
    power = next((it for it, _ in enumerate(_UNITS, 1) if count < _KILO ** (it + 1)), len(_UNITS))
    return f"{count / _KILO**power:.{0 if power == 1 else 1}f} {_UNITS[power - 1]}"


def as_options(text: str) -> str:
    """Return a text of an error in which the arguments of a runtime are the options of a command.

    >>> as_options("pass renamed={'a': 'b'}, or allow_dropped_state=['a b'], or choose another job=")
    "pass --rename a=b, or --drop 'a b', or choose another --job"
    """
    text = _RENAMED.sub(lambda it: f"--rename {shlex.quote(f'{it[1]}={_new(it[2])}')}", text)
    text = _DROPPED.sub(lambda it: f"--drop {shlex.quote(it[1])}", text)
    return _WORD.sub(r"--\1 \2", text).replace("another job=", "another --job")


def _new(name: str) -> str:
    return "NEW" if name == "its new name" else name


_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_LEVELS: Final = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a bar for a share from 0 to 1, padded with spaces to its width.

    >>> bar(0.34, 10), bar(1, 3), bar(0, 3)
    ('███▍      ', '███', '   ')
    """
    full, rest = divmod(round(min(1.0, max(0.0, share)) * width * 8), 8)
    return f"{'█' * full}{_EIGHTHS[rest] if rest else ''}".ljust(width)


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, as high as its share of the greatest one.

    >>> sparkline([0, 1, 2, 4]), sparkline([0, 0]), sparkline([])
    ('▁▂▄█', '▁▁', '')
    """
    most = max(values, default=0)
    return "".join(_LEVELS[min(7, int(value / most * 7.99))] if most > 0 else _LEVELS[0] for value in values)


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
