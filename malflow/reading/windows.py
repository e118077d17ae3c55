"""The windows in a snapshot, whose accumulators the program's own aggregators make results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from malflow.engine.compiler import compile_graph
from malflow.engine.state_queries import check_unit, window_results, windows_node
from malflow.engine.state_specs import hidden_id, specs_of
from malflow.engine.states.migration import migrated, migrations
from malflow.errors import SnapshotError
from malflow.graph import Graph
from malflow.nodes import StatefulNode
from malflow.operators.epochs.frontiers import REACHED
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.evolution import changed_definitions, changed_shapes
from malflow.snapshot.placed_states import WorkerStates
from malflow.snapshot.reading import opened
from malflow.states.entry_keys import check_record_key
from malflow.states.kinds import Arrangement
from malflow.streams.stream import StreamProvider
from malflow.windows import WindowResult

__all__ = ["read_windows"]


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
        key: the key of the windows to read; by default all.
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
    node = windows_node(program, operator, "read_state()")
    check_unit(node, unit)
    epoch = hidden_id(node, REACHED)
    kept = opened(backend, operator, at, (epoch,))
    _check(kept, node, backend)
    entry = kept.entry
    moves = migrations(program, {operator: entry.version}, {operator: entry.definition})
    old = next((old for _, old in moves.values()), None)
    workers = set(kept.workers) if key is ... else _owners(kept, key)
    return _read(kept, node, epoch, sorted(workers), key, unit, old)


def _read(
    kept: WorkerStates,
    node: StatefulNode,
    epoch: str,
    workers: list[int],
    key: Any,
    unit: str | None,
    old: int | Arrangement | None,
) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
    """Restore the operator of each worker, and yield its results."""
    numbers = range(kept.manifest.parallelism)
    for worker in workers:
        found = kept.states_by_name(worker)
        states: Mapping[Any, Any] = found[kept.entry.name]
        if key is not ... and kept.key_of is not None:
            states = {at: state for at, state in states.items() if kept.key_of(at) == key}
        if old is not None:
            states = migrated(node, old, states)
        yield from window_results(node, worker, numbers, states, found.get(epoch, {}), unit)


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
    refusals, lost = changed_definitions(manifest, specs, names)
    if lost:
        raise SnapshotError(
            f"operator '{node.name}' is {node.definition}, but in snapshot {manifest.snapshot} it is "
            f"{entry.definition}; read it with the program that took the snapshot"
        )
    for refusal in (*refusals, *changed_shapes(manifest, specs, names, backend.codec)):
        raise refusal.error


def _owners(kept: WorkerStates, key: Any) -> set[int]:
    check_record_key(kept.entry.name, key)
    return kept.owners(key)
