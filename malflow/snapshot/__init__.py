"""Persistent state: snapshots, the commit protocol, and how they are restored, listed and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from malflow.names import load_on_use
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
    from malflow.snapshot.compression import Compression
    from malflow.snapshot.history import ABSENT, FsckReport, Snapshot, StateChange, diff_state, fsck, snapshots
    from malflow.snapshot.reading import dead_letters, read_state
    from malflow.snapshot.rewinding import copy_snapshot
else:
    load_on_use(
        __name__,
        {
            "ABSENT": ".history",
            "Compression": ".compression",
            "FsckReport": ".history",
            "FsspecBackend": ".backend",
            "MsgpackCodec": ".codecs.msgpack_codec",
            "Snapshot": ".history",
            "StateChange": ".history",
            "copy_snapshot": ".rewinding",
            "dead_letters": ".reading",
            "diff_state": ".history",
            "fsck": ".history",
            "read_state": ".reading",
            "snapshots": ".history",
        },
    )

__all__ = [
    "ABSENT",
    "Compression",
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
