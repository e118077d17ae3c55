"""The Spark task that runs one stage of one worker on an executor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from malflow.errors import MalflowError, OperatorError
from malflow.runtime.garbage import rarer_collections
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand
from malflow.runtime.spark.shuffle import Row, RowKind, read_rows, write_rows
from malflow.runtime.spark.stage_attempt import StageAttempt
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import NotPicklable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StageTask"]


class StageTask:
    """A stage of a program as a function that Spark calls with the rows of one worker."""

    def __init__(self, spec: RunSpec, stage: int) -> None:
        self._spec = spec
        self._stage = stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the stage for one tick."""
        return write_rows(_run(self._spec, self._stage, batches))


def _run(spec: RunSpec, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    from pyspark import TaskContext  # noqa: PLC0415 - only the extra has it

    context = TaskContext.get()
    command = TickCommand.loads(context.getLocalProperty(COMMAND))
    worker = context.partitionId()
    rows = list(_drained(batches)) if stage == 0 else list(read_rows(batches))
    try:
        with rarer_collections():
            attempt = StageAttempt(spec, stage, worker, command)
            _leave_modules_out()
            yield from attempt.take(rows)
    except MalflowError as error:
        lasts = isinstance(error, NotPicklable) or not isinstance(error, OperatorError)
        if not lasts and context.attemptNumber() + 1 < spec.attempts:
            raise
        yield Row(worker, RowKind.FAILURE, 0, worker, dumps_error(error))


@cache
def _leave_modules_out() -> None:
    """Exclude everything imported so far from later garbage collections.

    Spark collects after each task. That would walk all objects of pandas, Arrow and the program's modules, and take
    longer than the task of a small tick.
    """
    gc.collect()
    gc.freeze()


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Consume the rows that trigger a tick, which carry no data."""
    for _ in batches:
        pass
    return iter(())
