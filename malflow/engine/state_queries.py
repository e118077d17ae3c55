"""Queries of the states of a run, which each worker answers between two ticks, windows included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from malflow.diagnostics import operator_error
from malflow.engine.plan import Program
from malflow.engine.state_specs import hidden_id, placement_of, specs_of
from malflow.engine.worker import Worker
from malflow.errors import GraphError, MalflowError, QueryError
from malflow.nodes import Node, StatefulNode
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.frontiers import REACHED
from malflow.operators.failures.dead_letters import oldest_first
from malflow.partitioners import part_select
from malflow.states.entry_keys import RECORD_KEYS, WINDOWS
from malflow.states.keyed import Delta, copied
from malflow.states.kinds import Movement, StateKind, StateSpec
from malflow.states.paned import OperatorState, PanedState
from malflow.windows import WindowResult
from malflow.words import class_name, did_you_mean, error_line, error_text, listed, short_repr

__all__ = [
    "MOST_KEYS",
    "Found",
    "KeptState",
    "Outcome",
    "Question",
    "addressed",
    "check_unit",
    "copies",
    "find",
    "kept_letters",
    "kept_state",
    "window_results",
    "windows_node",
]


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


Found = list[tuple[Any, Any]]
"""Pairs of a key and its state, or of a key and a result of its windows, on one worker."""

MOST_KEYS: Final = 10_000
"""The most keys that are answered in one tick: the run waits while their states are copied."""

Outcome = list[Found] | MalflowError
"""The findings of the workers, in their order, or the error of one of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that every worker can answer for itself.

    Attributes:
        name: the name of the state.
        stage: the stage that has it.
        keys: the keys of wanted states; None for the first ones that there are.
        limit: the most pairs that a worker returns.
        windows: whether the results of windows are wanted, and not their states.
        at: the time within the wanted windows; None for all.
        unit: the unit of a rollup's wanted windows; None for all.
        workers: the workers that are asked; None for all.
        letters: whether it is about dead letters; a worker may have none.
    """

    name: str
    stage: int
    keys: tuple[Any, ...] | None = None
    limit: int = 0
    windows: bool = False
    at: Any = None
    unit: str | None = None
    workers: frozenset[int] | None = None
    letters: bool = False

    @property
    def size(self) -> int:
        """The most keys that are answered."""
        return self.limit if self.keys is None else len(self.keys)

    def asks(self, stage: int, worker: int) -> bool:
        """Whether a stage of a worker is asked."""
        return stage == self.stage and (self.workers is None or worker in self.workers)


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state of a program that can be asked for.

    Attributes:
        node: the operator.
        spec: the state.
        stage: the stage of the operator.
    """

    node: Node
    spec: StateSpec
    stage: int


def kept_letters(program: Program, operator: str) -> KeptState:
    """Return the dead letters of an operator.

    Raises:
        GraphError: if no such operator can have any.
    """
    kept = {
        node.name: KeptState(node, spec, number)
        for number, stage in enumerate(program.stages)
        for step in stage.steps
        for node in [program.vertices[step.vertex].node]
        for spec in specs_of(node)
        if spec.kind is StateKind.LETTERS
    }
    if operator in kept:
        return kept[operator]
    hint = did_you_mean(operator, kept, else_=f"the operators that can: {listed(kept)}")
    raise GraphError(f"no operator {operator!r} can have dead letters{hint}", operator=f"{operator}")


def kept_state(program: Program, name: str) -> KeptState:
    """Return the state with a name.

    Raises:
        GraphError: if no state has the name, or its entries have no keys.
    """
    nodes: dict[str, Node] = {}
    kept: dict[str, KeptState] = {}
    others: dict[str, StateSpec] = {}
    for number, stage in enumerate(program.stages):
        for step in stage.steps:
            node = program.vertices[step.vertex].node
            nodes[node.name] = node
            for spec in specs_of(node):
                if isinstance(node, StatefulNode) and spec.kind.migrates:
                    kept[spec.name] = KeptState(node, spec, number)
                else:
                    others[spec.name] = spec
    if name in kept:
        return kept[name]
    if name in others:
        raise GraphError(
            f"the state of '{name}' is {_contents(others[name].kind)}, which can't be asked for; read_state() reads it "
            "from a snapshot",
            operator=name,
        )
    if name in nodes:
        raise GraphError(f"operator '{name}' keeps no state; those that do are {listed(kept)}", operator=name)
    hint = did_you_mean(name, kept, else_=f"those with state are {listed(kept)}")
    raise GraphError(f"the dataflow has no operator {name!r}{hint}")


def _contents(kind: StateKind) -> str:
    if kind is StateKind.LETTERS:
        return "dead letters"
    positions = (StateKind.SOURCE, StateKind.SINK)
    return "positions" if kind in positions else "epochs (watermarks)"


def addressed(kept: KeptState, question: Question, parallelism: int) -> Question:
    """Return a question that is put to the workers that may have its keys.

    Raises:
        OperatorError: if the partitioner fails.
    """
    if kept.spec.kind.movement is Movement.EVERYWHERE:
        return replace(question, workers=frozenset({0}))
    placement = placement_of(kept.node)
    if placement in (None, part_select) or question.keys is None:
        return question  # the workers know their parts
    key_of = RECORD_KEYS[kept.spec.kind.movement]
    keys = question.keys if question.windows else [key_of(key) for key in question.keys]
    workers = range(parallelism)
    owners = set()
    for key in keys:
        try:
            owners.add(placement(key, workers))
        except Exception as error:
            about = f"key {short_repr(key)}"
            raise operator_error(kept.node.name, error, None, placement, about=about) from error
    return replace(question, workers=frozenset(owners))


def find(program: Program, worker: Worker, question: Question) -> Found:
    """Return the pairs that a worker finds; states are live: copy them before the next tick.

    Raises:
        OperatorError: if an aggregator fails.
        GraphError: if the time is not of the type of the windows.
        QueryError: if a class of the user fails otherwise.
    """
    try:
        return _find(program, worker, question)
    except MalflowError:
        raise
    except Exception as error:
        raise QueryError(
            f"operator '{question.name}' could not be asked: {error_line(error)}",
            operator=question.name,
        ) from error


def _find(program: Program, worker: Worker, question: Question) -> Found:
    if question.letters:
        letters: Any = worker.states.live().get(question.name, {})
        return oldest_first(letters)[: question.limit]
    keys = question.keys
    if keys is not None and not question.windows:
        keys = tuple(map(RECORD_KEYS[kept_state(program, question.name).spec.kind.movement], keys))
    state = worker.states.look(question.name, keys, question.limit)
    if question.windows:
        return [(key, it) for key in question.keys or () for it in _windows(program, worker, state, question, key)]
    if question.keys is None:
        return [*islice(state.items(), question.limit)]
    return [(key, state[key]) for key in question.keys if key in state]


def copies(name: str, found: Iterable[tuple[Any, Any]]) -> Found:
    """Return pairs of a key and a state with copies of the states.

    Raises:
        QueryError: if a state can't be copied.
    """
    return [(key, _copied(name, key, state)) for key, state in found]


def _windows(
    program: Program, worker: Worker, state: OperatorState, question: Question, key: Any
) -> list[WindowResult[Any, Any]]:
    node = windows_node(program, question.name, "state()")
    slots = _slots(state, key)
    states = dict(copies(question.name, [(slot, state[slot]) for slot in slots]))
    reached = dict(worker.states.of(hidden_id(node, REACHED)))
    at = question.at
    made = window_results(node, worker.worker_id, range(worker.parallelism), states, reached, question.unit)
    results = [it for _, it in made]
    try:
        return [it for it in results if at is None or it.start <= at < it.end]
    except TypeError as error:
        raise GraphError(
            f"operator '{node.name}' has windows such as {short_repr(results[0].start)} to "
            f"{short_repr(results[0].end)}, which can't be compared with at={short_repr(at)}",
            operator=node.name,
        ) from error


def _slots(state: OperatorState, key: Any) -> list[Any]:
    """Return the keys of the entries that belong to the key of a record."""
    if isinstance(state, PanedState):
        return [(number, key) for number in sorted(state.panes) if key in state.panes[number]]
    return [key] if key in state else []


def _copied(name: str, key: Any, state: Any) -> Any:
    try:
        return copied(state)
    except Exception as error:
        raise QueryError(
            f"operator '{name}': the state of key {short_repr(key)} can't be copied: {class_name(error)}: "
            f"{error_text(error)}",
            operator=name,
        ) from error
