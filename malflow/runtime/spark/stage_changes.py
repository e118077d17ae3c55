"""The changes of one stage of one worker in a tick, packed for the changelog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from malflow.engine.worker import Worker
from malflow.errors import MalflowError
from malflow.runtime.spark.changelog_entry import ChangelogEntry, PackedEntry, pack_entry
from malflow.runtime.transport.states import not_picklable
from malflow.states.keyed import Delta, DeltaSum

__all__ = ["added_up", "deltas_of", "merged", "packed"]

_MOSTLY = 4 / 3
"""A full entry is written if a stage has at most this many keys for each key in its full deltas."""


def deltas_of(worker: Worker, *, whole: bool) -> tuple[Mapping[str, Delta], bool, Mapping[str, Delta] | None]:
    """Return the delta of each state, whether they hold all state, and if so, the recent changes, if separate.

    If full deltas have most of the keys, all other states are returned in full as well, so earlier entries become
    obsolete.

    Args:
        worker: the worker.
        whole: whether full deltas were requested.
    """
    deltas, states = worker.delta(), worker.states()
    if _is_whole(deltas, states):
        return deltas, True, None
    written = sum(len(delta.changed) for delta in deltas.values() if delta.whole)
    is_most = written > 0 and _MOSTLY * written >= sum(map(len, states.values()))
    if whole or is_most:
        return worker.delta(whole=True), True, None if is_most else deltas
    return deltas, False, None


def _is_whole(deltas: Mapping[str, Delta], states: Collection[str]) -> bool:
    return all(name in deltas and deltas[name].whole for name in states)


def added_up(changes: Iterable[Mapping[str, Delta]]) -> dict[str, Delta]:
    """Return the deltas with the effect of several, in order, for each state."""
    sums: dict[str, DeltaSum] = {}
    for deltas in changes:
        for name, delta in deltas.items():
            sums.setdefault(name, DeltaSum()).add(delta)
    return {name: total.delta() for name, total in sums.items()}


def merged(entries: Sequence[ChangelogEntry]) -> ChangelogEntry:
    """Merge the last entries of a worker, in order, into one with the same effect, under the tick of the last one."""
    finished: dict[str, list[Any]] = {}
    for entry in entries:
        for name, parts in entry.finished.items():
            finished.setdefault(name, []).extend(parts)
    *earlier, last = entries
    deltas = added_up(entry.deltas for entry in entries)
    replaced = [tick for entry in earlier for tick in (*entry.merged, entry.tick)]
    return ChangelogEntry(last.tick, entries[0].before, deltas, finished=finished, merged=replaced)


def packed(entry: ChangelogEntry) -> PackedEntry:
    """Return an entry in its written form.

    Raises:
        OperatorError: naming a state that can't be pickled.
    """
    try:
        return pack_entry(entry)
    except MalflowError:
        raise
    except BaseException as error:  # classes of the user may raise any
        raise not_picklable(entry.deltas, error) from error
