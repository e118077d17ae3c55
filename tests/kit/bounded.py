"""A scripted source with parts that all end, which a run hands out one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from malflow.testing import ScriptedSource

__all__ = ["BoundedSource"]


class BoundedSource(ScriptedSource):
    """A scripted source with parts that end; the size of a part is the length of its script.

    Args:
        script: the items by part.
        knows_sizes: whether it tells the sizes of its parts.
    """

    bounded = True

    def __init__(self, script: Mapping[Any, Iterable[Any]], *, knows_sizes: bool = True) -> None:
        super().__init__(script)
        self._knows_sizes = knows_sizes

    def part_sizes(self, parts: Sequence[Any]) -> dict[Any, int]:
        return {part: len(self._scripts[part]) for part in parts} if self._knows_sizes else {}
