"""A sink that keeps a table in Redis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from malflow.checks import check_flag, check_function, check_whole_number
from malflow.connectors.codecs.contract import CodecUnavailable, Encoder
from malflow.connectors.codecs.plain import Encode, encoder_of
from malflow.connectors.key_texts import KeyKind, KindOfKeys, PlainKeyEncoder, key_encoder_of
from malflow.connectors.options import check_delivery, check_on_data_loss
from malflow.connectors.redis.connection import PLAIN, RedisServer, UnwritableRow
from malflow.connectors.redis.table import RedisTable, TransactionRows
from malflow.connectors.segments import ONE_SHARE, SegmentedSinkImpl, SegmentWriter, is_sealed
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.sinks.distributed import Share
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

__all__ = ["RedisSink"]


_LOG = logging.getLogger("malflow")


Rows: TypeAlias = dict[bytes, bytes | None]
"""Rows by their field or key; None for one that is removed."""

_INSTEAD = "pass encode_key='json', or make them alike"


class _Piece(dict[bytes, bytes | None]):
    """The rows of a batch for the writer of a share.

    Attributes:
        seen: the kind of their keys, and a key of it; None if they are not plain.
    """

    seen: tuple[KeyKind, Any] | None = None


class RedisSink(SegmentedSinkImpl[K, V, T]):
    """Keep the newest value of each key in Redis: in a hash, or each under a Redis key of its own.

    Exactly once (the default): a transaction is everything written between two snapshots. The snapshot contains its
    rows, one for each key; on Spark the workers encode them and store them beside the snapshots. Once it is durable,
    one Lua script writes them to the table, and the transaction's number to a ledger beside it. A transaction is never
    written twice, and a run that has been replaced is refused. Readers see a transaction as a whole; if it has more
    than `rows_per_call` rows, it appears in parts, and its number last.

    At least once: rows are written with each tick. After a crash older values may reappear until the run has caught
    up: the table converges.

    Args:
        url: ``redis://host:6379/0``, ``rediss://`` for TLS.
        table: the key of a hash with the records' keys as its fields.
        prefix: instead of `table`: each row has a Redis key of its own, this prefix and the record's key.
        formatter: returns the value to encode for a message; by default its value.
        encode: the encoder of values: ``"bytes"``, ``"text"``, ``"json"``, an `Encoder`, or a function; by default
            bytes and text are written as they are, and numbers in decimal.
        encode_key: the same for keys. Keys that are equal, such as 1 and 1.0, are written alike; so plain keys must be
            all text, all bytes or all numbers.
        delete: a predicate of the value to encode: whether it removes its key. By default None does.
        delivery: ``"exactly-once"`` or ``"at-least-once"``.
        on_data_loss: ``"fail"`` if the server has lost a transaction that it confirmed, or ``"continue"``.
        retry_for: how long to wait for an unreachable server.
        rows_per_call: the number of rows that one call of the script writes.
        on_workers: with ``"exactly-once"``, whether the workers encode the rows, on Spark; if False, the driver does.
        settings: arguments of `redis.Redis`, such as ``ssl_ca_certs``. Never shown.

    Raises:
        GraphError: if an argument is invalid, or a setting conflicts with one that malflow depends on.

    >>> RedisSink("redis://:secret@localhost:6379/0", table="totals")
    RedisSink('totals' at localhost:6379/0)
    """

    share_bytes: int = ONE_SHARE

    def __init__(
        self,
        url: str,
        *,
        table: str | None = None,
        prefix: str | None = None,
        formatter: Formatter | None = None,
        encode: Encode | None = None,
        encode_key: Encode | None = None,
        delete: Callable[[V], bool] | None = None,
        delivery: Delivery = "exactly-once",
        on_data_loss: Literal["fail", "continue"] = "fail",
        retry_for: Duration = timedelta(minutes=1),
        rows_per_call: int = 50_000,
        on_workers: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if (table is None) == (prefix is None) or not isinstance(table or prefix or "", str) or table == "":
            raise GraphError(
                "RedisSink needs table='...', a hash, or prefix='...', a key a record; "
                f"got table={short_repr(table)}, prefix={short_repr(prefix)}"
            )
        check_delivery("RedisSink", delivery)
        check_on_data_loss("RedisSink", on_data_loss)
        check_whole_number("RedisSink", "rows_per_call", rows_per_call, most=_MOST_ROWS)
        check_flag("RedisSink", "on_workers", on_workers)
        if delete is not None:
            check_function("RedisSink", "delete", delete)
        self.delivery = delivery
        self._server = RedisServer(url, settings, retry_for, "RedisSink")
        self._name = table if table is not None else f"{prefix}*"
        self._table = RedisTable(self._server, table, prefix or "", rows_per_call)
        self._encode = PLAIN if encode is None else encoder_of(encode, "RedisSink")
        self._encode_key = key_encoder_of(encode_key, "RedisSink", writes=True)
        self._formatter = checked_formatter("RedisSink", formatter)
        self._delete = delete
        self._accept_loss = on_data_loss == "continue"
        self._rows: Rows = {}
        self._last = 0
        self.on_workers = on_workers

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write rows; of several with the same key, the last counts.

        Raises:
            UnwritableRow: if a key or value can't be encoded.
        """
        self._rows.update(self.encode(keys, values, timestamps))

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> Rows:
        """Return rows; of several with the same key, the last.

        Raises:
            UnwritableRow: if a key or value can't be encoded.
        """
        piece = _Piece(self._encoded(keys, values, timestamps))
        if isinstance(self._encode_key, PlainKeyEncoder) and self._encode_key.kind is not None:
            piece.seen = self._encode_key.kind.seen
        return piece

    def _encoded(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> Rows:
        delete, values = self._delete, formatted(self._formatter, keys, values, timestamps)
        gone = [value is None if delete is None else delete(value) for value in values]
        try:
            fields = self._encode_key.encode_column(keys)
            if any(gone):
                encode = self._encode.encode
                return {
                    field: None if it else encode(value) for field, value, it in zip(fields, values, gone, strict=True)
                }
            return dict(zip(fields, self._encode.encode_column(values), strict=True))
        except CodecUnavailable:
            raise
        except Exception:
            self._raise_first(keys, values, gone)
            raise

    def open_writer(self, share: Share) -> _RowsWriter:
        """Return the writer of the rows of a transaction."""
        return _RowsWriter(self.segments.writer(share))

    def flush(self) -> None:
        """Write the rows of a tick, if delivery is at least once."""
        if self.delivery == "at-least-once" and self._rows:
            rows, self._rows = self._rows, {}
            self._table.write(list(rows), list(rows.values()))

    def fence(self, owner: SinkOwner) -> int:
        """Claim the ledger; return its last transaction.

        Raises:
            FencedError: if another run has claimed the ledger.
            RedisDataLost: if the ledger lacks a transaction that was confirmed.
            RedisFailed: if the server can't be reached for longer than `retry_for`.
        """
        super().fence(owner)
        self._rows = {}
        if isinstance(self._encode_key, PlainKeyEncoder) and self._encode_key.kind is not None:
            self._encode_key.kind.forget()
        self._last = self._table.fence(owner, accept_loss=self._accept_loss)
        if self._server.retry(self._table.is_durable, "reading the configuration") is False:
            _LOG.warning(
                "Redis at %r confirms writes before they are on disk: a crash of its machine may lose transactions of "
                "sink '%s'; set appendonly yes and appendfsync always",
                self._server,
                owner.sink,
            )
        evicting = self._server.retry(self._table.eviction, "reading the configuration")
        if evicting is not None:
            _LOG.warning(
                "Redis at %r has maxmemory-policy %s: it deletes rows of sink '%s', or its ledger, when its memory is "
                "full, without an error; set maxmemory-policy noeviction",
                self._server,
                evicting,
                owner.sink,
            )
        return self._last

    def prepare(self, transaction: int, /) -> Any:
        """Return the rows since the last transaction."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, {}
        handle = (transaction, self._last, list(rows), list(rows.values()))
        self._last = transaction
        return handle

    def commit(self, handles: Sequence[Any]) -> None:
        """Write the transactions that the ledger does not have.

        Raises:
            FencedError: if another run has claimed the ledger.
            MalflowError: if rows that workers have stored are gone.
            RedisDataLost: if the ledger lacks a transaction that was confirmed.
            RedisFailed: if the server can't be reached for longer than `retry_for`.
        """
        for handle in handles:
            transaction = handle[0]
            if not is_sealed(handle):
                self._table.write_transaction(handle, accept_loss=self._accept_loss)
            elif transaction > self._last:
                self._table.write_transaction(self._unsealed(*handle), accept_loss=self._accept_loss)
            self._last = max(self._last, transaction)
            if is_sealed(handle):
                self.drop_shares((), until=transaction)

    def abort(self, keep: Sequence[Any]) -> None:
        """Discard the rows that are in no transaction; none of them is in Redis."""
        super().abort(keep)
        self._rows = {}

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._table.close()

    def _unsealed(self, transaction: int, sealed: Sequence[Any]) -> TransactionRows:
        """Return a transaction that workers have encoded."""
        rows: Rows = {}
        for part in self.segments.read(sealed):
            rows.update(part)
        return transaction, transaction - 1, list(rows), list(rows.values())

    def _raise_first(self, keys: Sequence[K], values: Sequence[V], gone: Sequence[bool]) -> None:
        for key, value, removed in zip(keys, values, gone, strict=True):
            if key is NoKey:
                raise UnwritableRow(key, value, "the stream has no key; call .key_distribute() first")
            for encoder, what, it in ((self._encode_key, "key", key), (self._encode, "value", value)):
                if what == "key" or not removed:
                    _try(encoder, it, what, (key, value))

    def __repr__(self) -> str:
        return f"RedisSink({self._name!r} at {self._server!r})"


class _RowsWriter:
    """Writes rows to a segment, one for each key."""

    def __init__(self, segment: SegmentWriter) -> None:
        self._segment = segment
        self._rows: Rows = {}
        self._kind = KindOfKeys(_INSTEAD)

    def write(self, piece: Rows) -> None:
        seen = getattr(piece, "seen", None)
        if seen is not None:
            try:
                self._kind.see(*seen)  # keys of another kind may come from another worker
            except TypeError as error:
                raise UnwritableRow(seen[1], piece, f"the key can't be encoded: {error}") from error
        self._rows.update(piece)

    def seal(self) -> Any:
        self._segment.write(self._rows)
        return self._segment.seal()

    def discard(self) -> None:
        self._rows = {}
        self._segment.discard()


_MOST_ROWS = 400_000
"""Redis accepts a million arguments of a command."""


def _try(encoder: Encoder[Any], it: Any, what: str, row: tuple[Any, Any]) -> None:
    try:
        encoder.encode(it)
    except CodecUnavailable:
        raise
    except Exception as error:
        option = "encode_key" if what == "key" else "encode"
        instead = "" if "pass encode=" in str(error) else f"; pass {option}='json' or a function"
        raise UnwritableRow(*row, f"the {what} can't be encoded: {error}{instead}") from error
