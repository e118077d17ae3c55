"""The pickle of a program for the processes of Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from malflow.engine.part_placement import Parts
from malflow.engine.plan import Program
from malflow.errors import GraphError, short_repr
from malflow.runtime.spark.driver_sinks import with_sink_proxies

__all__ = ["check_sources", "check_store", "payload"]


def check_sources(program: Program) -> None:
    """Check that every source can be read in any process, since a worker may change process in each tick.

    Raises:
        GraphError: naming a source that can't be.
    """
    for vertex in program.vertices:
        source = program.sources.get(vertex.node.name)
        if source is not None and getattr(source.source.impl, "in_one_process", False):
            raise GraphError(
                f"source '{source.name}' can't run on Spark, where readers move between processes: "
                f"{source.source.impl!r} must stay in one process; run it with SingleThreadRuntime, or put a queue "
                "between them",
                operator=source.name,
                location=vertex.location,
            )


def check_store(store: object) -> None:
    """Check that a store of the user's can be pickled, for the tasks that write data files.

    Raises:
        GraphError: if it can't.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    try:
        cloudpickle.dumps(store, 5)
    except Exception as error:
        raise GraphError(
            f"store {short_repr(store)} can't run on Spark: {type(error).__name__}: {error}; it is pickled to tasks "
            "that write data files: leave connections out with __getstate__, and open them when they are first used"
        ) from error


def payload(program: Program, parts: Parts, discovered: Mapping[str, Collection[Any]]) -> bytes:
    """Pickle the program with the parts of its sources, including those that appeared after the job's first start.

    Functions and classes of the script are pickled by value; those of modules by name, so the modules must be installed
    on the executors.

    Raises:
        GraphError: naming the operator that can't be pickled.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    try:
        data: bytes = cloudpickle.dumps((with_sink_proxies(program), parts, discovered), 5)
    except Exception as error:
        raise _refused(program, error) from error
    return data


def _refused(program: Program, error: Exception) -> GraphError:
    """Return an error that names the operator that can't be pickled."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    for vertex in with_sink_proxies(program).vertices:
        try:
            cloudpickle.dumps(vertex.node, 5)
        except Exception as why:  # noqa: BLE001 - classes of the user may raise any
            return _refusal(vertex.node.name, why, vertex.location, is_source=vertex.node.name in program.sources)
    return GraphError(f"the dataflow can't be sent to Spark: {type(error).__name__}: {error}")


def _refusal(name: str, why: Exception, location: Any, *, is_source: bool) -> GraphError:
    hint = "all its data must be picklable, to reach the processes of Spark"
    if is_source:
        hint += "; a generator or a connection is not: write a StatefulSource, whose readers are built there"
    return GraphError(
        f"operator '{name}' can't run on Spark: {type(why).__name__}: {why}; {hint}", operator=name, location=location
    )
