"""Anchors: the tasks of a worker run on the executor that holds its state."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from malflow.runtime.spark.changelog.leftovers import shuffle_of
from malflow.runtime.spark.session.java import spark_message

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["Anchors", "executors", "places_after"]

_log = logging.getLogger("malflow.runtime")

_MOVED = 10
"""One worker in ten may move in a tick; those of lost executors move at once."""


# Invariant: an anchor decides only where a task runs. Without any, a run is slower, and its results are the same.
#
# Example: four workers on the executors 1 and 2, at 1 2 1 2.
#   first tick        each block is cached on the executor that the list names for its worker
#   later ticks       Spark runs the tasks of worker 0 on executor 1, where its block is, and its state
#   executor 1 ends   the workers 0 and 2 move: their blocks are placed on other executors
class Anchors:
    """Keeps the tasks of each worker on one executor, and exchanges frames between them.

    Spark prefers to run a task on the executor that has a cached block of its input. So the workers of a cluster have a
    tiny cached block each, in an RDD that is partitioned as the exchanges are. The first stage reads it beside a list
    that names an executor for each worker, and so places it there. Each exchange subtracts it, by a key that no frame
    has, and so finds it. A worker that loses its block runs on any executor. That executor then holds the block.

    On one executor there is nothing to keep, and exchanges are plain ones.

    Args:
        context: the Spark context.
        parallelism: the number of workers.

    Attributes:
        input: the input of the first stage (no data).
    """

    def __init__(self, context: SparkContext, parallelism: int) -> None:
        self._context: Any = context
        self._parallelism = parallelism
        self._jvm: Any = self._context._jvm  # noqa: SLF001 - as PySpark's own partitionBy does
        self._scala: Any = self._context._jsc.sc()  # noqa: SLF001
        self._partitioner = self._jvm.PythonPartitioner(parallelism, 0)
        self._anchored = not _is_one_process(context)
        self._known = ""
        self._places: Sequence[str] = ()
        self._blocks: Any = None
        self.input: RDD[bytes] = context.parallelize([], parallelism)

    def refresh(self) -> None:
        """Place workers on executors if some of those have come or gone; of the others, few move at a time."""
        if not self._anchored:
            return
        try:
            registered: str = self._scala.getExecutorIds().mkString(",")
            leaving = self._leaving(registered)
            known = ",".join(it for it in registered.split(",") if it not in leaving)
            if known != self._known:
                self._place(known, leaving)
        except Exception as error:  # noqa: BLE001 - a run without it is slower, and right
            _log.warning(
                "Spark can't keep tasks where their state is: %s; each executor may come to hold the state of all "
                "workers",
                spark_message(error),
            )
            self._anchored = False

    def _leaving(self, registered: str) -> Collection[str]:
        """Return the decommissioned executors. They get no more tasks; Spark would wait for them in vain."""
        try:
            backend = self._scala.schedulerBackend()
            if backend.executorsPendingDecommission().isEmpty():
                return ()
            return {it for it in registered.split(",") if not backend.isExecutorActive(it)}
        except Exception:  # noqa: BLE001 - another kind of cluster, whose executors are left as they are
            return ()

    def _place(self, known: str, leaving: Collection[str] = ()) -> None:
        registered, hosts = known.split(",") if known else [], self._hosts()
        alive = [executor for executor in registered if executor in hosts]
        places = places_after(self._places, alive, self._parallelism)
        if places != self._places and (len(alive) > 1 or not {*leaving}.isdisjoint(self._places)):
            self._anchor([f"executor_{hosts[place]}_{place}" for place in places])
            self._places = places
        if alive == registered and places == places_after(places, alive, self._parallelism):
            self._known = known

    def _hosts(self) -> dict[str, str]:
        """Return the host of each executor; Spark may learn it a little later than the executor."""
        found = self._scala.statusStore().executorList(True)
        summaries = [found.apply(at) for at in range(found.size())]
        return {it.id(): it.hostPort().rpartition(":")[0] for it in summaries}

    def _anchor(self, preferred: Sequence[str]) -> None:
        """Replace the blocks, each with a preferred executor, where the next tick caches it."""
        from pyspark import StorageLevel  # noqa: PLC0415 - only the extra has it

        before, rdds = self._blocks, self._context
        one = rdds.parallelize([], 1).mapPartitionsWithIndex(_Marks(self._parallelism))
        level = rdds._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK)  # noqa: SLF001
        blocks = self._pairs(one).partitionBy(self._partitioner).persist(level).setName("malflow anchors")
        cached = self._jvm.PythonRDD.valueOfPair(blocks)
        placed = self._scala.makeRDD(self._seq([self._with(it) for it in preferred]), cached.classTag()).toJavaRDD()
        self.input = self._frames(placed.zip(cached).values())
        self._blocks = blocks
        if before is not None:
            before.unpersist(False)

    def _with(self, location: str) -> Any:
        return self._jvm.scala.Tuple2(bytearray(), self._seq([location]))

    def _seq(self, items: Sequence[Any]) -> Any:
        them = self._jvm.java.util.ArrayList()
        for item in items:
            them.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(them).toSeq()

    def exchange(self, sent: Any) -> tuple[RDD[bytes], int]:
        """Return the frames that a stage sends, by receiving worker, and the id of their shuffle.

        Args:
            sent: PySpark's RDD of workers' numbers, each before a frame.
        """
        pairs = self._pairs(sent)
        if self._blocks is None:
            received = pairs.partitionBy(self._partitioner)
        else:
            received = pairs.subtractByKey(self._blocks, self._partitioner)
        return self._frames(self._jvm.PythonRDD.valueOfPair(received)), shuffle_of(received)

    def _pairs(self, sent: Any) -> Any:
        sent._bypass_serializer = True  # noqa: SLF001
        return self._jvm.PairwiseRDD(sent._jrdd.rdd()).asJavaPairRDD()  # noqa: SLF001

    def _frames(self, frames: Any) -> RDD[bytes]:
        from pyspark import RDD  # noqa: PLC0415 - only the extra has it
        from pyspark.serializers import NoOpSerializer  # noqa: PLC0415 - only the extra has it

        return RDD(frames, self._context, NoOpSerializer())

    def close(self) -> None:
        """Release the cached blocks."""
        with suppress(Exception):  # Java may be gone
            if self._blocks is not None:
                self._blocks.unpersist(False)


class _Marks:
    """Yields a pair for each worker, with a key that no frame has, and no contents."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism

    def __call__(self, _: int, nothing: Any) -> Any:
        yield from nothing
        for worker in range(self._parallelism):
            yield (worker + self._parallelism).to_bytes(8, "big")
            yield b""


def places_after(places: Sequence[str], alive: Sequence[str], parallelism: int) -> list[str]:
    """Return an executor for each worker: as before, but workers of lost ones move, and some to those with few.

    Args:
        places: the executor of each worker until now; empty before the first placement.
        alive: the executors.
        parallelism: the number of workers.

    >>> places_after([], ["1", "2"], 4)
    ['1', '2', '1', '2']
    >>> places_after(["1", "2", "1", "2"], ["2", "3"], 4)
    ['3', '2', '3', '2']
    >>> places_after(["1", "1", "1", "1"], ["1", "2"], 4)
    ['2', '1', '1', '1']
    """
    if not alive:
        return [*places]
    held = Counter(dict.fromkeys(alive, 0))
    held.update(place for place in places if place in held)
    after = [place if place in held else "" for place in places] or [""] * parallelism
    for worker, place in enumerate(after):
        if not place:
            after[worker] = least = min(alive, key=held.__getitem__)
            held[least] += 1
    for _ in range(max(1, parallelism // _MOVED) if places else 0):
        most, least = max(alive, key=held.__getitem__), min(alive, key=held.__getitem__)
        if held[most] - held[least] > 1:
            after[after.index(most)] = least
            held.update({most: -1, least: 1})
    return after


def executors(context: SparkContext) -> int:
    """Return the number of executors; 1 where the driver is the only one."""
    scala: Any = context._jsc  # noqa: SLF001 - PySpark does not expose it
    holders: int = scala.sc().getExecutorMemoryStatus().size()
    return max(1, holders - 1)  # the driver is one of them


def _is_one_process(context: SparkContext) -> bool:
    """Whether tasks run in the driver's own Java."""
    master = str(context.master)
    return master.startswith("local") and not master.startswith("local-cluster")
