"""Random dataflows that run together in one program, on a runtime with several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.kit.log import Log
from tests.properties.building import Run, build
from tests.properties.specs import Dataflow

__all__ = ["named", "run_together", "travels"]

_HIDDEN = frozenset({"hold", "announce"})
"""Stateless operators whose object keeps something: there is one in each process."""


def travels(dataflow: Dataflow) -> bool:
    """Whether a dataflow has the same result in several processes."""
    return not any(step.kind == "stateless_op" and step.arg in _HIDDEN for step in dataflow.steps)


def named(dataflow: Dataflow, prefix: str) -> Dataflow:
    """Return a dataflow whose operators have a prefix in their names."""
    return replace(dataflow, steps=tuple(replace(step, name=prefix + step.name) for step in dataflow.steps))


def run_together(new_runtime: Callable[..., Any], together: Sequence[Dataflow], chunk: int | None) -> Run:
    """Run several dataflows in one program on a runtime, and return all that they emitted."""

    def build_all(provider: Any) -> None:
        for dataflow in together:
            build(dataflow, provider, chunk, result)

    with TemporaryDirectory() as folder:
        numbers = iter(range(1000))
        result = Run(new_log=lambda: Log(Path(folder, str(next(numbers)))))
        new_runtime(build_all, debug=all(dataflow.debug for dataflow in together)).execute()
        result.settle()
        result.records = {name: list(records) for name, records in result.records.items()}
        result.marks = {name: list(marks) for name, marks in result.marks.items()}
    return result
