"""Jobs of Spark whose tasks return results, with the errors of malflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from malflow.errors import MalflowError, RunFailed
from malflow.runtime.process_state import rarer_collections
from malflow.runtime.spark.quiet_process import end_quietly
from malflow.runtime.spark.spark_errors import spark_message
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["results", "task_count"]

S = TypeVar("S")
T = TypeVar("T")


def task_count(context: SparkContext, items: int, *, alone: bool) -> int:
    """Return the number of tasks for some items: `alone`, the job may use all slots; otherwise half are for ticks."""
    return items if alone else min(items, max(1, context.defaultParallelism // 2))


def results(context: SparkContext, task: Callable[[S], T], items: Sequence[S], tasks: int) -> list[T]:
    """Call a task for each item in a Spark job, and return the results in the order of the items.

    Items that follow each other are in different tasks, if possible.

    Raises:
        MalflowError: the first error that a task raised.
        RunFailed: if the job failed.
    """
    order = [at for first in range(tasks) for at in range(first, len(items), tasks)]
    try:
        done = context.parallelize([items[at] for at in order], tasks).map(_reported(task)).collect()
    except Exception as error:
        raise RunFailed(f"Spark could not write a snapshot: {spark_message(error)}") from error
    failure = next((failure for _, failure in done if failure is not None), None)
    if failure is not None:
        raise loaded_error(failure)
    by_item = dict(zip(order, (result for result, _ in done), strict=True))
    return [by_item[at] for at in range(len(items))]


def _reported(task: Callable[[S], T]) -> Callable[[S], tuple[Any, bytes | None]]:
    def write(item: S) -> tuple[Any, bytes | None]:
        end_quietly()
        try:
            with rarer_collections():
                return task(item), None
        except MalflowError as error:
            return None, dumps_error(error)

    return write
