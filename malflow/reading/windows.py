"""The windows in a snapshot, whose accumulators the program's own aggregators make results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal

from malflow.engine.migration import migrated, migrations
from malflow.engine.plan import Program, compile_graph
from malflow.engine.state_specs import hidden_id, placement_of, specs_of
from malflow.errors import GraphError, SnapshotError, short_repr
from malflow.graph import Graph, StatefulNode
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.reached_epoch import REACHED
from malflow.partitioners import check_key
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import check_definitions, check_shapes
from malflow.snapshot.reading import opened
from malflow.snapshot.worker_states import WorkerStates
from malflow.states.keyed import Delta
from malflow.states.kinds import StateKind
from malflow.streams.stream import StreamProvider
from malflow.windows import WindowResult

__all__ = ["read_windows"]

_WINDOWS = (StateKind.WINDOW, StateKind.ROLLUP, StateKind.SESSION, StateKind.COUNT_WINDOW)


def read_windows(
    build_dataflow: Callable[[StreamProvider], object],
    backend: FsspecBackend,
    operator: str,
    *,
    key: Any = ...,
    unit: str | None = None,
    at: Literal["latest"] | int | datetime = "latest",
) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
    """Yield each key with the results of its windows in a snapshot: those that are open, or closed and kept.

    A result has ``Timing.EARLY`` if its window was open, and ``Timing.FINAL`` if it was closed and kept: by `keep=` of
    a rollup, or by `until` for late records. The dataflow is built but not run; its aggregators make the results.
    An open window of a rollup has all records so far. The windows of one worker at a time are in memory, and nothing is
    claimed, locked or written.

    Args:
        build_dataflow: the function that a runtime takes.
        backend: the backend, configured as for a run.
        operator: the name of windows, sessions, a cogroup or a rollup.
        key: the key whose windows to read; by default all.
        unit: the unit of a rollup, such as ``"day"``; None for all units.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.

    Raises:
        GraphError: if an argument is not valid, or the program's operator has no windows.
        SnapshotError: if the snapshot does not exist, does not fit the program, or can't be read.
        OperatorError: if a migration or an aggregator fails.
    """
    graph = Graph()
    build_dataflow(StreamProvider(graph))
    program = compile_graph(graph)
    node = _node(program, operator)
    _check_unit(node, unit)
    epoch = hidden_id(node, REACHED)
    kept = opened(backend, operator, at, (epoch,))
    _check(kept, node, backend)
    version = next((version for _, version in migrations(program, {operator: kept.entry.version}).values()), None)
    workers = set(kept.workers) if key is ... else _owners(kept, key)
    return _read(kept, node, epoch, sorted(workers), key, unit, version)


def _read(
    kept: WorkerStates,
    node: StatefulNode,
    epoch: str,
    workers: list[int],
    key: Any,
    unit: str | None,
    version: int | None,
) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
    """Restore the operator of each worker, and yield its results."""
    numbers = range(kept.manifest.parallelism)
    for worker in workers:
        found = kept.states_by_name(worker)
        states: Mapping[Any, Any] = found[kept.entry.name]
        if key is not ... and kept.key_of is not None:
            states = {at: state for at, state in states.items() if kept.key_of(at) == key}
        if version is not None:
            states = migrated(node, version, states)
        operator: Any = node.logic(OperatorContext(node.name, worker, numbers, placement=placement_of(node)))
        operator.hidden[REACHED].apply(Delta(found.get(epoch, {}), whole=True))
        operator.apply(Delta(states, whole=True))
        yield from operator.results_so_far() if unit is None else operator.results_so_far(unit)


def _node(program: Program, operator: str) -> StatefulNode:
    """Return the operator's node.

    Raises:
        GraphError: if there is no such operator, or it has no windows.
    """
    nodes = {vertex.node.name: vertex.node for vertex in program.vertices if isinstance(vertex.node, StatefulNode)}
    windows = {name: node for name, node in nodes.items() if node.kind in _WINDOWS}
    if operator in windows:
        return windows[operator]
    if operator in nodes:
        raise GraphError(
            f"operator '{operator}' is a {nodes[operator].kind.word}, which has no windows; use read_state()",
            operator=operator,
        )
    near = get_close_matches(str(operator), windows, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"those with windows are {', '.join(map(repr, windows)) or 'none'}"
    raise GraphError(f"the program has no operator {operator!r} with windows; {hint}")


def _check_unit(node: StatefulNode, unit: str | None) -> None:
    """Check that a unit is one of a rollup's.

    Raises:
        GraphError: if it is not, or the operator is not a rollup.
    """
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


def _check(kept: WorkerStates, node: StatefulNode, backend: FsspecBackend) -> None:
    """Check that the state fits the program's operator, as a restore would.

    Raises:
        SnapshotError: if it does not.
    """
    entry = kept.entry
    if entry.kind != node.kind.word:
        raise SnapshotError(
            f"operator '{node.name}' is a {node.kind.word}, but in snapshot {kept.manifest.snapshot} it is a "
            f"{entry.kind}; read it with the program that took the snapshot"
        )
    specs = [spec for spec in specs_of(node) if spec.name == entry.name]
    names = {entry.name: entry.name}
    manifest = replace(kept.manifest, operators=(entry,))
    check_definitions(manifest, specs, names)
    if not names:
        raise SnapshotError(
            f"operator '{node.name}' is {node.definition}, but in snapshot {manifest.snapshot} it is "
            f"{entry.definition}; read it with the program that took the snapshot"
        )
    check_shapes(manifest, specs, names, backend.codec)


def _owners(kept: WorkerStates, key: Any) -> set[int]:
    try:
        check_key(key)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"operator '{kept.entry.name}' can't be read by key: {error}", operator=kept.entry.name
        ) from error
    return kept.owners(key)
