"""A run driven by hand: ticks, snapshots and rescales at any point of a test."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.state_specs import states_of
from malflow.graph import Graph
from malflow.states.keyed import KeyedState
from malflow.testing.driven import DrivenRun

__all__ = ["Store", "compiled", "finish", "run_of"]


def compiled(build_dataflow: Callable[[StreamProvider], object]) -> Program:
    """Build a dataflow."""
    graph = Graph()
    build_dataflow(StreamProvider(graph))
    return compile_graph(graph)


def run_of(
    build_dataflow: Callable[[StreamProvider], object], parallelism: int = 1, *, tracked: bool = True
) -> DrivenRun:
    """Open a run of a dataflow."""
    run = DrivenRun(compiled(build_dataflow), parallelism=parallelism, tracked=tracked)
    run.open()
    return run


def finish(run: DrivenRun) -> None:
    """Continue to the end, and close."""
    with run:
        while not run.is_finished:
            run.tick()
        run.end()


class Store:
    """The states that the pickled deltas of runs add up to, and the settings of the last run."""

    def __init__(self) -> None:
        self.states: dict[str, dict[int, KeyedState]] = {}
        self.set_up: tuple[int, int, Mapping[str, int], Mapping[str, str | None]] | None = None

    def commit(self, run: DrivenRun, program: Program) -> None:
        """Apply the changes of a run; after a rescale, start from nothing."""
        if self.set_up is not None and self.set_up[1] != run.parallelism:
            self.states = {}
        for worker, name, delta, keys in pickle.loads(pickle.dumps(run.deltas())):
            state = self.states.setdefault(name, {}).setdefault(worker, KeyedState())
            state.apply(delta)
            assert len(state) == keys
        specs = states_of(program)
        self.set_up = (
            run.ticks.number,
            run.parallelism,
            {spec.name: spec.version for spec in specs},
            {spec.name: spec.placement for spec in specs},
        )

    def rename_placements(self, names: Mapping[str, str]) -> None:
        """Make the snapshot that of another version of malflow, in which partitioners had other names."""
        if self.set_up is not None:
            tick, parallelism, versions, placements = self.set_up
            renamed = {state: names.get(it, it) if it else it for state, it in placements.items()}
            self.set_up = (tick, parallelism, versions, renamed)

    def restore(self, program: Program, parallelism: int) -> DrivenRun:
        """Open a run that continues from there."""
        run = DrivenRun(program, parallelism=parallelism, tracked=True)
        if self.set_up is not None:
            tick, before, versions, placements = self.set_up
            run.load_snapshot(tick, before, pickle.loads(pickle.dumps(self.states)), versions, placements)
        run.open()
        return run

    def merged(self, name: str) -> dict[Any, Any]:
        """Return all keys of a state, with their values."""
        held: Sequence[KeyedState] = list(self.states.get(name, {}).values())
        return {key: state for states in held for key, state in states.items()}
