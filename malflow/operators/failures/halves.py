"""The rows at which a function of a batch fails, found by calling it again with halves of the batch.

An answer depends on its own row only. So a batch at which a function fails has a row at which it fails alone, and the
answers for the halves that went well can be kept. If no single row fails, the function depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from malflow.errors import failures, settled_failures
from malflow.operators.failures.guard import is_fatal
from malflow.words import error_line

__all__ = ["Answered", "Call", "DependsOnNeighbours", "by_halves", "first_failure"]

Call = Callable[[int, int], Any]
"""Calls the function with the rows from one position up to another, and returns its answer."""

_SHARE = 64
"""One row in so many may fail before the others are tried one by one: by halves, each of them costs six calls and more
then. Half of it: more calls where every fiftieth row fails; double: more where every hundredth does."""


class DependsOnNeighbours(Exception):
    """A function fails at rows together, and at none of them alone.

    Attributes:
        start, stop: the rows.
    """

    def __init__(self, start: int, stop: int, error: BaseException) -> None:
        super().__init__(
            f"it fails at rows {start} to {stop - 1} of a batch together, and at none of them alone: "
            f"{error_line(error)}; an answer may depend on its own row only, since batches have any size"
        )
        self.start, self.stop = start, stop


class Answered(NamedTuple):
    """The answer for a run of rows.

    Attributes:
        start, stop: the rows.
        answer: the answer.
    """

    start: int
    stop: int
    answer: Any


def first_failure(call: Call, count: int, error: BaseException) -> tuple[int, BaseException]:
    """Return the first row at which a function fails alone, and its exception.

    Args:
        call: calls the function.
        count: the number of rows. It has failed at all of them together.
        error: its exception.

    Raises:
        DependsOnNeighbours: if there is no such row.
    """
    start, stop = 0, count
    while stop - start > 1:
        middle = (start + stop) // 2
        found = _error_of(call, start, middle)
        if found is not None:
            stop, error = middle, found
            continue
        found = _error_of(call, middle, stop)
        if found is None:
            raise DependsOnNeighbours(start, stop, error) from error
        start, error = middle, found
    return start, error


def _error_of(call: Call, start: int, stop: int) -> BaseException | None:
    try:
        call(start, stop)
    except failures() as error:
        if is_fatal(error):
            raise
        return error
    return None


def by_halves(
    call: Call, count: int, error: BaseException, forgives: Callable[[BaseException], bool]
) -> tuple[list[Answered], dict[int, BaseException]]:
    """Return the answers for all rows at which a function does not fail, in order, and its exceptions at the others.

    Args:
        call: calls the function.
        count: the number of rows. It has failed at all of them together.
        error: its exception.
        forgives: whether a failure that did not occur again is one that passes, as of a connection.

    Raises:
        DependsOnNeighbours: if the function fails at rows together, and at none of them alone.
        BaseException: of the function, if no policy decides about it.
    """
    answers: list[Answered] = []
    failed: dict[int, BaseException] = {}

    def search(start: int, stop: int, error: BaseException) -> None:
        if stop - start == 1:
            failed[start] = error
            return
        before = len(failed)
        for first, last in _parts(start, stop, singly=len(failed) > count // _SHARE):
            try:
                answers.append(Answered(first, last, call(first, last)))
            except settled_failures() as again:
                if is_fatal(again):
                    raise
                search(first, last, again)
        if len(failed) == before and not forgives(error):
            raise DependsOnNeighbours(start, stop, error) from error

    search(0, count, error)
    return answers, failed


def _parts(start: int, stop: int, *, singly: bool) -> Iterator[tuple[int, int]]:
    if singly:
        yield from ((at, at + 1) for at in range(start, stop))
        return
    middle = (start + stop) // 2
    yield start, middle
    yield middle, stop
