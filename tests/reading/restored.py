"""The states that a run has right after it has restored a snapshot: the model of reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.parts.places import PartPlaces
from malflow.engine.state_specs import placement_of, specs_of, states_of
from malflow.engine.states.loading import load_into
from malflow.engine.workers import Workers
from malflow.graph import Graph
from malflow.snapshot import FsspecBackend, read_state
from malflow.snapshot.persistence import RestoredState, RestoreOptions
from malflow.states.kinds import Movement, StateKind
from malflow.states.paned import PanedState

__all__ = ["check_read", "restored_states"]

_KEY_OF: dict[Movement, Callable[[Any], Any]] = {
    Movement.BY_KEY: lambda key: key,
    Movement.EVERYWHERE: lambda key: key,
    Movement.BY_SLOT: lambda slot: slot[1],
    Movement.BY_ENTRY: lambda slot: slot[1][0],
}


def restored_states(
    build: Callable[[StreamProvider], object], backend: FsspecBackend, parallelism: int
) -> tuple[RestoredState, dict[str, dict[int, Any]], PartPlaces]:
    """Restore a snapshot, which claims the job.

    Return its content, the live states by name and worker, and the workers of parts.
    """
    program = compile_graph(_graph(build))
    session, restored = backend.open(states_of(program), RestoreOptions())
    assert restored is not None
    session.close()
    workers = Workers(program, parallelism=parallelism, tracked=False)
    sinks = {spec.name for spec in states_of(program) if spec.kind is StateKind.SINK}
    states = {name: by_worker for name, by_worker in restored.states.items() if name not in sinks}
    load_into(workers, program, replace(restored, states=states))
    found: dict[str, dict[int, Any]] = {}
    for (worker, name), state in workers.states().items():
        found.setdefault(name, {})[worker] = state
    return restored, found, PartPlaces(parallelism, program.part_groups, workers.parts)


def check_read(build: Callable[[StreamProvider], object], backend: FsspecBackend, parallelism: int) -> set[str]:
    """Assert that each state is read as a run with so many workers restores it; return the kinds of those with keys."""
    program = compile_graph(_graph(build))
    owners = {
        spec.name: (placement_of(vertex.node), spec.kind, vertex.node.name)
        for vertex in program.vertices
        for spec in specs_of(vertex.node)
        if spec.kind.movement in _KEY_OF
    }
    restored, live, places = restored_states(build, backend, parallelism)
    for name, by_worker in restored.states.items():
        if name not in owners:
            _check_by_worker(list(read_state(backend, name)), by_worker)
    read = {name: list(read_state(backend, name)) for name in owners}
    kinds = set()
    for name, by_worker in live.items():
        if name not in owners:
            continue  # positions and epochs are computed again
        placement, kind = places.bound(owners[name][0], owners[name][2]), owners[name][1]
        key_of = _KEY_OF[kind.movement]
        kinds |= {kind.word} if read[name] else set()
        if kind.movement is Movement.EVERYWHERE:
            assert all(list(states.items()) == read[name] for states in by_worker.values())
            continue
        if placement is None:  # no key has moved
            assert read[name] == [item for worker in sorted(by_worker) for item in by_worker[worker].items()]
            continue
        for worker, states in by_worker.items():
            mine = [(key, state) for key, state in read[name] if placement(key_of(key), range(parallelism)) == worker]
            if isinstance(states, PanedState):
                mine.sort(key=lambda it: it[0][0])
            assert mine == list(states.items()), (name, worker)
    return kinds


def _check_by_worker(read: list[tuple[Any, Any]], by_worker: dict[int, Any]) -> None:
    """Compare positions, or what each worker has under the same names."""
    plain = [item for worker in sorted(by_worker) for item in by_worker[worker].items()]
    numbered = [((worker, name), it) for worker in sorted(by_worker) for name, it in by_worker[worker].items()]
    assert read in (plain, numbered)


def _graph(build: Callable[[StreamProvider], object]) -> Graph:
    graph = Graph()
    build(StreamProvider(graph))
    return graph
