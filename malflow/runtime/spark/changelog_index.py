"""The driver's index of the changelog: which entries exist, and which are obsolete."""

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
"""Bytes that are cheap to write again."""


@dataclass(slots=True)
class _Chain:
    """The entries of one stage of one worker.

    Attributes:
        ticks: the ticks of the entries that still exist.
        last: the tick of the last entry.
        whole: the tick of the last full entry.
        base_bytes, bytes: the size of the last full entry, and of the entries after it.
    """

    ticks: list[int] = field(default_factory=list)
    last: int = NEVER
    whole: int = NEVER
    base_bytes: int = 0
    bytes: int = 0

    @property
    def is_long(self) -> bool:
        """Whether rebuilding the worker would read too much of the changelog."""
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
    """The changelog entries of one generation of workers.

    Args:
        stages: the number of stages.
        workers: the number of workers.

    Attributes:
        workers: the number of workers.
        keys: the number of keys of each state, by worker and name.
    """

    def __init__(self, stages: int, workers: int) -> None:
        self._chains = [[_Chain() for _ in range(workers)] for _ in range(stages)]
        self.workers = workers
        self.keys: dict[tuple[int, str], int] = {}
        self._empty: list[tuple[int, int, int]] = []

    @property
    def last(self) -> list[list[int]]:
        """The tick of the last entry of each stage and worker."""
        return [[chain.last for chain in stage] for stage in self._chains]

    def add(self, stage: int, worker: int, tick: int, size: int, keys: Mapping[str, int], *, whole: bool) -> None:
        """Add an entry to the index."""
        self._chains[stage][worker].add(tick, size, whole=whole)
        self.keys.update({(worker, name): count for name, count in keys.items()})

    def note(self, reports: Iterable[StageReport]) -> None:
        """Add the entries that a tick's reports mention."""
        for it in reports:
            if it.bytes is not None:
                self.add(it.stage, it.worker, it.tick, it.bytes, it.keys, whole=it.whole)
            elif it.noted:
                self._empty.append((it.stage, it.worker, it.tick))

    @property
    def total_keys(self) -> dict[str, int]:
        """The number of keys of each state, over all workers."""
        totals: defaultdict[str, int] = defaultdict(int)
        for (_, name), count in self.keys.items():
            totals[name] += count
        return dict(totals)

    @property
    def long(self) -> list[tuple[int, int]]:
        """The stages and workers whose chains are so long that a full entry is due."""
        return [
            (stage, worker)
            for stage, chains in enumerate(self._chains)
            for worker, chain in enumerate(chains)
            if chain.is_long
        ]

    def since(self, tick: int) -> dict[int, dict[int, Sequence[int]]]:
        """Return the ticks of the entries after `tick`, at most back to the last full one, by worker and stage."""
        spans: dict[int, dict[int, Sequence[int]]] = {}
        for stage, chains in enumerate(self._chains):
            for worker, chain in enumerate(chains):
                first = max(tick + 1, chain.whole)
                if ticks := [at for at in chain.ticks if at >= first]:
                    spans.setdefault(worker, {})[stage] = ticks
        return spans

    def covers(self, tick: int) -> bool:
        """Whether the entries after `tick` hold all state."""
        return all(chain.whole > tick or chain.last == NEVER for stage in self._chains for chain in stage)

    def forget(self, reading: Container[int] = ()) -> list[tuple[int, int, int]]:
        """Drop entries before the last full one and those of empty ticks; return them as (stage, worker, tick).

        Neither a process that takes over a worker nor a later snapshot needs them.

        Args:
            reading: the ticks whose entries a snapshot is reading and which must stay.
        """
        dead, self._empty = self._empty, []
        for stage, chains in enumerate(self._chains):
            for worker, chain in enumerate(chains):
                gone = [at for at in chain.ticks if at < chain.whole and at not in reading]
                if gone:
                    dead += [(stage, worker, at) for at in gone]
                    chain.ticks = [at for at in chain.ticks if at >= chain.whole or at in reading]
        return dead
