"""The files of Spark's exchanges, which malflow removes itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

__all__ = ["remove_shuffles", "shuffle_of"]


def shuffle_of(exchanged: Any) -> int:
    """Return the id of the exchange that makes Java's RDD."""
    number: int = exchanged.rdd().dependencies().head().shuffleId()
    return number


def remove_shuffles(context: Any, shuffles: Iterable[int]) -> None:
    """Remove the files of exchanges; Spark would do so once Java collects garbage, so hardly ever."""
    with suppress(Exception):  # then Spark does so later
        cleaner = context._jsc.sc().cleaner()  # noqa: SLF001 - PySpark does not expose it
        for shuffle in shuffles:
            cleaner.get().doCleanupShuffle(shuffle, False)
