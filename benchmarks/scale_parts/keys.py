"""The memory that keys and their states take in a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from malflow.states.keyed import KeyedState

__all__ = ["KINDS", "measure_key"]

_KEYS = 1_000_000

KINDS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "an integer, and an integer": lambda at: (at + 1_000_000, at + 5_000),
    "a text of 17 characters, and a number": lambda at: (f"customer-{at:08d}", float(at)),
    "the same text, and a list of ten numbers": lambda at: (f"customer-{at:08d}", [float(at)] * 10),
    "the same text, and a dict of three fields": lambda at: (
        f"customer-{at:08d}",
        {"total": float(at), "count": at + 1_000, "last": f"x{at}"},
    ),
}
"""A key and its state, by number."""


def measure_key(kind: str) -> dict[str, float]:
    """Return the bytes of a key with its state, among a million."""
    before, make = _resident(), KINDS[kind]
    states = KeyedState(int, tracked=True)
    states.update(map(make, range(_KEYS)))
    return {"bytes": (_resident() - before) / len(states)}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
