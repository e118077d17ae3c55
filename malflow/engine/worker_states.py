"""The states of a stage on one worker, by name: their changes, their live values, and the parts that have finished."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any, NamedTuple

from malflow.engine.stage_operators import StageOperators
from malflow.engine.state_specs import hidden_id, state_id
from malflow.operators.contract import Operator, StateKeeper
from malflow.operators.failures.dead_letters import LETTERS
from malflow.operators.hosting.parts import PartOperator
from malflow.states.keyed import Delta
from malflow.states.paned import OperatorState

__all__ = ["WorkerStates"]


class _Kept(NamedTuple):
    """A state: its name, its keeper, and the operator that errors of the keeper name."""

    name: str
    operator: Operator
    keeper: StateKeeper


class WorkerStates:
    """The states of a stage on one worker, between two ticks.

    Each state has one keeper: an operator, an object inside it with a hidden state, or dead letters. The keepers hold
    the states and track their changes; there is no copy here. A change is in the next deltas and in no later ones.
    Deltas that are applied are no changes, and `forget` makes the next deltas complete.

    States and deltas are live: serialise them before the next tick.

    Args:
        operators: the operators of the stage.
    """

    def __init__(self, operators: StageOperators) -> None:
        self._act = operators.act
        self._sources = operators.sources
        self._kept = [*_kept_by(operators)]
        self._placed = [it for it in (*operators.sources, *operators.sinks) if isinstance(it, PartOperator)]

    def live(self) -> dict[str, OperatorState]:
        """Return the live states by name. Positions are as of the last delta."""
        for it in self._kept:
            it.keeper.sync_state()
        return {it.name: it.keeper.state for it in self._kept if it.keeper.state is not None}

    def of(self, name: str) -> OperatorState:
        """Return the live state with a name.

        Raises:
            KeyError: if no operator of the stage has it.
        """
        for it in self._kept:
            if it.name == name and it.keeper.state is not None:
                it.keeper.sync_state()
                return it.keeper.state
        raise KeyError(name)

    def look(self, name: str, keys: Collection[Any] | None, limit: int) -> OperatorState:
        """Return the live state with a name, or a copy of a part of it: see `Operator.look`.

        Raises:
            KeyError: if no operator of the stage has it.
        """
        for it in self._kept:
            if it.name == name and it.keeper is it.operator:
                found: OperatorState | None = self._act(it.operator, it.operator.look, keys, limit)
                if found is not None:
                    return found
        return self.of(name)

    def deltas(self, whole: bool = False) -> dict[str, Delta]:
        """Return the changes of each state since the last call, by name.

        Args:
            whole: whether to return the full states, not only the changes.
        """
        if whole:
            self.forget()
        deltas = {it.name: self._act(it.operator, it.keeper.delta) for it in self._kept}
        return {name: delta for name, delta in deltas.items() if delta}

    def apply(self, deltas: Mapping[str, Delta]) -> None:
        """Apply deltas to the states that they name; others are ignored."""
        for it in self._kept:
            if it.name in deltas:
                it.keeper.apply(deltas[it.name])

    def forget(self, names: Container[str] | None = None) -> None:
        """Make the next deltas complete, for all states or the named ones."""
        for it in self._kept:
            if names is None or it.name in names:
                it.keeper.forget()

    def note_positions(self) -> None:
        """Write the current positions of readers and writers to the states; they still count as changes."""
        for operator in self._placed:
            self._act(operator, operator.note_positions)

    # The finished parts. They are in no state, since a run that starts lists its parts.

    def take_finished(self, *, whole: bool) -> dict[str, list[Any]]:
        """Return the parts of each source that have finished since the last call, or all finished ones in this run."""
        finished = {source.context.operator_name: source.take_finished(whole=whole) for source in self._sources}
        return {name: parts for name, parts in finished.items() if parts}

    def finish(self, parts: Mapping[str, Collection[Any]]) -> None:
        """Mark parts that finished earlier in this run. `Worker.open` then does not poll them."""
        for source in self._sources:
            source.finish(parts.get(source.context.operator_name, ()))


def _kept_by(operators: StageOperators) -> Iterator[_Kept]:
    """Yield the states, in the order of their operators."""
    for vertex, active in operators.active.items():
        node, operator = active.node, active.operator
        yield _Kept(state_id(node), operator, operator)
        if vertex in operators.letters:
            yield _Kept(hidden_id(node, LETTERS), operator, operators.letters[vertex])
        for role, keeper in operator.hidden.items():
            yield _Kept(hidden_id(node, role), operator, keeper)
