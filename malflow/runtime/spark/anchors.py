"""Anchors: the tasks of a worker run on the executor that holds its state."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from malflow.runtime.spark.spark_errors import spark_message

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["Anchors", "executors"]

_log = logging.getLogger("malflow.runtime")

_UNEVEN = 1.5
"""The share of the busiest executor, beside an equal one, from which workers move."""

_MOVED = 10
"""At most one worker in so many moves in a tick."""


class Anchors:
    """Keeps the tasks of each worker on one executor, and exchanges frames between them.

    Spark prefers to run a task on the executor that has a cached block of its input. So the workers of a cluster have a
    small cached block each, in an RDD that is partitioned as the exchanges are: the tasks of the first stage read it,
    and each exchange subtracts it, by a key that no frame has. If an executor is lost, Spark makes its blocks again
    where it runs their tasks next, and these workers move with them.

    On one executor there is nothing to keep, and exchanges are plain ones.

    Args:
        context: the Spark context.
        parallelism: the number of workers.
    """

    def __init__(self, context: SparkContext, parallelism: int) -> None:
        self._context: Any = context
        self._parallelism = parallelism
        self._partitioner: Any = self._context._jvm.PythonPartitioner(parallelism, 0)  # noqa: SLF001 - as PySpark's own partitionBy does
        self._executors = executors(context)
        self._blocks: Any = self._made() if self._executors > 1 else None
        self._input: RDD[Any] = self._first()

    @property
    def input(self) -> RDD[bytes]:
        """The input of the first stage, which carries no data."""
        return self._input

    def exchange(self, sent: Any) -> tuple[RDD[bytes], int]:
        """Return the frames that a stage sends, by receiving worker, and the id of their shuffle.

        Args:
            sent: PySpark's RDD of workers' numbers, each before a frame.
        """
        from pyspark import RDD  # noqa: PLC0415 - only the extra has it
        from pyspark.serializers import NoOpSerializer  # noqa: PLC0415 - only the extra has it

        pairs = self._pairs(sent)
        if self._blocks is None:
            received = pairs.partitionBy(self._partitioner)
        else:
            received = pairs.subtractByKey(self._blocks, self._partitioner)
        shuffle: int = received.rdd().dependencies().head().shuffleId()
        return RDD(self._context._jvm.PythonRDD.valueOfPair(received), self._context, NoOpSerializer()), shuffle  # noqa: SLF001

    def _pairs(self, sent: Any) -> Any:
        return self._context._jvm.PairwiseRDD(sent._jrdd.rdd()).asJavaPairRDD()  # noqa: SLF001

    def _first(self) -> RDD[Any]:
        from pyspark import RDD  # noqa: PLC0415 - only the extra has it
        from pyspark.serializers import NoOpSerializer  # noqa: PLC0415 - only the extra has it

        if self._blocks is None:
            nothing: RDD[Any] = self._context.parallelize([], self._parallelism)
            return nothing
        return RDD(self._context._jvm.PythonRDD.valueOfPair(self._blocks), self._context, NoOpSerializer())  # noqa: SLF001

    def _made(self) -> Any:
        """Return the cached blocks; None if this PySpark lacks what they need."""
        from pyspark import StorageLevel  # noqa: PLC0415 - only the extra has it
        from pyspark.serializers import pack_long  # noqa: PLC0415 - only the extra has it

        parallelism = self._parallelism

        def marks(_: int, nothing: Iterator[Any]) -> Iterator[bytes]:
            yield from nothing
            for worker in range(parallelism):  # to each from each, so that none is preferred for where it was made
                yield pack_long(worker + parallelism)
                yield b""

        try:
            made: Any = self._context.parallelize([], self._executors).mapPartitionsWithIndex(marks, True)
            made._bypass_serializer = True  # noqa: SLF001
            level = self._context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK)  # noqa: SLF001
            blocks = self._pairs(made).partitionBy(self._partitioner).persist(level)
            blocks.setName("malflow anchors")
        except Exception as error:  # noqa: BLE001 - the run is slower, and right
            _log.warning("tasks can't be kept where their state is: %s", spark_message(error))
            return None
        return blocks

    def balance(self, places: Mapping[int, str]) -> list[int]:
        """Adapt to the executors that have come and gone.

        If the busiest executor has many more workers than others, release some of them, so that Spark runs them
        elsewhere.

        Args:
            places: the executor on which each worker ran last.

        Returns:
            The released workers.
        """
        count = executors(self._context)
        if self._blocks is None and count > 1 >= self._executors:
            self._executors = count
            self._blocks = self._made()
            self._input = self._first()
        if self._blocks is None or not places:
            return []
        fair = -(-self._parallelism // count)
        busiest, held = Counter(places.values()).most_common(1)[0]
        if held <= max(fair, _UNEVEN * self._parallelism / count):
            return []
        most = max(1, self._parallelism // _MOVED)
        moved = [worker for worker, place in places.items() if place == busiest][: min(most, held - fair)]
        master = self._context._jsc.sc().env().blockManager().master()  # noqa: SLF001
        block, rdd = self._context._jvm.org.apache.spark.storage.RDDBlockId, self._blocks.id()  # noqa: SLF001
        for worker in moved:
            master.removeBlock(block(rdd, worker))
        return moved

    def close(self) -> None:
        """Release the cached blocks."""
        if self._blocks is not None:
            self._blocks.unpersist(False)


def executors(context: SparkContext) -> int:
    """Return the number of executors of a cluster; 1 on one machine's own."""
    scala: Any = context._jsc  # noqa: SLF001 - PySpark does not expose it
    holders: int = scala.sc().getExecutorMemoryStatus().size()
    return max(1, holders - 1)  # the driver is one of them
