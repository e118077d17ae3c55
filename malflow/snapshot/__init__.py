"""Persistent state: snapshots, the commit protocol, and how they are restored, listed and checked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from malflow.snapshot.persistence import (
    NamedJob,
    NoPersistence,
    Persistence,
    RestoredState,
    RestoreOptions,
    Session,
    StateNotSerializable,
)
from malflow.snapshot.sizes import StateSize
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateSpec

if TYPE_CHECKING:
    from malflow.snapshot.backend import FsspecBackend
    from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec
    from malflow.snapshot.history import ABSENT, FsckReport, Snapshot, StateChange, diff_state, fsck, snapshots
    from malflow.snapshot.reading import dead_letters, read_state
    from malflow.snapshot.rewinding import copy_snapshot

__all__ = [
    "ABSENT",
    "Delta",
    "FsckReport",
    "FsspecBackend",
    "MsgpackCodec",
    "NamedJob",
    "NoPersistence",
    "Persistence",
    "RestoreOptions",
    "RestoredState",
    "Session",
    "Snapshot",
    "StateChange",
    "StateDelta",
    "StateNotSerializable",
    "StateSize",
    "StateSpec",
    "copy_snapshot",
    "dead_letters",
    "diff_state",
    "fsck",
    "read_state",
    "snapshots",
]

_ROOMS = {
    "ABSENT": "history",
    "StateChange": "history",
    "copy_snapshot": "rewinding",
    "diff_state": "history",
    "FsspecBackend": "backend",
    "MsgpackCodec": "codecs.msgpack_codec",
    "FsckReport": "history",
    "Snapshot": "history",
    "fsck": "history",
    "dead_letters": "reading",
    "read_state": "reading",
    "snapshots": "history",
}


def __getattr__(name: str) -> Any:
    """Import names that need optional libraries on first access."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
