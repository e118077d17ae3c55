"""The transactions of sinks that a snapshot has and that are not known to be committed, and their release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from malflow.errors import SnapshotError
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Wish
from malflow.snapshot.reading import read_state, wanted_manifest
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind

__all__ = ["PendingTransaction", "drop", "pending_transactions", "release"]

_POSITION = "position"
_FIELDS = 4
"""The fields of a position before the lists of released and of dropped transactions."""

_PENDING = 2
"""The index of the pending transactions in a position."""

_Numbers: TypeAlias = tuple[int, ...]


class PendingTransaction(NamedTuple):
    """A transaction that the next start commits.

    Attributes:
        sink: the name of the sink.
        number: the number of the transaction.
        handle: what the sink needs to commit it.
        is_released: whether its refused records will become dead letters, whatever the policy.
        is_dropped: whether the whole transaction will become a dead letter.
    """

    sink: str
    number: int
    handle: Any
    is_released: bool
    is_dropped: bool = False


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
                    released, dropped = _marks(position)
                    for it, handle in position[_PENDING]:
                        yield PendingTransaction(entry.name, it, handle, it in released, it in dropped)


def release(backend: FsspecBackend, sink: str) -> list[int]:
    """Release what a sink's pending transactions were refused for, and return their numbers: the next start continues.

    The records become dead letters, whatever the sink's policy. A run that is still alive is fenced.

    Raises:
        SnapshotError: if the latest snapshot has no such transactions, or can't be read or written.
    """
    numbers = _numbers(backend, sink)
    _mark(backend, sink, lambda _, dropped: (tuple(numbers), dropped))
    return numbers


def drop(backend: FsspecBackend, sink: str, number: int) -> list[int]:
    """Drop a pending transaction of a sink and the later ones, and return their numbers: each becomes a dead letter.

    The next start does so, and later transactions take their numbers. A run that is still alive is fenced.

    Raises:
        SnapshotError: if the latest snapshot has no such transaction, or can't be read or written.
    """
    numbers = _numbers(backend, sink)
    if number not in numbers:
        raise SnapshotError(
            f"sink '{sink}' has no pending transaction {number} in the latest snapshot; it has "
            f"{', '.join(map(str, numbers))}"
        )
    gone = [it for it in numbers if it >= number]
    _mark(backend, sink, lambda released, _: (released, tuple(gone)))
    return gone


def _numbers(backend: FsspecBackend, sink: str) -> list[int]:
    """Return the numbers of the pending transactions of a sink. There is at least one.

    Raises:
        SnapshotError: if not.
    """
    numbers = [it.number for it in pending_transactions(backend) if it.sink == sink]
    if not numbers:
        raise SnapshotError(
            f"sink '{sink}' has no pending transaction in the latest snapshot; malflow errors pending lists all"
        )
    return numbers


def _mark(backend: FsspecBackend, sink: str, change: Callable[[_Numbers, _Numbers], tuple[_Numbers, _Numbers]]) -> None:
    """Change the marks of a sink's transactions."""
    position = dict(read_state(backend, sink))[_POSITION]
    released, dropped = change(*_marks(position))
    marked = (*position[:_FIELDS], released, *((dropped,) if dropped else ()))
    backend.amend([StateDelta(0, sink, Delta({_POSITION: marked}, whole=True), 1)])


def _marks(position: Any) -> tuple[_Numbers, _Numbers]:
    """Return the numbers of the released and of the dropped transactions of a position."""
    released, dropped = (*position[_FIELDS:], (), ())[:2]
    return tuple(released), tuple(dropped)


def _is_of_transactions(position: Any) -> bool:
    """Whether a position is that of a transactional sink; others have positions of any kind."""
    if not isinstance(position, tuple) or not _FIELDS <= len(position) <= _FIELDS + 2:
        return False
    owner, last, pending, has_ended, *_ = position
    is_plain = isinstance(owner, str) and isinstance(last, int) and isinstance(has_ended, bool)
    return is_plain and isinstance(pending, tuple) and all(isinstance(it, tuple) and len(it) == 2 for it in pending)  # noqa: PLR2004 - number and handle
