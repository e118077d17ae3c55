"""The event time of one worker: the progress of its epoch generators, and its idle inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from malflow.engine.idle_edges import Idle, feeds_of, idleness, places_near
from malflow.engine.part_placement import Parts, Place
from malflow.engine.plan import Program, generators_behind
from malflow.nodes import StatefulNode
from malflow.operators.contract import Operator
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.waiting import OperatorTime, Reached

__all__ = ["WorkerTime"]


class WorkerTime:
    """Follows event time through one stage of one worker.

    Args:
        program: the whole program.
        worker_id: the index of this worker.
        workers: all workers.
        operators: the operators of the stage, by vertex.
        generators: the operators that generate epochs, by vertex.
    """

    def __init__(
        self,
        program: Program,
        worker_id: int,
        workers: Sequence[int],
        operators: Mapping[int, Operator],
        generators: Mapping[int, GenerateEpochs],
    ) -> None:
        self._worker_id = worker_id
        self._workers = workers
        self._operators = operators
        self._generators = generators
        self._feeds = feeds_of(program)
        self._exchanges = {vertex for vertex in operators if program.vertices[vertex].node.starts_stage}
        behind = generators_behind(program)
        self._holders = [
            (operator, behind[vertex])
            for vertex, operator in operators.items()
            if behind[vertex] and isinstance(program.vertices[vertex].node, StatefulNode)
        ]
        self._parts: Parts = {}
        self._ended: Collection[str] = ()
        self.finished: frozenset[Place] = frozenset()

    def set_parts(self, parts: Parts) -> None:
        """Set the parts of each source that each worker holds."""
        self._parts = parts
        for vertex, generator in self._generators.items():
            generator.fed_by = places_near(self._feeds[vertex][0], self._worker_id, parts)
        self._set_idle_inputs()

    def note_ended(self, ended: Collection[str], *, final: bool) -> None:
        """Record which sources have ended on all workers; in the final tick, all inputs count again."""
        if ended != self._ended or final:
            self._ended = ended
            self._set_idle_inputs(final=final)

    def _set_idle_inputs(self, *, final: bool = False) -> None:
        for vertex, operator in self._operators.items():
            feeds = self._feeds[vertex]
            if vertex in self._exchanges:
                differ = self._workers if feeds[0].local else self._workers[:1]  # what is only remote is so everywhere
                idle = [idleness(feeds[0], worker, self._parts, self._ended) for worker in differ]
                idle *= len(self._workers) // len(differ)
            else:
                idle = [idleness(feed, self._worker_id, self._parts, self._ended) for feed in feeds]
            operator.set_idle_inputs([Idle.BUSY] * len(idle) if final else idle)

    def lift(self, lifts: Mapping[str, Any]) -> None:
        """Pass to generators, by name, the epochs that they issue at the beginning of the tick."""
        for generator in self._generators.values():
            name = generator.context.operator_name
            if name in lifts:
                is_finished = bool(generator.fed_by) and self.finished.issuperset(generator.fed_by)
                generator.lift_to(lifts[name], is_finished=is_finished)

    def reached(self, held: Callable[[Operator], object]) -> dict[str, list[Reached]]:
        """Return the progress of the epoch generators that records on this worker reach.

        Args:
            held: returns the results that an operator holds, or None.
        """
        reached = {
            generator.context.operator_name: list(
                generator.reached(is_finished=self.finished.issuperset(generator.fed_by))
            )
            for generator in self._generators.values()
            if generator.fed_by
        }
        for operator, names in self._holders:
            if held(operator) is not None:
                for name in names:
                    reached.setdefault(name, []).append(Reached(None, False, holds=True))
        return reached

    def explain(self) -> dict[int, OperatorTime]:
        """Return the progress of each operator in event time, by vertex."""
        return {vertex: _time_of(operator) for vertex, operator in self._operators.items()}


def _time_of(operator: Operator) -> OperatorTime:
    """Return the time of an operator; empty if user code fails, since an explanation must not end a run."""
    try:
        return operator.time()
    except Exception:  # noqa: BLE001 - such as from the user's partition of time
        return OperatorTime()
