"""Segments: what workers encode for a sink, in objects beside the snapshots until the driver commits it."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b, sha256
from typing import Any, Final, Generic, TypeAlias

import lz4.frame

from malflow.errors import MalflowError
from malflow.sinks.distributed import DistributedSinkImpl, Share
from malflow.sinks.transactional import SinkOwner
from malflow.store.contract import KeyExists, KeyMissing, Store
from malflow.store.retry import Retry, SystemContext
from malflow.type_parameters import K, T, V

__all__ = [
    "ONE_SHARE",
    "Sealed",
    "SegmentWriter",
    "SegmentedSinkImpl",
    "Segments",
    "is_sealed",
]

Sealed: TypeAlias = tuple[int, str, bytes]
"""A share: the claim of the run, the key of its segment and its digest; without a store, no key and its content.

The digest is in the snapshot, so a segment that others have changed is never unpickled.
"""

_FOLDER = "s/"
_LIMIT = 1 << 40
"""The largest segment in bytes, a terabyte: `Store.get` wants a limit, and the digest already detects a foreign object.
It is beyond any memory, so half or double makes no difference."""

_RETRY = timedelta(minutes=1).total_seconds()


class Segments:
    """The segments of one sink of a run.

    Args:
        store: the store of the snapshots; without one, the content of a segment is in the snapshot.
        owner: the run.
    """

    def __init__(self, store: Store | None, owner: SinkOwner) -> None:
        self._store = store
        self._folder = f"{_FOLDER}{blake2b(owner.name.encode(), digest_size=8).hexdigest()}/"
        self._owner = owner

    def writer(self, share: Share) -> SegmentWriter:
        """Return the writer of a share."""
        claim = self._owner.claim
        name = f"{self._folder}{share.transaction:020d}-{claim}-{share.number}-{share.token}"
        return SegmentWriter(self._store, name, claim)

    def read(self, sealed: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield the pieces of shares; only the first three items of each are used.

        Raises:
            MalflowError: if a segment is gone or damaged.
        """
        for _, key, content, *_ in sealed:
            data = self._content(key, content) if key else content
            yield from pickle.loads(lz4.frame.decompress(data))  # noqa: S301 - of this job: its digest is in the snapshot

    def _content(self, key: str, digest: bytes) -> bytes:
        """Return a segment after checking its digest."""
        store, data = self._store, None
        if store is not None:
            with suppress(KeyMissing):
                data = _retry().of(lambda: store.get(key, _LIMIT))
        if data is None or sha256(data).digest() != digest:
            problem = "gone from" if data is None else "damaged in"
            raise MalflowError(
                f"'{key}' is {problem} the store of the snapshots: it has records of sink '{self._owner.sink}' that "
                "are not committed. Put it back; if it is lost, start from restore=None, or pass "
                "recovery='previous', sinks='accept_duplicates'"
            )
        return data

    def sweep(self, keep: Collection[str], *, until: int | None = None) -> None:
        """Remove the segments of this run and earlier ones, but for some.

        Args:
            keep: the keys of segments that stay.
            until: remove the segments up to this transaction; None for all.
        """
        if self._store is None:
            return
        store = self._store
        for key in _retry().of(lambda: [*store.list(self._folder)]):
            transaction, claim, *_ = key.removeprefix(self._folder).split("-")
            is_due = until is None or int(transaction) <= until
            if is_due and key not in keep and int(claim) <= self._owner.claim:
                _retry().of(lambda key=key: store.delete(key))  # type: ignore[misc] # as above


class SegmentWriter:
    """Writes one segment.

    Args:
        store: the store, or None.
        key: the key of the segment.
        claim: the claim of the run.
    """

    def __init__(self, store: Store | None, key: str, claim: int) -> None:
        self._store = store
        self._key = key
        self._claim = claim
        self._pieces: list[Any] = []

    def write(self, piece: Any) -> None:
        """Add a piece."""
        self._pieces.append(piece)

    def seal(self) -> Sealed:
        """Write the segment."""
        data = lz4.frame.compress(pickle.dumps(self._pieces, 5), store_size=True)
        if self._store is None:
            return self._claim, "", data
        store = self._store
        with suppress(KeyExists):  # an earlier request was answered too late; the token is this writer's alone
            _retry().of(lambda: store.put_new(self._key, data))
        return self._claim, self._key, sha256(data).digest()

    def discard(self) -> None:
        """Drop the pieces."""
        self._pieces = []


def _retry() -> Retry:
    return Retry(_RETRY, SystemContext())


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
