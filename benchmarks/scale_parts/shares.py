"""A transaction of a Postgres table that workers write: the time of the task that stages it, and of the merge."""

from __future__ import annotations

import pickle
import tempfile
import time
from typing import Any
from uuid import uuid4

import lz4.frame

from malflow.runtime.process_state import rarer_collections
from malflow.sinks import Share, SinkOwner
from malflow.store.opening import open_store
from scale_parts.sinks import new_table, table_sink

__all__ = ["measure_share"]

_PIECE = 8_192


def measure_share(kind: str, records: int, dsn: str) -> dict[str, float]:
    """Return the microseconds a record of both, and of the workers' encoding before; in this process.

    Args:
        kind: as in `scale_parts.sinks.measure_sink`.
        records: the number of records of the transaction.
        dsn: the database.
    """
    sink = table_sink(kind, new_table(dsn, kind), dsn)
    rows = [{"part": 0, "n": n, "price": n * 0.25, "name": f"name {n % 1000}"} for n in range(records)]
    times: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, rarer_collections():
        sink.use_store(open_store(folder, {}))
        sink.fence(SinkOwner(f"bench-{uuid4().hex}", "out", 1))
        began = time.perf_counter()
        pieces = [_dumped(sink, rows[at : at + _PIECE]) for at in range(0, records, _PIECE)]
        times["encode"] = time.perf_counter() - began
        began = time.perf_counter()
        writer = sink.open_writer(Share(1, 0, 1, uuid4().hex[:8]))
        for piece in pieces:
            writer.write(pickle.loads(lz4.frame.decompress(piece)))  # noqa: S301 - made above
        sealed = writer.seal()
        times["stage"] = time.perf_counter() - began
        began = time.perf_counter()
        sink.commit([(1, (sealed,))])
        times["merge"] = time.perf_counter() - began
        sink.close()
    return {name: 1e6 * taken / records for name, taken in times.items()}


def _dumped(sink: Any, rows: list[Any]) -> bytes:
    piece = sink.encode([None] * len(rows), rows, [0] * len(rows))
    dumped: bytes = lz4.frame.compress(pickle.dumps(piece, 5))
    return dumped
