"""What a process holds of its runs from tick to tick, and how it lets go of it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from malflow.errors import MalflowError, release_all
from malflow.operators.endpoints import StatelessSinkWriter
from malflow.plan import Program
from malflow.runtime.spark.failures import dumps_error
from malflow.runtime.spark.job import Job
from malflow.runtime.spark.scratch import Scratch
from malflow.runtime.spark.script import install_classes
from malflow.runtime.spark.wire import FAILURE, Row, write_rows
from malflow.worker import Worker, act_for

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HELD", "SINKS", "Held", "ReleaseTask", "load"]


@dataclass(slots=True)
class Held:
    """A worker between two ticks.

    Attributes:
        worker: the worker.
        tick: the tick at whose end it stands.
        last: the tick of the last change that is in its state.
    """

    worker: Worker
    tick: int
    last: int


HELD: dict[tuple[str, int, int, int], Held] = {}
"""The workers, by run, generation, stage and number."""

SINKS: dict[str, dict[int, StatelessSinkWriter]] = {}
"""The sinks that are shared by all workers of this process, for each run."""

_LOADED: dict[tuple[str, int], tuple[Program, Mapping[str, Any], Scratch]] = {}


class ReleaseTask:
    """Has a process let go of what it holds of a run, as a function that Spark calls; its rows are what went wrong."""

    def __init__(self, run: str) -> None:
        self._run = run

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Close sinks, suspend readers, forget states."""
        for _ in batches:
            pass
        return write_rows(Row(0, FAILURE, 0, error) for error in _release(self._run))


def _release(run: str) -> list[bytes]:
    names = [name for name in HELD if name[0] == run]
    workers = [HELD.pop(name).worker for name in names]
    for key in [key for key in _LOADED if key[0] == run]:
        del _LOADED[key]
    sinks = SINKS.pop(run, {}).values()
    try:
        release_all(
            (
                *(worker.release for worker in workers),
                *(partial(act_for, sink, BaseException, sink.close) for sink in sinks),
            )
        )
    except MalflowError as error:
        return [dumps_error(error)]
    return []


def load(job: Job) -> tuple[Program, Mapping[str, Any], Scratch]:
    """Unpack the program, once a process and generation; let go of earlier runs."""
    key = (job.scratch.run, job.generation)
    if key not in _LOADED:
        for name in [name for name in HELD if name[:2] != key]:
            with suppress(Exception):  # of a run that is over
                HELD.pop(name).worker.release()
        for run in [run for run in SINKS if run != key[0]]:
            for sink in SINKS.pop(run).values():
                with suppress(Exception):
                    sink.close()
        _LOADED.clear()
        install_classes(job.scratch.classes)
        program, parts = pickle.loads(job.payload)  # noqa: S301 - the driver wrote it
        _LOADED[key] = (program, parts, Scratch(job.scratch, job.generation))
    return _LOADED[key]
