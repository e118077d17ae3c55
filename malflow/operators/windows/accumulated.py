"""Accumulators that travel between workers in place of records."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from malflow.records.batch import Batch
from malflow.records.rows import Rows

__all__ = ["Accumulated", "has_accumulated", "merge_into", "runs_of"]


class Accumulated(tuple[Any]):
    """In a column of values: an accumulator of several records of one key and pane, the only item."""

    __slots__ = ()


def has_accumulated(values: Sequence[Any]) -> bool:
    """Whether a column of values has accumulators among its records."""
    return type(values) is not Rows and Accumulated in set(map(type, values))


def runs_of(batch: Batch) -> list[tuple[bool, Batch]]:
    """Split a batch, without its epochs, into runs of accumulators and runs of records."""
    kinds = [type(value) is Accumulated for value in batch.values]
    runs = [[at for at, _ in run] for _, run in groupby(enumerate(kinds), itemgetter(1))]
    return [(kinds[run[0]], batch.part(run[0], run[-1] + 1)) for run in runs]


def merge_into(
    states: MutableMapping[Any, Any],
    run: Batch,
    merge: Callable[[Any, Any], Any],
    admit: Callable[[Any], object] | None,
) -> None:
    """Merge accumulators into the accumulators of their keys, in order.

    Args:
        states: the accumulators by key.
        run: accumulators only.
        merge: returns the accumulator of the records of both.
        admit: called with each new key before it is inserted.
    """
    for key, value in zip(run.key_column(), run.values, strict=True):
        if key in states:
            states[key] = merge(states[key], value[0])
        else:
            if admit is not None:
                admit(key)
            states[key] = value[0]
