"""The driver's index of the changelog: which entries exist, and which are obsolete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.spark.protocol import StageReport

__all__ = ["ChangelogIndex"]

_LONGEST = 62
"""Entries after the last full one from which some are merged, or a full one is written."""

_CHEAP = 64 << 20
"""Bytes that are cheap to write again."""

_SMALL = 1 << 20
"""Bytes of a full entry that is rewritten rather than merging the entries after it, whatever their size."""

_REWRITTEN = 1.0
"""The size of such an entry beside that of the entries after it."""


@dataclass(slots=True)
class _Chain:
    """The entries of one stage of one worker.

    Attributes:
        ticks: the ticks of the entries that still exist.
        replaced: the ticks of entries that a full or merged entry has replaced.
        sizes: the size of each entry after the last full one that is not replaced, in order.
        last: the tick of the last entry.
        whole: the tick of the last full entry.
        base_bytes: the size of the last full entry.
    """

    ticks: list[int] = field(default_factory=list)
    replaced: set[int] = field(default_factory=set)
    sizes: dict[int, int] = field(default_factory=dict)
    last: int = NEVER
    whole: int = NEVER
    base_bytes: int = 0

    @property
    def is_rewritten(self) -> bool:
        """Whether a full entry is due: a rebuilt worker would read too much, or a full entry is cheap."""
        size = sum(self.sizes.values())
        if size > self.base_bytes + _CHEAP:
            return True
        return len(self.sizes) >= _LONGEST and self.base_bytes <= _REWRITTEN * size + _SMALL

    @property
    def merged(self) -> int | None:
        """The tick after which all entries are to be merged; None if that is not due.

        At least half of the entries are merged, and earlier ones while they are no larger than those: so a byte is
        merged a number of times that is logarithmic in the number of entries, as in a log-structured merge-tree.
        """
        if len(self.sizes) < _LONGEST or self.is_rewritten:
            return None
        size = 0
        for count, (tick, of_entry) in enumerate(reversed(self.sizes.items())):
            if count >= _LONGEST // 2 and of_entry > size:
                return tick
            size += of_entry
        return max(self.whole, NEVER)

    def add(self, tick: int, size: int, *, whole: bool, merged: int | None = None) -> None:
        if whole:
            self.replaced.update(self.ticks)
            self.whole, self.base_bytes, self.sizes = tick, size, {}
        else:
            gone = [at for at in self.sizes if merged is not None and at > merged]
            self.replaced.update(gone)
            for at in gone:
                del self.sizes[at]
            self.sizes[tick] = size
        self.ticks.append(tick)
        self.last = tick


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

    def add(
        self,
        stage: int,
        worker: int,
        tick: int,
        size: int,
        keys: Mapping[str, int],
        *,
        whole: bool,
        merged: int | None = None,
    ) -> None:
        """Add an entry to the index.

        Args:
            stage: the stage.
            worker: the worker.
            tick: the tick of the entry.
            size: its bytes.
            keys: the number of keys of each state in it.
            whole: whether it is a full one.
            merged: the tick after which it replaces all entries; None if it replaces none.
        """
        self._chains[stage][worker].add(tick, size, whole=whole, merged=merged)
        self.keys.update({(worker, name): count for name, count in keys.items()})

    def note(self, reports: Iterable[StageReport]) -> None:
        """Add the entries that a tick's reports mention."""
        for it in reports:
            if it.bytes is not None:
                self.add(it.stage, it.worker, it.tick, it.bytes, it.keys, whole=it.whole, merged=it.merged)
            elif it.noted:
                self._empty.append((it.stage, it.worker, it.tick))

    @property
    def bytes(self) -> int:
        """About how many bytes of state there are: entries that others have changed count too."""
        return sum(chain.base_bytes + sum(chain.sizes.values()) for _, _, chain in self._all)

    @property
    def total_keys(self) -> dict[str, int]:
        """The number of keys of each state, over all workers."""
        totals: defaultdict[str, int] = defaultdict(int)
        for (_, name), count in self.keys.items():
            totals[name] += count
        return dict(totals)

    @property
    def rewrites(self) -> list[tuple[int, int]]:
        """The stages and workers of which a full entry is due."""
        return [(stage, worker) for stage, worker, chain in self._all if chain.is_rewritten]

    @property
    def merges(self) -> list[tuple[int, int, int]]:
        """The stages and workers with last entries to merge, each with the tick after which they are."""
        found = ((stage, worker, chain.merged) for stage, worker, chain in self._all)
        return [(stage, worker, after) for stage, worker, after in found if after is not None]

    @property
    def _all(self) -> Iterator[tuple[int, int, _Chain]]:
        for stage, chains in enumerate(self._chains):
            for worker, chain in enumerate(chains):
                yield stage, worker, chain

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
        """Drop entries that others have replaced, and entries of empty ticks; return them as (stage, worker, tick).

        Neither a process that takes over a worker nor a later snapshot needs them.

        Args:
            reading: the ticks whose entries a snapshot is reading and which must stay.
        """
        dead, self._empty = self._empty, []
        for stage, worker, chain in self._all:
            gone = {at for at in chain.replaced if at not in reading}
            if gone:
                dead += [(stage, worker, at) for at in sorted(gone)]
                chain.ticks = [at for at in chain.ticks if at not in gone]
                chain.replaced -= gone
        return dead
