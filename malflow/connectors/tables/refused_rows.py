"""The rows of a transaction that a database refuses: found by halves, taken out, and written again on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from malflow.errors import MalflowError

__all__ = ["WrittenAgain", "found_by_halves", "refusing_records", "without_rows"]

T = TypeVar("T")


class WrittenAgain(NamedTuple):
    """A piece that consists of batches as in a handle: refused rows that are written again."""

    batches: tuple[Any, ...]


def found_by_halves(items: Sequence[T], write: Callable[[Sequence[T]], object]) -> Iterator[tuple[int, MalflowError]]:
    """Yield the positions of the items that are refused, with the errors; write all others, in order.

    Args:
        items: the items.
        write: writes some of them, or raises an error and has written none. An error propagates unless its
            `refuses_records` is True.
    """
    pending = [(0, len(items))]
    while pending:
        start, stop = pending.pop()
        if start == stop:
            continue
        try:
            write(items[start:stop])
        except MalflowError as error:
            if not error.refuses_records:
                raise
            if stop - start == 1:
                yield start, error
                continue
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]


def without_rows(rows: Sequence[T], refused: Mapping[int, object]) -> list[T]:
    """Return rows without those at some positions."""
    return [row for at, row in enumerate(rows) if at not in refused]


@contextmanager
def refusing_records() -> Iterator[None]:
    """Mark errors of malflow that a block raises as being about records; it does nothing outside this process."""
    try:
        yield
    except MalflowError as error:
        error.refuses_records = True
        raise
