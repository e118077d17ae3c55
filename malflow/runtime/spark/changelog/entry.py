"""The entries of the changelog, and their written form."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import lz4.frame

from malflow.runtime.transport.pickling import load_states
from malflow.states.keyed import Delta

__all__ = ["NEVER", "ChangelogEntry", "PackedEntry", "pack_entry", "unpack_entry"]

NEVER = -1
"""Stands for the tick of the last entry of a worker without entries."""


@dataclass(frozen=True, slots=True)
class ChangelogEntry:
    """The state changes of one stage of one worker in one tick.

    Attributes:
        tick: the tick.
        before: the tick of the previous entry, or `NEVER`.
        deltas: the delta of each state that changed.
        whole: whether this entry holds all state; earlier entries are then obsolete. The deltas alone don't show this,
            since an unchanged state has no delta.
        recent: for a full entry that the driver requested, the changes since the previous entry: enough for a worker
            that has applied that one.
        finished: the parts that have finished since the previous entry, by source; in a full entry, all in this run.
        merged: the ticks of the entries after `before` that this one replaces. Its deltas have the same effect on the
            state after any of them.
    """

    tick: int
    before: int
    deltas: Mapping[str, Delta]
    whole: bool = False
    recent: Mapping[str, Delta] | None = None
    finished: Mapping[str, Collection[Any]] = field(default_factory=dict)
    merged: Sequence[int] = ()

    def follows(self, tick: int) -> bool:
        """Whether a worker that has applied the entry of a tick can apply this one next."""
        return self.whole or self.before == tick or tick in self.merged


class PackedEntry(NamedTuple):
    """An entry in its written form, without the output of its tick.

    Attributes:
        tick: the tick of the entry.
        data: the entry, pickled and compressed.
    """

    tick: int
    data: bytes

    @property
    def size(self) -> int:
        """The bytes that a process reads to apply the entry."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class _Head:
    """The written form of a full entry with recent changes: a reader unpickles the full deltas only if it needs them.

    Attributes:
        entry: the entry without its deltas.
        deltas: the deltas, pickled.
    """

    entry: ChangelogEntry
    deltas: bytes


def pack_entry(entry: ChangelogEntry) -> PackedEntry:
    """Pickle and compress an entry.

    Raises:
        Exception: if a state can't be pickled.
    """
    whole: ChangelogEntry | _Head = entry
    if entry.recent is not None:
        whole = _Head(replace(entry, deltas={}), pickle.dumps(entry.deltas, 5))
    return PackedEntry(entry.tick, lz4.frame.compress(pickle.dumps(whole, 5), store_size=True))


def unpack_entry(raw: bytes, held: int) -> ChangelogEntry:
    """Return an entry from its written form, decompressed.

    Args:
        raw: the entry, pickled.
        held: the tick of the last entry that the reader has applied; recent changes suffice if it is the one before.

    Raises:
        NotPicklable: if a state can't be unpickled.
    """
    read: ChangelogEntry | _Head = load_states(raw, _states)
    if isinstance(read, ChangelogEntry):
        return read
    entry = read.entry
    if entry.before == held != NEVER:
        return replace(entry, deltas=entry.recent or {}, whole=False, recent=None)
    return replace(entry, deltas=load_states(read.deltas, _changed), recent=None)


def _states(read: ChangelogEntry | _Head | None) -> dict[str, Mapping[Any, Any]]:
    if read is None:
        return {}
    return _changed(read.deltas if isinstance(read, ChangelogEntry) else read.entry.recent)


def _changed(deltas: Mapping[str, Delta] | None) -> dict[str, Mapping[Any, Any]]:
    return {name: delta.changed for name, delta in (deltas or {}).items()}
