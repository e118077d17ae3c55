"""Epochs (watermarks) of workers whose part of a source has finished, while other workers go on.

Such a worker would hold everybody back behind an exchange: its generator issues no epochs any more, though no records
come from it. So it is lifted to the least epoch of the workers that go on. The lift is part of the next tick, and of
the generator's state: if the source has more records in a later run, those that the lift has passed are late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from malflow.engine.idleness import feeds_of
from malflow.engine.plan import Program

__all__ = ["Reached", "feeding_sources", "lifts_of"]


class Reached(NamedTuple):
    """How far a generator of epochs has come on one worker.

    Attributes:
        epoch: its last epoch; None if it has issued none.
        is_finished: whether its source had finished on that worker before the tick.
    """

    epoch: Any
    is_finished: bool


def lifts_of(reports: Iterable[Mapping[str, Reached]]) -> dict[str, Any]:
    """Return the epochs to which generators are to be lifted where their source has finished.

    Args:
        reports: how far each generator has come, of each worker on which its source has parts.
    """
    by_name: dict[str, list[Reached]] = {}
    for report in reports:
        for name, reached in report.items():
            by_name.setdefault(name, []).append(reached)
    lifts: dict[str, Any] = {}
    for name, workers in by_name.items():
        going = [reached.epoch for reached in workers if not reached.is_finished]
        if not going or None in going:
            continue
        least = min(going)
        if any(it.is_finished and (it.epoch is None or it.epoch < least) for it in workers):
            lifts[name] = least
    return lifts


def feeding_sources(program: Program) -> dict[str, frozenset[str]]:
    """Return the sources that send to each generator of epochs without an exchange between.

    A source has not ended while a generator that it feeds is still to be lifted.
    """
    feeds = zip(program.vertices, feeds_of(program), strict=True)
    return {vertex.node.name: feed[0].local for vertex, feed in feeds if vertex.node.issues_epochs}
