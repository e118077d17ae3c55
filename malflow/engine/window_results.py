"""The results so far of an operator with windows, made from its states by its own aggregators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.state_specs import placement_of
from malflow.errors import GraphError
from malflow.nodes import StatefulNode
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.frontiers import REACHED
from malflow.states.entry_keys import WINDOWS
from malflow.states.keyed import Delta
from malflow.states.kinds import StateKind
from malflow.windows import WindowResult
from malflow.words import did_you_mean, short_repr

__all__ = ["check_unit", "window_results", "windows_node"]


def windows_node(program: Program, operator: str, instead: str) -> StatefulNode:
    """Return the node of an operator with windows.

    Args:
        program: the program.
        operator: the name of the operator.
        instead: the function that reads other operators.

    Raises:
        GraphError: if there is no such operator, or it has no windows.
    """
    nodes = {vertex.node.name: vertex.node for vertex in program.vertices}
    windows = {name: it for name, it in nodes.items() if isinstance(it, StatefulNode) and it.kind in WINDOWS}
    if operator in windows:
        return windows[operator]
    node = nodes.get(operator)
    if isinstance(node, StatefulNode):
        raise GraphError(
            f"operator '{operator}' is a {node.kind.word}, which has no windows; use {instead}", operator=operator
        )
    raise GraphError(f"the program has no operator {operator!r} with windows{did_you_mean(operator, windows)}")


def check_unit(node: StatefulNode, unit: str | None) -> None:
    """Check that a unit is one of a rollup's."""
    if unit is None:
        return
    if node.kind is not StateKind.ROLLUP:
        raise GraphError(f"operator '{node.name}' is a {node.kind.word}; only a rollup has units", operator=node.name)
    rollup: Any = node.logic(OperatorContext(node.name))
    if unit not in rollup.units:
        raise GraphError(
            f"operator '{node.name}' has no unit {short_repr(unit)}; it has {', '.join(map(repr, rollup.units))}",
            operator=node.name,
        )


def window_results(
    node: StatefulNode,
    worker: int,
    workers: Sequence[int],
    states: Mapping[Any, Any],
    reached: Mapping[Any, Any],
    unit: str | None = None,
) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
    """Yield each key with the results of its windows that are open, or closed and kept.

    Args:
        node: the operator.
        worker: the worker that has the states.
        workers: all workers.
        states: the operator's states; they may change.
        reached: its hidden state with the last epoch.
        unit: the unit of a rollup; None for all.

    Raises:
        OperatorError: if a user's function fails, naming the key.
    """
    operator: Any = node.logic(OperatorContext(node.name, worker, workers, placement=placement_of(node)))
    operator.hidden[REACHED].apply(Delta(reached, whole=True))
    operator.apply(Delta(states, whole=True))
    yield from operator.results_so_far() if unit is None else operator.results_so_far(unit)
