"""The table and the stopwatch that the benchmarks share."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

__all__ = ["print_table", "seconds"]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in (header, rule, *rows):
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print(f"| {' | '.join((first, *others))} |")


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Time one piece of work, with the garbage of the one before it collected; return its result too."""
    gc.collect()
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer
