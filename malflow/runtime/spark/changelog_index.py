"""What the driver knows of the changes in the scratch folder: which there are, and which are needed no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from malflow.runtime.spark.changelog import NEVER
from malflow.runtime.spark.protocol import StageReport

__all__ = ["ChangelogIndex"]

_LONGEST = 256
_MOST_LONGEST = 4
_CHEAP = 64 << 20
"""Bytes that are soon written again."""


@dataclass(slots=True)
class _Chain:
    """The changes of one stage of one worker.

    Attributes:
        ticks: those that are still there.
        last: the tick of the last one.
        whole: the tick of the last one that is whole.
        base_bytes, bytes: the size of that one, and of those after it.
    """

    ticks: list[int] = field(default_factory=list)
    last: int = NEVER
    whole: int = NEVER
    base_bytes: int = 0
    bytes: int = 0

    @property
    def is_long(self) -> bool:
        """Whether a process that begins with nothing would have to read more than is good."""
        longest = _LONGEST * min(_MOST_LONGEST, 1 + self.base_bytes // _CHEAP)
        return self.bytes > self.base_bytes + _CHEAP or sum(tick > self.whole for tick in self.ticks) >= longest

    def add(self, tick: int, size: int, *, whole: bool) -> None:
        self.ticks.append(tick)
        self.last = tick
        if whole:
            self.whole, self.base_bytes, self.bytes = tick, size, 0
        else:
            self.bytes += size


class ChangelogIndex:
    """The changes of one generation of workers, in their order.

    Args:
        stages: how many stages there are.
        workers: how many workers.

    Attributes:
        workers: how many workers.
        keys: how many keys each state has, by worker and name.
    """

    def __init__(self, stages: int, workers: int) -> None:
        self._chains = [[_Chain() for _ in range(workers)] for _ in range(stages)]
        self.workers = workers
        self.keys: dict[tuple[int, str], int] = {}
        self._empty: list[tuple[int, int, int]] = []

    @property
    def last(self) -> list[list[int]]:
        """Give the tick of the last change of each stage and worker."""
        return [[chain.last for chain in stage] for stage in self._chains]

    def add(self, stage: int, worker: int, tick: int, size: int, keys: Mapping[str, int], *, whole: bool) -> None:
        """Note a change."""
        self._chains[stage][worker].add(tick, size, whole=whole)
        self.keys.update({(worker, name): count for name, count in keys.items()})

    def note(self, reports: Iterable[StageReport]) -> None:
        """Note what a tick has changed."""
        for it in reports:
            if it.bytes is not None:
                self.add(it.stage, it.worker, it.tick, it.bytes, it.keys, whole=it.whole)
            elif it.noted:
                self._empty.append((it.stage, it.worker, it.tick))

    @property
    def total_keys(self) -> dict[str, int]:
        """Tell how many keys each state has."""
        totals: defaultdict[str, int] = defaultdict(int)
        for (_, name), count in self.keys.items():
            totals[name] += count
        return dict(totals)

    @property
    def long(self) -> list[tuple[int, int]]:
        """The stages and workers whose states are to be written whole again, as there are too many changes to read."""
        return [
            (stage, worker)
            for stage, chains in enumerate(self._chains)
            for worker, chain in enumerate(chains)
            if chain.is_long
        ]

    def since(self, tick: int) -> dict[int, dict[int, Sequence[int]]]:
        """Give the ticks of the changes after one, from the last whole one on: for each worker and stage."""
        spans: dict[int, dict[int, Sequence[int]]] = {}
        for stage, chains in enumerate(self._chains):
            for worker, chain in enumerate(chains):
                first = max(tick + 1, chain.whole)
                if ticks := [at for at in chain.ticks if at >= first]:
                    spans.setdefault(worker, {})[stage] = ticks
        return spans

    def covers(self, tick: int) -> bool:
        """Tell whether the changes after a tick are all there is."""
        return all(chain.whole > tick or chain.last == NEVER for stage in self._chains for chain in stage)

    def forget(self, reading: Container[int] = ()) -> list[tuple[int, int, int]]:
        """Return, and forget, the changes before the last whole one, and notes of empty ticks: stage, worker, tick.

        Neither a process that takes over a worker nor a snapshot that begins later needs them.

        Args:
            reading: the ticks whose changes a snapshot is being made of; they stay.
        """
        dead, self._empty = self._empty, []
        for stage, chains in enumerate(self._chains):
            for worker, chain in enumerate(chains):
                gone = [at for at in chain.ticks if at < chain.whole and at not in reading]
                if gone:
                    dead += [(stage, worker, at) for at in gone]
                    chain.ticks = [at for at in chain.ticks if at >= chain.whole or at in reading]
        return dead
