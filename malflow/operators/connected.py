"""Two streams with equal keys into one state for each key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from malflow.message import DataMessage
from malflow.operators.contract import Operator, OperatorContext, Output, StatefulHooks
from malflow.operators.epochs.frontiers import INPUTS, Frontiers
from malflow.operators.keyed.stateful import StatefulOp
from malflow.operators.keyed.timed_op import TimedOp
from malflow.records.batch import Batch
from malflow.type_parameters import V2, VO, K, S, T, V

__all__ = ["ConnectLogic", "ConnectOp", "TimedConnectOp", "TwoFunctions"]


class ConnectLogic(StatefulHooks[K, T, VO, S], Generic[K, V, V2, T, VO, S]):
    """The logic of a `connect`: a method for the messages of each stream, and the hooks of a `StatefulLogic`."""

    @abstractmethod
    def on_left(self, msg: DataMessage[K, V, T], state: S, output: Output[K, VO, T]) -> S | None:
        """Process one message of the stream itself with the state of its key; return the new state, None to drop it."""

    @abstractmethod
    def on_right(self, msg: DataMessage[K, V2, T], state: S, output: Output[K, VO, T]) -> S | None:
        """Process one message of the other stream with the state of its key, in the same way."""


@dataclass(frozen=True, slots=True)
class TwoFunctions:
    """A logic of two functions, without hooks."""

    on_left: Callable[[DataMessage[Any, Any, Any], Any, Output[Any, Any, Any]], Any]
    on_right: Callable[[DataMessage[Any, Any, Any], Any, Output[Any, Any, Any]], Any]


class TwoEdges(Operator):
    """Takes the batches of two edges, always from the one with the lower epoch (watermark), and merges their epochs.

    It follows a `StatefulOp` in the order of bases. That `process` calls the function of the edge.
    """

    inputs: Frontiers
    _logic: Any
    _on_data: Any

    def join_edges(self, logic: Any) -> None:
        """Set up the edges; called once the operator is otherwise complete."""
        self.inputs = Frontiers(self.context, 2)
        self.hidden = {**self.hidden, INPUTS: self.inputs}
        self._logic = logic
        self.takes_pieces = False

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        super().set_idle_inputs(edges)
        self.inputs.set_idle(edges)

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the edges that count."""
        return self.inputs.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Process the batches of both edges."""
        for edge, batch in self.inputs.merge_by_edge(edges):
            self.turn_to(edge)
            yield self.process(batch)

    def turn_to(self, edge: int) -> None:
        """Call the function of an edge from now on, and tell the guard the edge."""
        logic = self._logic
        self._on_data = logic.on_right if edge else logic.on_left
        self.callback = self._on_data if isinstance(logic, TwoFunctions) else logic
        if self.guard is not None:
            self.guard.input = edge


class ConnectOp(StatefulOp, TwoEdges):
    """A `StatefulOp` with two inputs."""

    def __init__(self, context: OperatorContext, logic: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, logic, default)
        self.warn_of_missing_returns(logic.on_left, logic.on_right)
        self.join_edges(logic)


class TimedConnectOp(TimedOp, TwoEdges):
    """A `TimedOp` with two inputs."""

    def __init__(self, context: OperatorContext, logic: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, logic, default)
        self.warn_of_missing_returns(logic.on_left, logic.on_right)
        self.join_edges(logic)
