"""The base of sinks whose shares are segments beside the snapshots, which the driver reads when it commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic

from malflow.connectors.segments import Segments
from malflow.errors import MalflowError
from malflow.sinks.distributed import DistributedSinkImpl
from malflow.sinks.transactional import SinkOwner
from malflow.store.contract import Store
from malflow.type_parameters import K, T, V

__all__ = ["ONE_SHARE", "SegmentedSinkImpl", "is_sealed"]

ONE_SHARE: Final = 1 << 60
"""The `share_bytes` of a sink whose transactions have one share: the pieces of all workers, in the order of ticks."""

_SHARES = 2
"""The length of a handle with sealed shares, a pair; a handle of one process is longer."""


class SegmentedSinkImpl(DistributedSinkImpl[K, V, T], Generic[K, V, T]):
    """A distributed sink that keeps the pieces of uncommitted transactions in the store of the snapshots.

    A handle is either a pair, as `malflow.sinks.distributed.Shares`, whose shares begin with a
    `malflow.connectors.segments.Sealed`, or a longer tuple that one process has prepared.
    """

    _store: Store | None = None
    _segments: Segments | None = None

    def use_store(self, store: Store) -> None:
        """Keep the pieces in a store until they are committed; without one they are in the handles."""
        self._store = store

    def fence(self, owner: SinkOwner) -> int | None:
        """Take over the segments of the owner's earlier runs."""
        self._segments = Segments(self._store, owner)
        return super().fence(owner)

    def abort(self, keep: Sequence[Any]) -> None:
        """Drop the open writer, and all shares that are in none of the handles."""
        super().abort(keep)
        self.drop_shares([it for handle in keep if is_sealed(handle) for it in handle[1]])

    def drop_shares(self, keep: Sequence[Any], *, until: int | None = None) -> None:
        """Remove the shares of this run and earlier ones, but for some, of the transactions up to one or of all."""
        self.segments.sweep({key for _, key, *_ in keep}, until=until)

    @property
    def segments(self) -> Segments:
        """The segments.

        Raises:
            MalflowError: before `fence`.
        """
        if self._segments is None:
            raise MalflowError(f"{self!r} has no owner; the runtime must call fence() first")
        return self._segments


def is_sealed(handle: Sequence[Any]) -> bool:
    """Whether the shares of a transaction were sealed one by one, and not prepared by one process."""
    return len(handle) == _SHARES
