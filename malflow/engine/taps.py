"""Taps: further readers of an operator's output, added and removed between two ticks.

A tap is one more target among those that get the operator's batches anyway, so a run without one does no work for it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from malflow.engine.plan import Program
from malflow.engine.worker import Worker
from malflow.errors import GraphError, short_repr
from malflow.nodes import Port, SinkNode
from malflow.records.batch import Batch

__all__ = ["Tap", "Tapping", "Taps", "tapped_ports"]

_LONGEST_NAME = 100
"""The longest text that is compared with names, as that takes time."""


class Tap(ABC):
    """A reader of the records that leave an operator or, for a sink, that it receives.

    The run calls it on its own thread, and waits for it.

    Args:
        operator: the name of the operator.
    """

    def __init__(self, operator: str) -> None:
        self.operator = operator

    @abstractmethod
    def take(self, output: int, batch: Batch) -> None:
        """Receive records, which it must not change.

        Args:
            output: the number of the output that they leave, from 0.
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
        """Pass on the records of a batch, which may have epochs alone."""
        if len(batch):
            self.tap.take(self.output, batch)


def tapped_ports(program: Program, operator: str) -> list[Port]:
    """Return the outputs of an operator or, for a sink, those that it reads.

    Raises:
        GraphError: if there is no such operator.
    """
    nodes = [(at, it) for at, it in enumerate(program.vertices) if not it.node.starts_stage]
    found = [(at, it) for at, it in nodes if it.node.name == operator]
    if not found:
        names = [it.node.name for _, it in nodes]
        near = get_close_matches(operator[:_LONGEST_NAME], names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(map(repr, names))}"
        raise GraphError(f"there is no operator {short_repr(operator)}; {hint}")
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
    """Adds taps to the workers of a process, and removes them, between two ticks.

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
        """Whether `change` has something to do."""
        return self._taps.version != self._version

    def change(self, workers: Iterable[Worker]) -> None:
        """Add the taps that are wanted now to each worker, and remove those that it has."""
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
        """Add the taps again before the next tick, to other workers."""
        self._held, self._version = [], -1

    def end_tick(self, tick: int) -> None:
        """Pass on the end of a tick, and remove the taps that nobody wants any longer."""
        if self._tapped:
            gone = [it for it in self._tapped if not it.end_tick(tick)]
            if gone:
                self._taps.remove(gone)
