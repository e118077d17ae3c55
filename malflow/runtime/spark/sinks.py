"""Distributed sinks on Spark: the tasks that write shares of a transaction, and their pieces on the driver."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from malflow.diagnostics import operator_error
from malflow.engine.plan import Program
from malflow.errors import MalflowError
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.protocol import StageReport
from malflow.runtime.spark.state_tasks import results
from malflow.runtime.spark.tasks.stage_output import packed_pieces, read_pieces
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.runtime.transport.script_classes import install_classes
from malflow.runtime.transport.sink_proxies import driver_sinks
from malflow.sinks.distributed import DistributedSinkImpl, Share, is_distributed, new_token
from malflow.store.failpoint import failpoint

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = [
    "SealTask",
    "SinkPieces",
    "StoredShare",
]


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A share of a transaction with stored pieces.

    Attributes:
        sink: the name of the sink.
        transaction, number, of: as in `malflow.sinks.distributed.Share`.
        objects: the names of the objects with its pieces, in order.
    """

    sink: str
    transaction: int
    number: int
    of: int
    objects: Sequence[str]


@dataclass(frozen=True, slots=True)
class SealTask:
    """Spark task that writes and seals a share.

    Attributes:
        place: the place of the pieces.
        sinks: the sinks by name, pickled.
    """

    place: ScratchFolder
    sinks: bytes = field(repr=False)

    def __call__(self, share: StoredShare) -> Any:
        """Write a share, and return the result of its `seal`.

        Raises:
            RunFailed: if pieces are missing or damaged.
            OperatorError: if the sink fails.
        """
        install_classes(self.place.classes)
        impl = pickle.loads(self.sinks)[share.sink]  # noqa: S301 - the driver wrote it
        changelog = Changelog(self.place, 0)
        writer: Any = None
        try:
            writer = impl.open_writer(Share(share.transaction, share.number, share.of, new_token()))
            for name in share.objects:
                for piece in _read(changelog, name):
                    writer.write(piece)
            sealed = writer.seal()
            failpoint("share-sealed")
        except BaseException as error:
            if writer is not None:
                with suppress(Exception):  # the next run removes what is left
                    writer.discard()
            if isinstance(error, _Unreadable):
                raise error.cause from None
            if not isinstance(error, Exception):
                raise
            raise operator_error(share.sink, error, None, impl, about="snapshot") from error
        return sealed


class _Unreadable(Exception):
    """Pieces can't be read; the sink is not to blame."""

    def __init__(self, cause: MalflowError) -> None:
        super().__init__(cause)
        self.cause = cause


def _read(changelog: Changelog, name: str) -> list[Any]:
    try:
        return read_pieces(changelog, name)
    except MalflowError as error:
        raise _Unreadable(error) from error


class _Stored(NamedTuple):
    """An object with pieces.

    Attributes:
        generation, tick, worker: identify, with the sink, the attempt that wrote it.
        name, bytes: its name and size.
    """

    generation: int
    tick: int
    worker: int
    name: str
    bytes: int


class SinkPieces:
    """The pieces of a run's distributed sinks that no durable snapshot covers.

    Tasks store them, and their names are in the reports of a tick. The snapshot's job writes them, share by share; a
    share has the pieces of some workers of one generation, in the order of ticks.

    Args:
        program: the program.
        context: runs the jobs.
        place: the place of the pieces.
    """

    def __init__(self, program: Program, context: SparkContext, place: ScratchFolder) -> None:
        nodes = driver_sinks(program)
        self._names = [node.name for node in nodes]
        self._impls: dict[str, Any] = {node.name: node.sink.impl for node in nodes if is_distributed(node.sink.impl)}
        self._context = context
        self._place = place
        self._stored: dict[str, list[_Stored]] = {}
        self._last = 0, 0
        self._task: SealTask | None = None
        self._changelog: Changelog | None = None

    def note(self, generation: int, reports: Iterable[StageReport]) -> None:
        """Add the pieces in the reports of a tick."""
        for report in sorted(reports, key=lambda it: it.worker):
            self._last = generation, report.tick
            for sink, name, size in report.sinks:
                stored = _Stored(generation, report.tick, report.worker, name, size)
                self._stored.setdefault(self._names[sink], []).append(stored)

    def add(self, sink: str, piece: Any) -> None:
        """Store a piece that the driver has encoded, as one of the last tick's first worker.

        Raises:
            StoreError: if it can't be written.
        """
        generation, tick = self._last
        data = packed_pieces([piece])
        name = Changelog(self._place, generation).write_sink_pieces(0, 0, tick, data)
        self._stored.setdefault(sink, []).append(_Stored(generation, tick, 0, name, len(data)))

    def has(self, sink: str) -> bool:
        """Whether there are pieces of a sink."""
        return bool(self._stored.get(sink))

    def seal(self, transactions: Mapping[str, int]) -> dict[str, Sequence[Any]]:
        """Write the pieces of some sinks in a job; return the results of `seal`, by sink, without None.

        Raises:
            OperatorError: if a sink fails.
            RunFailed: if the job fails.
        """
        shares = self.shares(transactions)
        return by_sink(shares, results(self._context, self.task, shares, len(shares)) if shares else ())

    @property
    def task(self) -> SealTask:
        """The task that writes a share. The sinks are pickled at the first call, once they are fenced."""
        if self._task is None:
            self._task = SealTask(self._place, dumps_by_value(self._impls))
        return self._task

    def shares(self, transactions: Mapping[str, int]) -> list[StoredShare]:
        """Divide the pieces of transactions into shares; the pieces of a worker of one generation are in one."""
        shares = []
        for sink, transaction in transactions.items():
            groups = self._groups(sink)
            for number, objects in enumerate(groups):
                shares.append(StoredShare(sink, transaction, number, len(groups), objects))
        return shares

    def drop(self, sink: str) -> None:
        """Drop the pieces of a sink."""
        self._discard(self._stored.pop(sink, ()))

    def forget(self, tick: int) -> None:
        """Remove the pieces up to a tick. A durable snapshot covers that tick."""
        for sink, stored in self._stored.items():
            self._discard(it for it in stored if it.tick <= tick)
            self._stored[sink] = [it for it in stored if it.tick > tick]

    def _groups(self, sink: str) -> list[list[str]]:
        """Return the objects of each share, the earlier generations first, and in each the workers with most bytes."""
        stored = self._stored.get(sink, [])
        most = getattr(self._impls[sink], "share_bytes", DistributedSinkImpl.share_bytes)
        groups: list[list[str]] = []
        for generation in sorted({it.generation for it in stored}):
            mine = [it for it in stored if it.generation == generation]
            sizes: Counter[int] = Counter()
            for it in mine:
                sizes[it.worker] += it.bytes
            count = min(len(sizes), max(1, -(-sizes.total() // most)))
            filled = [0] * count
            share_of = {}
            for worker, size in sizes.most_common():
                share_of[worker] = least = filled.index(min(filled))
                filled[least] += size
            groups += [[it.name for it in mine if share_of[it.worker] == share] for share in range(count)]
        return groups

    def _discard(self, stored: Iterable[_Stored]) -> None:
        if names := [it.name for it in stored]:
            self._changelog = self._changelog or Changelog(self._place, 0)
            self._changelog.discard((), names)

    def close(self) -> None:
        """Cancel pending removals; what remains is removed with the folder."""
        if self._changelog is not None:
            self._changelog.close()


def by_sink(shares: Sequence[StoredShare], sealed: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Group the results of `seal` by sink, in the order of shares; every share must have one."""
    found: dict[str, list[Any]] = {}
    for share, result in zip(shares, sealed, strict=True):
        found.setdefault(share.sink, []).extend([] if result is None else [result])
    return dict(found)
