"""Aggregators from a user's functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.labels import call
from malflow.aggregators.slots import Slot, Slotted, duplicate

__all__ = ["Fold"]

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Fold(Slotted[V, A, R]):
    """See `malflow.agg.fold`.

    Attributes:
        timed: whether the `add` function takes the timestamp too.
    """

    creator: Callable[[], A]
    adder: Callable[..., A]
    merger: Callable[[A, A], A] | None = None
    finisher: Callable[[A], R] | None = None
    timed: bool = False

    def make_slots(self) -> tuple[Slot, ...]:
        """Return one slot for the whole accumulator."""
        return (Slot(self.creator, self.adder, self.merger, takes="xt" if self.timed else "x"),)

    def combine(self, *states: Any) -> Any:
        """Return the result of the user's function for the accumulator, or a copy of that."""
        return duplicate(*states) if self.finisher is None else self.finisher(*states)

    def __repr__(self) -> str:
        return call("agg.fold", self.creator, self.adder, merge=self.merger, result=self.finisher)
