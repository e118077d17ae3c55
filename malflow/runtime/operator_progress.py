"""The progress of the operators of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from malflow.engine.plan import Program, keys_of_given
from malflow.engine.reports import RunSums
from malflow.nodes import Node, SinkNode, SourceNode
from malflow.operators.failures.guard import FAILED, LETTERS, SKIPPED
from malflow.snapshot.sizes import StateSize

__all__ = ["OperatorProgress", "Spread", "operators_of"]

_MOST_WORKERS: Final = 64
"""The greatest number of workers whose values are listed one by one."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of a quantity over the workers.

    Attributes:
        greatest: the greatest value of a worker.
        mean: the mean of all workers.
        by_worker: the value of each worker; empty if there are more than 64.
    """

    greatest: float = 0
    mean: float = 0
    by_worker: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The progress of an operator.

    Its counts are equal on every runtime. Errors and measurements may differ, and are not compared.

    Attributes:
        taken: the number of records that it has received or, for a source, emitted, since this run started.
        given: the number of records that have left each of its outputs.
        keys: the number of keys of its state in the last snapshot of this run; None if it keeps none, or before one.
        kind: whether it is a ``source``, a ``sink``, or an ``operator`` between them.
        failed: the number of records at which its function failed and the run continued; None if every failure ends the
            run, as without a policy: see `OnError`.
        skipped: the number of them that were skipped; None if `failed` is None.
        letters: the number of them that became dead letters; None if `failed` is None.
        retries: the number of calls that were repeated; None if the operator repeats none.
        errors: how often each kind of error occurred at these records; of each tick, only the commonest are counted.
        example: the last of these errors that was noted, with its record, as text; None without one.
        busy: the seconds in which it processed records, or waited for systems outside, since this run started, the sum
            of its workers. On Spark, none of these numbers include a tick in which a worker changed and sent nothing.
        batches: the number of batches that it has received or, for a source, emitted.
        largest: the number of records in the largest batch of the last tick with any, or of sixteen short ones.
        calls: the greatest number of calls to a system outside that a worker had at a time in these ticks.
        polls: how often the parts of a source were asked for records; 0 for others.
        saturated_polls: how often one of them gave all that it was asked for, so that more input probably waits.
        workers_taken: how the records are spread over the workers.
        workers_busy: how the busy seconds are spread over the workers.
    """

    taken: int
    given: tuple[int, ...] = ()
    keys: int | None = None
    kind: Literal["source", "operator", "sink"] = "operator"
    failed: int | None = None
    skipped: int | None = None
    letters: int | None = None
    retries: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict, compare=False)
    example: str | None = field(default=None, compare=False)
    busy: float = field(default=0.0, compare=False)
    batches: int = field(default=0, compare=False)
    largest: int = field(default=0, compare=False)
    calls: int = field(default=0, compare=False)
    polls: int = field(default=0, compare=False)
    saturated_polls: int = field(default=0, compare=False)
    workers_taken: Spread = field(default=Spread(), compare=False)
    workers_busy: Spread = field(default=Spread(), compare=False)


def operators_of(
    program: Program,
    sums: RunSums,
    counts: Mapping[str, int],
    own: Mapping[str, Mapping[str, int]],
    sizes: Mapping[str, StateSize],
) -> dict[str, OperatorProgress]:
    """Return the progress of each operator, in the order of the program, without exchanges.

    Args:
        program: the program.
        sums: the sums of its workers' reports.
        counts: a copy of its counts.
        own: the counters and gauges of operators, by name.
        sizes: the sizes of states in the last snapshot.
    """
    nodes = [vertex.node for vertex in program.vertices if not vertex.node.starts_stage]
    return {node.name: _operator(node, sums, counts, own.get(node.name, {}), sizes.get(node.name)) for node in nodes}


def _operator(
    node: Node, sums: RunSums, counts: Mapping[str, int], own: Mapping[str, int], size: StateSize | None
) -> OperatorProgress:
    facts = sums.of(node.name)
    return OperatorProgress(
        counts.get(node.name, 0),
        tuple(counts.get(key, 0) for key in keys_of_given(node)),
        None if size is None else size.keys,
        "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "operator",
        failed=own.get(FAILED),
        skipped=own.get(SKIPPED),
        letters=own.get(LETTERS),
        retries=own.get("retried"),
        errors=sums.errors.get(node.name, {}),
        example=sums.examples.get(node.name),
        busy=facts.busy,
        batches=facts.batches,
        largest=facts.largest,
        calls=facts.calls,
        polls=facts.polls,
        saturated_polls=facts.saturated,
        workers_taken=_spread(facts.taken_by_worker),
        workers_busy=_spread(facts.busy_by_worker),
    )


def _spread(by_worker: Sequence[float]) -> Spread:
    each = tuple(by_worker) if len(by_worker) <= _MOST_WORKERS else ()
    return Spread(max(by_worker), sum(by_worker) / len(by_worker), each)
