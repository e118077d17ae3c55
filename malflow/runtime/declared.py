"""The facts of which a runtime was made, for those who make another one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from malflow.runtime.face import Runtime
from malflow.runtime.options import RunOptions
from malflow.streams.stream import StreamProvider

__all__ = ["Declared", "declared_by", "remade"]


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments of a runtime.

    Attributes:
        build_dataflow: builds the dataflow.
        options: its options, of the class of its runtime.
        location: the ``file:line`` of the user's code that made it, or None if unknown.
    """

    build_dataflow: Callable[[StreamProvider], object]
    options: RunOptions
    location: str | None


def declared_by(runtime: Runtime) -> Declared:
    """Return the arguments with which a runtime was made."""
    return Declared(runtime._build, runtime._options, runtime._location)


def remade(runtime: Runtime, build_dataflow: Callable[[StreamProvider], object], changes: Mapping[str, Any]) -> Runtime:
    """Return a runtime like another one, of the same class, with some other options, to run in its place.

    Raises:
        GraphError: if an option is invalid.
    """
    made = copy(runtime)
    made._build = build_dataflow
    made._options = replace(runtime._options, **changes)
    return made
