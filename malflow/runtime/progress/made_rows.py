"""Operators that make Python objects of most records of a source of columns."""

from __future__ import annotations

import logging

from malflow.engine.plan import Program
from malflow.engine.ticks import Ticks
from malflow.nodes import SourceNode

__all__ = ["MadeRowsWatch"]

_log = logging.getLogger("malflow.runtime")

_LOOKS = 16
"""The number of ticks between two looks."""

_MANY = 100_000
"""The least number of rows to report. A tenth is made in a moment, ten times as many after most jobs have ended."""

_SHARE = 3
"""An operator is reported if it makes one in so many rows. Its count is older than the number of records: half of the
rows may be missing from it."""


class MadeRowsWatch:
    """Reports once which operator makes objects of most records, and how to avoid it.

    Args:
        program: the program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._is_reported = False

    def note(self, ticks: Ticks) -> None:
        """Look at the counts, every 16 ticks."""
        if self._is_reported or ticks.number % _LOOKS:
            return
        nodes = [vertex.node for vertex in self._program.vertices]
        made = {node.name: ticks.sums.of(node.name).made for node in nodes if not node.starts_stage}
        name = max(made, key=made.__getitem__, default="")
        if not name or made[name] < _MANY:
            return
        read = sum(ticks.sums.counts[node.name] for node in nodes if isinstance(node, SourceNode))
        if _SHARE * made[name] > read:
            self._is_reported = True
            _log.info(
                "operator '%s' has made Python objects of %s rows that came as columns; the name of a field in place "
                "of a function, .filter_batches() or .map_batches() avoids it",
                name,
                f"{made[name]:,}",
            )
