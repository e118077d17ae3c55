"""A tick as a Spark job: the stages of a program as tasks on RDDs, with an exchange of frames between them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from malflow.engine.plan import Program
from malflow.runtime.spark.anchors import Anchors
from malflow.runtime.spark.changelog.leftovers import remove_shuffles
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand
from malflow.runtime.spark.tasks.records import Row, read_frames
from malflow.runtime.spark.tasks.stage import StageTask

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["TickJobs"]

_log = logging.getLogger("malflow.runtime")

_SLOWEST, _FASTEST = 1_000, 3_000
"""Tasks that Spark's scheduler starts in a second."""


class TickJobs:
    """Runs the ticks of one generation of workers, a Spark job each.

    Args:
        context: the Spark context.
        spec: the facts about the generation.
        program: the program.
        name: the name of the run, for Spark's pages.
    """

    def __init__(self, context: SparkContext, spec: RunSpec, program: Program, name: str) -> None:
        self._context: Any = context
        self._name = name
        last = len(program.stages) - 1
        self._stages = [StageTask(spec, stage, is_last=stage == last) for stage in range(last + 1)]
        self._anchors = Anchors(context, spec.parallelism)
        tasks = spec.parallelism * len(self._stages)
        if tasks > _SLOWEST:
            _log.warning(
                "run '%s' starts %s tasks in each tick (%s workers, %s stages); Spark starts %s to %s in a second, "
                "so a tick takes at least %.1f to %.1f seconds; with fewer workers it is shorter",
                *(name, f"{tasks:,}", f"{spec.parallelism:,}", len(self._stages), f"{_SLOWEST:,}", f"{_FASTEST:,}"),
                *(tasks / _FASTEST, tasks / _SLOWEST),
            )

    def run(self, command: TickCommand) -> list[Row]:
        """Run a tick, in the thread that calls; return the rows for the driver.

        Raises:
            Exception: Spark's or py4j's, if the job failed.
        """
        self._context.setLocalProperty(COMMAND, command.dumps())
        self._context.setJobDescription(f"malflow {self._name}, tick {command.tick}")
        self._anchors.refresh()
        shuffles: list[int] = []
        frames: RDD[bytes] = self._anchors.input
        try:
            *earlier, last = self._stages
            for stage in earlier:
                frames, shuffle = self._anchors.exchange(frames.mapPartitionsWithIndex(stage))
                shuffles.append(shuffle)
            sent: Any = frames.mapPartitionsWithIndex(last)
            sent._bypass_serializer = True  # noqa: SLF001 - as PySpark's own partitionBy does
            return [*read_frames(sent.collect())]
        finally:
            remove_shuffles(self._context, shuffles)

    def close(self) -> None:
        """Release what the jobs hold in Spark."""
        self._anchors.close()
