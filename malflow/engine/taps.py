"""Taps: additional readers of an operator's output, which are added and removed between ticks.

A tap is one more target of the operator's batches, so a run without taps does no extra work.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from malflow.engine.plan import Program
from malflow.engine.worker import Worker
from malflow.errors import GraphError
from malflow.nodes import Port, SinkNode
from malflow.records.batch import Batch
from malflow.words import did_you_mean, short_repr

__all__ = ["Tap", "Tapping", "Taps", "tapped_ports"]


class Tap(ABC):
    """A reader of the records that an operator emits or, for a sink, receives.

    The run calls it on the run's thread, and waits for it.

    Args:
        operator: the name of the operator.
    """

    def __init__(self, operator: str) -> None:
        self.operator = operator

    @abstractmethod
    def take(self, output: int, batch: Batch) -> None:
        """Receive records. They must not be changed.

        Args:
            output: the number of the output that emits them, from 0.
            batch: the records, one or more.
        """

    @abstractmethod
    def end_tick(self, tick: int) -> bool:
        """Handle the end of a tick; return whether the tap is still wanted.

        Args:
            tick: the number of the tick.
        """


@dataclass(frozen=True, slots=True)
class _Target:
    """A tap among the targets of one output."""

    tap: Tap
    output: int

    def append(self, batch: Batch, /) -> None:
        """Pass on the records of a batch. It may contain only epochs."""
        if len(batch):
            self.tap.take(self.output, batch)


def tapped_ports(program: Program, operator: str) -> list[Port]:
    """Return the outputs of an operator or, for a sink, the outputs that it reads.

    Raises:
        GraphError: if there is no such operator.
    """
    nodes = [(at, it) for at, it in enumerate(program.vertices) if not it.node.starts_stage]
    found = [(at, it) for at, it in nodes if it.node.name == operator]
    if not found:
        names = [it.node.name for _, it in nodes]
        raise GraphError(f"there is no operator {short_repr(operator)}{did_you_mean(operator, names)}")
    at, vertex = found[-1]  # the steps of an operator have its name, and the last one gives its results
    if isinstance(vertex.node, SinkNode):
        return [*vertex.inputs]
    return [Port(at, output) for output in range(vertex.node.outputs)]


class Taps:
    """The taps that a run should have; they may be changed from any thread.

    Attributes:
        version: the number of changes so far.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: tuple[Tap, ...] = ()
        self.version = 0

    @property
    def wanted(self) -> tuple[Tap, ...]:
        """The taps."""
        return self._wanted

    def add(self, tap: Tap) -> None:
        """Add a tap, from the next tick on."""
        with self._lock:
            self._wanted = (*self._wanted, tap)
            self.version += 1

    def remove(self, gone: Sequence[Tap]) -> None:
        """Remove taps before the next tick."""
        with self._lock:
            self._wanted = tuple(it for it in self._wanted if it not in gone)
            self.version += 1


class Tapping:
    """Adds taps to the workers of a process and removes them, between ticks.

    Args:
        program: the program.
        taps: the taps that the run should have.
    """

    def __init__(self, program: Program, taps: Taps) -> None:
        self._program = program
        self._taps = taps
        self._version = 0
        self._held: list[tuple[Worker, Port, _Target]] = []
        self._tapped: tuple[Tap, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether `change` has anything to do."""
        return self._taps.version != self._version

    def change(self, workers: Iterable[Worker]) -> None:
        """Replace the taps of each worker with the ones that are wanted now."""
        self._version, self._tapped = self._taps.version, self._taps.wanted
        for worker, port, target in self._held:
            worker.targets_of(port).remove(target)
        of_stages = [*workers]
        self._held = [
            (worker, port, _Target(tap, port.output))
            for tap in self._tapped
            for port in tapped_ports(self._program, tap.operator)
            for worker in of_stages
            if worker.has(port.vertex)
        ]
        for worker, port, target in self._held:
            worker.targets_of(port).append(target)

    def forget(self) -> None:
        """Forget the current workers; the taps are added to the new ones before the next tick."""
        self._held, self._version = [], -1

    def end_tick(self, tick: int) -> None:
        """Report the end of a tick to the taps, and remove the ones that are no longer wanted."""
        if self._tapped:
            gone = [it for it in self._tapped if not it.end_tick(tick)]
            if gone:
                self._taps.remove(gone)
