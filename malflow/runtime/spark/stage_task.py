"""The Spark task that runs one stage of one worker on an executor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from struct import Struct

from malflow.errors import MalflowError, OperatorError, own_process
from malflow.runtime.process_state import rarer_collections
from malflow.runtime.spark.protocol import COMMAND, RunSpec, TickCommand
from malflow.runtime.spark.quiet_process import end_quietly
from malflow.runtime.spark.shuffle import Row, RowKind, frames_of, read_frames
from malflow.runtime.spark.stage_attempt import StageAttempt
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import NotPicklable

__all__ = ["StageTask"]

_NUMBER = Struct(">q")
"""A worker's number, in the form in which Spark's Java reads the keys of pairs."""


class StageTask:
    """A stage of a program as a function that Spark calls with the frames for one worker.

    It yields the frames for the next stage's workers, each after the number of the worker; frames of the last stage are
    for the driver and have no number.

    Args:
        spec: the facts about the run.
        stage: the stage.
        is_last: whether it is the last one.
    """

    def __init__(self, spec: RunSpec, stage: int, *, is_last: bool) -> None:
        self._spec = spec
        self._stage = stage
        self._is_last = is_last

    def __call__(self, worker: int, frames: Iterator[bytes]) -> Iterator[bytes]:
        """Run the stage for one tick."""
        end_quietly()
        rows = list(read_frames(frames)) if self._stage else _drained(frames)
        for target, frame in frames_of(_run(self._spec, self._stage, worker, rows)):
            if not self._is_last:
                yield _NUMBER.pack(target)
            yield frame


def _run(spec: RunSpec, stage: int, worker: int, rows: list[Row]) -> Iterator[Row]:
    from pyspark import TaskContext  # noqa: PLC0415 - only the extra has it

    context = TaskContext.get()
    command = TickCommand.loads(context.getLocalProperty(COMMAND))
    own_process()
    try:
        with rarer_collections(), spec.surroundings.applied():
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


def _drained(frames: Iterator[bytes]) -> list[Row]:
    """Consume the input of the first stage. It carries no data: Spark ends a process that leaves some."""
    for _ in frames:
        pass
    return []
