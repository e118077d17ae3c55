"""Arrays beside the state of an operator, for batches of columns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from malflow.operators.contract import Operator
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit, is_columnar

__all__ = ["Arrays"]

A = TypeVar("A")
R = TypeVar("R")

_log = logging.getLogger("malflow.runtime")


class Arrays(Generic[A]):
    """The arrays that an operator keeps beside its state while batches of columns arrive.

    They begin as a copy of the state with the first such batch. From then on they are ahead of the state, until
    `sync_state` of the operator writes the changes back. Once something does not fit, the operator continues without
    them until its next start.

    Args:
        operator: the operator.
        begin: makes the arrays from the state; None if the time has not come.
        on_drop: called when the arrays have been dropped, to forget data of the operator that refers to them.

    Attributes:
        held: the arrays; None before the first batch of columns, and afterwards if something did not fit.
    """

    def __init__(
        self, operator: Operator, begin: Callable[[], A | None], on_drop: Callable[[], None] | None = None
    ) -> None:
        self.held: A | None = None
        self._operator = operator
        self._begin = begin
        self._on_drop = on_drop
        self._ended = operator.context.debug  # the checks look at records one by one

    def take(self, batch: Batch, act: Callable[[A, Batch], R]) -> R | None:
        """Add a batch to the arrays; return None if it must go record by record. The state is up to date then.

        Args:
            batch: the batch.
            act: adds it. If it raises `Unfit`, it has changed nothing.
        """
        if self._ended or not len(batch):
            return None
        if not is_columnar(batch.values) or not batch.values.has_arrays:
            if self.held is not None:
                self.end("records have come that are no columns")
            return None
        try:
            if self.held is None:
                self.held = self._begin()
            return None if self.held is None else act(self.held, batch)
        except Unfit as misfit:
            self.end(str(misfit))
            return None

    def end(self, reason: str) -> None:
        """Continue without arrays, and log why."""
        self.drop()
        self._ended = True
        _log.info(
            "operator '%s' adds records one by one from here on: %s", self._operator.context.operator_name, reason
        )

    def drop(self) -> None:
        """Write the arrays to the state, and forget them."""
        if self.held is not None:
            self._operator.sync_state()
            self.held = None
            if self._on_drop is not None:
                self._on_drop()
