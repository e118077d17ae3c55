"""The start of a run, the limits of its restarts, and restarts that would count records twice."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from malflow.checks import checked_duration
from malflow.durations import Duration
from malflow.engine.parts.places import Parts, places_of
from malflow.engine.plan import Program
from malflow.engine.states.loading import unseen_rows
from malflow.errors import CommitUnknown, RunFailed, SnapshotError, StoreError
from malflow.events import RunStarted
from malflow.message import NoKey
from malflow.nodes import LETTERS_OUTPUT, ExchangeNode, SinkNode, StatefulNode
from malflow.operators.stateless import Inspect, InspectFrontier, StatelessOp
from malflow.partitioners import index_select
from malflow.snapshot.persistence import RestoredState
from malflow.words import listed, plural

__all__ = [
    "PASSING",
    "RestartGuard",
    "RestartPolicy",
    "started",
    "warn_of_idle_readers",
    "warn_of_letters",
    "warn_without_sink",
]

_log = logging.getLogger("malflow.runtime")


_LOOKING = (Inspect, InspectFrontier, StatelessOp)


def started(program: Program, parallelism: int, restored: RestoredState | None, restarts: int = 0) -> RunStarted:
    """Return the first event of a run, or of a restart.

    Args:
        program: the program.
        parallelism: the number of workers.
        restored: the content of the snapshot that the run begins with, or None.
        restarts: the number of restarts.
    """
    if restored is None:
        return RunStarted(parallelism, restarts=restarts)
    names = [vertex.node.name for vertex in program.vertices if isinstance(vertex.node, StatefulNode)]
    return RunStarted(
        parallelism,
        snapshot=restored.snapshot,
        tick=restored.tick,
        time=restored.time,
        keys={name: restored.keys[name] for name in names if name in restored.keys},
        begins_anew=tuple(program.without_positions) if restored.tick else (),
        unseen=unseen_rows(program, restored.versions, restored.keys),
        restarts=restarts,
    )


def warn_of_letters(program: Program) -> None:
    """Warn of the operators whose dead letters end with the run: nothing reads them, and nothing persists its state."""
    taken = {port.vertex for vertex in program.vertices for port in vertex.inputs if port.output == LETTERS_OUTPUT}
    kept = [vertex.node for at, vertex in enumerate(program.vertices) if at not in taken]
    policies = {node.name: program.policy(node) for node in kept}
    names = [f"'{name}'" for name, policy in policies.items() if policy is not None and policy.may_keep]
    if names:
        _log.warning(
            "the dead letters of %s end with the run, which has no persistence; pass one, such as an FsspecBackend",
            " and ".join(names),
        )


def warn_without_sink(program: Program) -> None:
    """Warn of a dataflow that writes nowhere, in which no function looks at records either: its results are lost."""
    nodes = [vertex.node for vertex in program.vertices]
    looks = any(getattr(getattr(node, "logic", None), "func", None) in _LOOKING for node in nodes)
    if nodes and not looks and not any(isinstance(node, SinkNode | StatefulNode) for node in nodes):
        _log.warning("the dataflow has no sink, so its results are lost; end it with .sink('out', StdOutSink())")


def warn_of_idle_readers(program: Program, parts: Parts) -> None:
    """Warn of workers without a part to read; not if no source has parts that could be more, as an iterable."""
    workers, reading = max(map(len, parts.values()), default=0), len({worker for _, worker in places_of(parts)})
    count = sum(len(them) for by_worker in parts.values() for them in by_worker)
    is_divided = any(part is not NoKey for by_worker in parts.values() for them in by_worker for part in them)
    if not (is_divided and reading < workers):
        return
    exchanges = _first_exchanges(program)
    _log.warning(
        "%s of %s %s %d workers: %d %s, %s",
        plural(count, "part"),
        f"source {min(parts)!r}" if len(parts) == 1 else f"the sources {listed(parts)}",
        "feeds" if count == 1 else "feed",
        workers,
        reading,
        "reads" if reading == 1 else "read",
        f"{workers} compute after the exchange {listed(exchanges)}"
        if exchanges
        else "and no other computes; call .key_distribute() before slow functions, or start fewer workers",
    )


def _first_exchanges(program: Program) -> list[str]:
    """Return the exchanges that spread the records of sources over all workers, but for mere sinks."""
    moved: list[bool] = []
    first: list[int] = []
    for vertex in program.vertices:
        before = any(moved[port.vertex] for port in vertex.inputs)
        spreads = isinstance(vertex.node, ExchangeNode) and vertex.node.partitioner is not index_select
        if spreads and not before:
            first.append(len(moved))
        moved.append(before or spreads)
    read = {port.vertex for it in program.vertices if not isinstance(it.node, SinkNode) for port in it.inputs}
    return [program.vertices[at].node.name for at in first if at in read]


class RestartGuard:
    """Rejects a restart that would count records twice; for hosts that restart runs.

    A source without positions starts over. That is correct if the restarted attempt begins with the same state as the
    failed one, but wrong if a snapshot was taken in between. That snapshot has some of the source's records.

    Args:
        program: the program.
    """

    def __init__(self, program: Program) -> None:
        self._sources = program.without_positions
        self._emitted: set[str] = set()
        self._began_with: int | None = None
        self._cause: BaseException | None = None

    def note_failure(self, began_with: int | None, records: Mapping[str, int], error: BaseException) -> None:
        """Record an attempt that failed after it had restored its state.

        Args:
            began_with: the id of the snapshot that it began with; None for an empty state.
            records: the number of records that each source had emitted.
            error: the error that made it fail.
        """
        self._began_with, self._cause = began_with, error
        self._emitted.update(name for name in self._sources if records.get(name))

    def check(self, restored: int | None) -> None:
        """Check that an attempt may begin with a snapshot; None for an empty state.

        Raises:
            SnapshotError: naming a source that would emit records again which the snapshot already has.
        """
        if self._emitted and restored != self._began_with:
            raise SnapshotError(
                f"source '{min(self._emitted)}' has no positions, so the run can't be restarted: the source would "
                f"start over, and snapshot {restored} already has some of its records. Write it as a StatefulSource, "
                f"or run the program again with restore=None, without the state; the run had failed: {self._cause}"
            ) from self._cause


PASSING: Final = (RunFailed, StoreError, CommitUnknown)
"""Errors that may be transient: a restart can succeed."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limits of restarts from the last snapshot, when Spark, a process, a store or a machine fails.

    A run is not restarted if its own code fails; Spark has already retried the task, up to ``spark.task.maxFailures``.
    Nor is a run without a persistence. On Spark, nor is a run without Java: PySpark has one Java per process, so only
    another process can continue the job.

    Attributes:
        attempts: the maximum number of restarts in a row without a snapshot in between; 0 never restarts.
        backoff: the delay before the first restart; it doubles with each further one.

    Raises:
        GraphError: if `backoff` is not a span of time.
    """

    attempts: int = 3
    backoff: Duration = timedelta(seconds=1)

    def __post_init__(self) -> None:
        """Check the delay."""
        object.__setattr__(
            self, "backoff", checked_duration("RestartPolicy", "backoff", self.backoff, may_be_zero=True)
        )
