"""The names of malflow's own classes in snapshots of plain data, and the length of those of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["LONGEST_JOB", "RESERVED", "written_as", "written_name"]

C = TypeVar("C", bound=type)

LONGEST_JOB = 63
"""The longest name of a job, in characters."""

RESERVED = "malflow."
"""The prefix of the names of malflow's own classes; users can't register names with it."""


def written_as(name: str) -> Callable[[C], C]:
    """Declare the name of a record class on disk. It stays the same when the class moves.

    The name starts with `RESERVED`; see `malflow.snapshot.codecs.classes`.

    >>> @written_as("malflow.Position")
    ... class Position: ...
    >>> written_name(Position), written_name(type("Derived", (Position,), {}))
    ('malflow.Position', None)
    """

    def declare(kind: C) -> C:
        kind.__msgpack_name__ = name  # type: ignore[attr-defined] # in the body of a NamedTuple it would be a field
        return kind

    return declare


def written_name(kind: type) -> str | None:
    """Return the name that a class declares itself, not one inherited from a base; else None."""
    name = vars(kind).get("__msgpack_name__")
    return name if isinstance(name, str) and name.startswith(RESERVED) else None
