"""Dataflows as plain data, from which malflow and the interpreter are built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["REFUSES", "Dataflow", "Order", "Part", "Place", "Step", "fresh"]


REFUSES = "refuses"
"""The argument of a sink that refuses some records, which become dead letters."""


class Order(Enum):
    """The degree to which the order of a stream is specified."""

    TOTAL = "total"
    BY_KEY = "by key"
    NONE = "none"


class Place(Enum):
    """The workers that the records of a stream are on."""

    SOURCE = "on one worker; the others are idle"
    GATHERED = "on one worker; the others see the epochs"
    SPREAD = "on any worker"


@dataclass(frozen=True)
class Part:
    """A part of a source: the key of its records, their values and their timestamps."""

    key: Any
    values: tuple[Any, ...]
    timestamps: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One operator. Streams are numbered in the order in which the steps make them.

    Attributes:
        kind: the method of the stream.
        inputs: the streams it reads; none for a source.
        arg: the name of its function, or what else it needs.
        outputs: how many streams it makes.
        order: for a sink or an inspector, what of the order is specified.
        epochs: for an inspector of epochs, where the epochs are specified; None where they are not.
        per_part: for a generator of epochs, whether each part has its own.
        every: for a generator of epochs, what they are multiples of.
    """

    kind: str
    name: str
    inputs: tuple[int, ...] = ()
    arg: Any = None
    outputs: int = 1
    order: Order = Order.NONE
    epochs: Place | None = None
    per_part: bool = False
    every: int | None = None


@dataclass(frozen=True)
class Dataflow:
    """Steps in an order in which they can be built.

    Attributes:
        parallel: whether its results are the same at every parallelism; otherwise they are specified for one worker.
        debug: whether it runs with the checks on.
        movable: whether its results are the same when the number of workers changes on the way.
    """

    steps: tuple[Step, ...]
    parallel: bool
    debug: bool
    movable: bool

    def __repr__(self) -> str:
        lines = [f"parallel={self.parallel} debug={self.debug} movable={self.movable}"]
        made = 0
        for step in self.steps:
            lines.append(
                f"{[*range(made, made + step.outputs)]} = {step.name} {step.arg!r} of {[*step.inputs]}"
                + " per part" * step.per_part
                + (f" every {step.every}" if step.every else "")
            )
            made += step.outputs
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        for line in repr(self).splitlines():
            printer.break_()
            printer.text(line)


def fresh(value: Any) -> Any:
    """Copy a value so deep that nothing in the copy is shared, not even with another place in it."""
    if isinstance(value, list):
        return [fresh(element) for element in value]
    return tuple(fresh(element) for element in value) if isinstance(value, tuple) else value
