"""Malflow's own classes that are in states, found by the names that they declare."""

from __future__ import annotations

from malflow import message, sinks, sources
from malflow.disk_names import RESERVED, written_name

__all__ = ["ROOMS", "declared_class"]

ROOMS = (message, sources, sinks)
"""What offers these classes, those of connectors too, which are imported when they are first asked for."""


def declared_class(name: str) -> type | None:
    """Return the class that declares a name: `RESERVED` and the name under which a room offers it."""
    for room in ROOMS if name.startswith(RESERVED) else ():
        kind = getattr(room, name.removeprefix(RESERVED), None)
        if isinstance(kind, type) and written_name(kind) == name:
            return kind
    return None
