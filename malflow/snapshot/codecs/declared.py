"""Malflow's own classes in states, by the names that they declare."""

from __future__ import annotations

from malflow import message, sinks, sources, table_change
from malflow.disk_names import RESERVED, written_name

__all__ = ["ROOMS", "declared_class"]

ROOMS = (message, table_change, sources, sinks)
"""The modules with these classes; those of connectors are imported on demand."""


def declared_class(name: str) -> type | None:
    """Return the class that declares a name. The name starts with `RESERVED`."""
    for room in ROOMS if name.startswith(RESERVED) else ():
        kind = getattr(room, name.removeprefix(RESERVED), None)
        if isinstance(kind, type) and written_name(kind) == name:
            return kind
    return None
