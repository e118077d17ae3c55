"""The results of an operator for a batch, as columns, with the epochs between them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from malflow.records.batch import Batch

__all__ = ["Results"]


class Results:
    """The results of a batch, as columns, with the epochs between them."""

    __slots__ = ("epochs", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []

    def add(self, keys: Iterable[Any], values: Iterable[Any], timestamp: Any) -> None:
        """Append results with one timestamp."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(repeat(timestamp, len(self.values) - len(self.timestamps)))

    def add_each(self, keys: Iterable[Any], values: Iterable[Any], timestamps: Iterable[Any]) -> None:
        """Append results."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(timestamps)

    def mark(self, epochs: Iterable[tuple[int, Any]]) -> None:
        """Append epochs after the results so far."""
        at = len(self.keys)
        self.epochs.extend([(at, epoch) for _, epoch in epochs])

    def batch(self) -> Batch:
        """Return results and epochs as one batch."""
        return Batch(self.keys, self.values, self.timestamps, self.epochs)
