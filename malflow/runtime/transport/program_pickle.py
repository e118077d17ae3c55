"""The pickle of a program for other processes, and the checks that it can run there."""

from __future__ import annotations

from typing import Any

from malflow.engine.plan import Program
from malflow.errors import GraphError, MissingDependency
from malflow.nodes import Node, SinkNode
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.runtime.transport.script_classes import class_in_the_way
from malflow.runtime.transport.sink_proxies import PieceEncoder
from malflow.sinks.contract import StatelessSink
from malflow.words import error_line, short_repr

__all__ = ["ON_SPARK", "check_sources", "check_store", "dumps_program"]

ON_SPARK = "on Spark"
"""The place of the processes, in an error."""


def check_sources(program: Program, place: str) -> None:
    """Check that every source can be read in any process.

    Args:
        program: the program.
        place: the place of the processes, for the error.
    """
    for vertex in program.vertices:
        source = program.sources.get(vertex.node.name)
        if source is not None and getattr(source.source.impl, "in_one_process", False):
            raise GraphError(
                f"source '{source.name}' can't run {place}, where readers are in other processes: "
                f"{source.source.impl!r} must stay in one process; run it with SingleThreadRuntime, or put a queue "
                "between them",
                operator=source.name,
                location=vertex.location,
            )


def check_store(store: object) -> None:
    """Check that a store of the user's can be pickled, for the processes that write data files."""
    try:
        dumps_by_value(store)
    except Exception as error:
        raise GraphError(
            f"store {short_repr(store)} can't run on Spark: {error_line(error)}; it is pickled to tasks "
            "that write data files: leave connections out with __getstate__, and open them when they are first used"
        ) from error


def dumps_program(program: Program, place: str, *others: Any) -> bytes:
    """Pickle a program, in a tuple with other objects.

    Functions and classes of the script are pickled by value; those in modules by name, so the other processes must find
    the modules.

    Args:
        program: the program, with proxies for the sinks in this process.
        place: the place of the processes, for the error.
        others: the other objects.

    Raises:
        GraphError: naming the operator that can't be pickled.
        MissingDependency: if cloudpickle is not installed.
    """
    try:
        return dumps_by_value((program, *others))
    except MissingDependency:
        raise
    except Exception as error:
        raise _refused(program, place, error) from error


def _refused(program: Program, place: str, error: Exception) -> GraphError:
    """Return an error that names the operator that can't be pickled."""
    for vertex in program.vertices:
        try:
            dumps_by_value(vertex.node)
        except Exception as why:  # noqa: BLE001 - classes of the user may raise any
            return _refusal(vertex.node.name, place, why, vertex.location, _hint(program, vertex.node))
    return GraphError(f"the dataflow can't run {place}: {error_line(error)}")


def _hint(program: Program, node: Node) -> str:
    if (name := class_in_the_way(node)) is not None:
        return f"; class '{name}' of the script can't be pickled: move it into a module"
    if node.name in program.sources:
        return "; a generator or a connection is not: write a StatefulSource, whose readers are built there"
    if isinstance(node, SinkNode) and isinstance(node.sink, StatelessSink) and isinstance(node.sink.impl, PieceEncoder):
        return "; or let the driver write, with on_workers=False"
    return ""


def _refusal(name: str, place: str, why: Exception, location: Any, hint: str) -> GraphError:
    return GraphError(
        f"operator '{name}' can't run {place}: {error_line(why)}; all its data must be picklable, to reach "
        f"the other processes{hint}",
        operator=name,
        location=location,
    )
