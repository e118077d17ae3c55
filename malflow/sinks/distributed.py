"""The contract of exactly-once sinks whose records are encoded and written by the workers of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias

from malflow.errors import offers
from malflow.message import DataMessage
from malflow.sinks.contract import optional
from malflow.sinks.transactional import Refused, SinkOwner, TransactionalSinkImpl, is_transactional
from malflow.type_parameters import K, T, V

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DistributedSinkImpl", "Share", "ShareWriter", "Shares", "is_distributed", "new_token"]

Shares: TypeAlias = tuple[int, Sequence[Any]]
"""The handle of a transaction: its number, and what `ShareWriter.seal` returned for each of its shares, in order."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a transaction, written by one `ShareWriter`.

    Attributes:
        transaction: the number of the transaction.
        number, of: the number of the share, from zero, and the number of shares that the transaction has.
        token: a text that no other writer has, for the names of files: a task that is repeated writes the same share
            under another one, and only one of its writers counts.
    """

    transaction: int
    number: int
    of: int
    token: str


class ShareWriter(Protocol):
    """Writes one share of a transaction: `write` for each piece in order, then either `seal` or `discard`."""

    def write(self, piece: Any, /) -> None:
        """Write a piece that `DistributedSinkImpl.encode` returned, perhaps in another process."""

    def seal(self) -> Any:
        """Make the share durable, but not visible.

        Returns:
            What any process needs to commit it: picklable, not mutated afterwards, plain values if possible. None if
            there is nothing to commit.
        """

    def discard(self) -> None:
        """Drop the share."""


class DistributedSinkImpl(TransactionalSinkImpl[K, V, T, Shares], Generic[K, V, T]):
    """A transactional sink with records that stay on the workers: only what `seal` returns reaches the driver.

    On a runtime with tasks, such as `malflow.SparkRuntime`, copies of one object serve three places:

    - *in each tick, on the workers*: `encode` turns records into pieces. They are stored with the output of the tick.
      A tick that is repeated uses the pieces of its first attempt.
    - *in each snapshot, on some workers*: `open_writer`. Each writer gets the pieces of some workers since the last
      snapshot, in their order, and seals them. A writer that fails is opened again elsewhere, under another token.
    - *on the driver*: `fence`, `commit` and `abort`, as in `TransactionalSinkImpl`. A handle is a pair: the number of
      the transaction, and the results of `seal` in the order of shares, without those that are None.

    The copies are pickled after `fence`: an attribute that it sets is there as well. Leave out connections with
    ``__getstate__``, and open them when they are first used. All pieces of a key within one transaction are in one
    share, in the order of the records, unless the number of workers has changed: then earlier shares are older.

    In one thread, and wherever `on_workers` is False, a sink has one share: each piece goes straight from `encode` to
    the open writer. `sink_batch`, `prepare` and `close` do so; they need not be overridden. A class that overrides
    `fence`, `abort` or `close` calls the same method of this class. That method discards the open writer.

    Attributes:
        on_workers: whether workers write, where the runtime has tasks for it. If False, the driver does.
        share_bytes: the bytes of pieces for which another writer is opened, up to one for each worker.
    """

    takes_all_or_none: ClassVar[bool] = True
    on_workers: bool = True
    share_bytes: int = 4 << 20
    _share_writer: ShareWriter | None = None
    _next_transaction = 1

    @abstractmethod
    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> Any:
        """Return the piece of a batch of messages: picklable, such as bytes or an Arrow record batch.

        It must not write anywhere, since a tick may be repeated.

        Raises:
            Exception: if a record can't be written; no later call has the record.
        """

    @optional
    def encode_columns(self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]) -> Any:
        """Return the piece of a batch of messages that came as columns, as in `sink_columns`.

        Optional: without it, `encode` gets Python objects. A record batch in a piece is stored without the rows of the
        batch from which it was cut. The default is never called.

        Raises:
            Exception: if a record can't be written.
        """
        raise NotImplementedError

    @abstractmethod
    def open_writer(self, share: Share) -> ShareWriter:
        """Return the writer of a share that has pieces."""

    @abstractmethod
    def fence(self, owner: SinkOwner) -> int | None:
        """Take over the output, as in `TransactionalSinkImpl`."""
        self._discard()
        self._next_transaction = owner.transaction + 1
        return None

    @abstractmethod
    def abort(self, keep: Sequence[Shares]) -> None:
        """Drop everything of this owner that is not committed, except for `keep`, as in `TransactionalSinkImpl`.

        This includes shares sealed by a task that was repeated, or in a snapshot that failed.
        """
        self._discard()
        self._next_transaction = max([self._next_transaction, *(number + 1 for number, *_ in keep)])

    def check_sealed(self, handles: Sequence[Shares]) -> None:
        """Check, on the driver, that the external system will accept a transaction; by default it always does.

        Called once all shares are sealed and before a snapshot with the handle is durable, while the transaction can
        still be undone. No other method of the object is called at the same time, but it may be another thread.

        Args:
            handles: the transactions that are not committed, in order; the last one is to be checked.

        Raises:
            Exception: if it would be refused. The run fails, and the next one starts from the last snapshot.
        """

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one message to the open writer."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of messages to the open writer."""
        self.write_piece(self.encode(keys, values, timestamps))

    def encode_refused(self, records: Sequence[Refused]) -> Any:
        """Return the piece of records that `divide` returned: their dead letters are replayed.

        The default encodes their values like message values.
        """
        return self.encode([it.key for it in records], [it.value for it in records], [it.timestamp for it in records])

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Write records that `divide` returned to the open writer."""
        self.write_piece(self.encode_refused(records))

    def write_piece(self, piece: Any) -> None:
        """Write a piece to the open writer of this process; open one first if necessary."""
        if self._share_writer is None:
            self._share_writer = self.open_writer(Share(self._next_transaction, 0, 1, new_token()))
        self._share_writer.write(piece)

    def prepare(self, transaction: int, /) -> Shares | None:
        """Seal the open writer, and return a handle of its one share; None if nothing was written."""
        sealed = None if self._share_writer is None else self._share_writer.seal()
        self._share_writer = None
        if sealed is None:
            return None
        self._next_transaction = transaction + 1
        return transaction, (sealed,)

    def close(self) -> None:
        """Discard the open writer."""
        self._discard()

    def _discard(self) -> None:
        writer, self._share_writer = self._share_writer, None
        if writer is not None:
            writer.discard()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open writer."""
        return {**vars(self), "_share_writer": None}


def is_distributed(impl: object) -> bool:
    """Whether a sink's records can stay on the workers; such a sink delivers exactly once."""
    able = getattr(impl, "on_workers", False) and offers(impl, "encode") and offers(impl, "open_writer")
    return bool(able) and is_transactional(impl)


def new_token() -> str:
    """Return a token for a `Share`."""
    return token_hex(4)
