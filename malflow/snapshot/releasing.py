"""The transactions of sinks that a snapshot has and that are not known to be committed, and their release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from malflow.errors import SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Wish
from malflow.snapshot.reading import read_state, wanted_manifest
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind

__all__ = ["PendingTransaction", "pending_transactions", "release"]

_POSITION = "position"
_FIELDS = 4


class PendingTransaction(NamedTuple):
    """A transaction that the next start commits.

    Attributes:
        sink: the name of the sink.
        number: the number of the transaction.
        handle: what the sink needs to commit it.
        is_released: whether its refused records will become dead letters, whatever the policy.
    """

    sink: str
    number: int
    handle: Any
    is_released: bool


def pending_transactions(backend: FsspecBackend, at: Wish = "latest") -> Iterator[PendingTransaction]:
    """Yield the transactions in a snapshot that are not known to be committed, sink by sink, in order.

    Raises:
        SnapshotError: if there is no such snapshot, or it can't be read.
    """
    _, manifest = wanted_manifest(backend, at)
    for entry in manifest.operators:
        if entry.kind == StateKind.SINK.word:
            for key, position in read_state(backend, entry.name, at=manifest.snapshot):
                if key == _POSITION and _is_of_transactions(position):
                    _, _, pending, _, *released = position
                    marks: frozenset[int] = frozenset(*released)
                    yield from (PendingTransaction(entry.name, it, handle, it in marks) for it, handle in pending)


def release(backend: FsspecBackend, sink: str) -> list[int]:
    """Release what a sink's pending transactions were refused for, and return their numbers: the next start continues.

    The records become dead letters, whatever the sink's policy. A run that is still alive is fenced.

    Raises:
        SnapshotError: if the latest snapshot has no such transactions, or can't be read or written.
    """
    numbers = [it.number for it in pending_transactions(backend) if it.sink == sink]
    if not numbers:
        raise SnapshotError(
            f"sink '{sink}' has no pending transaction in the latest snapshot; malflow errors pending lists all"
        )
    position = dict(read_state(backend, sink))[_POSITION]
    released = (*position[:_FIELDS], tuple(numbers))
    backend.amend([StateDelta(0, sink, Delta({_POSITION: released}, whole=True), 1)])
    return numbers


def _is_of_transactions(position: Any) -> bool:
    """Whether a position is that of a transactional sink; others have positions of any kind."""
    if not isinstance(position, tuple) or len(position) not in (_FIELDS, _FIELDS + 1):
        return False
    owner, last, pending, has_ended, *_ = position
    is_plain = isinstance(owner, str) and isinstance(last, int) and isinstance(has_ended, bool)
    return is_plain and isinstance(pending, tuple) and all(isinstance(it, tuple) and len(it) == 2 for it in pending)  # noqa: PLR2004 - number and handle
