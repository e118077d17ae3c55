"""Exactly-once sinks on Spark: records a second, and the driver's processor time a record."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.runtime.spark.session.session import leave_session, make_session
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl

__all__ = ["measure_sink", "new_table", "table_sink"]

_WORKERS = 2
_EVERY = timedelta(seconds=4)
_TABLES = {"rows": "", "keyed": ", primary key (n, part)"}


class _Rows(StatefulSourceImpl[str, Any, int, int]):
    """Rows with four fields, in one part for each worker."""

    def __init__(self, records: int) -> None:
        self._records = records

    def list_parts(self) -> list[str]:
        return [str(worker) for worker in range(_WORKERS)]

    def build_part(self, part: str, state: int | None) -> Any:
        return _Part(int(part), state or 0, self._records // _WORKERS)


class _Part:
    def __init__(self, part: int, at: int, end: int) -> None:
        self._part, self._at, self._end = part, at, end

    def poll_batch(self, limit: int) -> tuple[list[Any], list[int]]:
        at, self._at = self._at, min(self._end, self._at + limit)
        numbers = range(at, self._at)
        rows = [{"part": self._part, "n": n, "price": n * 0.25, "name": f"name {n % 1000}"} for n in numbers]
        return rows, [*numbers]

    def is_finished(self) -> bool:
        return self._at >= self._end

    def snapshot(self) -> int:
        return self._at


def measure_sink(kind: str, records: int, where: str, dsn: str = "") -> dict[str, float]:
    """Run a dataflow into a sink; return records a second, and the driver's microseconds of processor time a record.

    Args:
        kind: ``parquet``, ``delta``, ``rows`` or ``keyed``: tables of Postgres, without and with a key.
        records: the number of records.
        where: ``workers`` or ``driver``, which writes.
        dsn: the database of the tables.
    """
    session, _ = make_session()
    on_workers = where == "workers"
    with tempfile.TemporaryDirectory() as folder:
        for size in (records // 10, records):
            target = new_table(dsn, kind) if kind in _TABLES else str(Path(folder, f"out-{size}"))
            backend = FsspecBackend(f"{folder}/state", job=f"sink-{size}")
            runtime = SparkRuntime(
                lambda provider, size=size, target=target: _flow(provider, size, _sink(kind, target, on_workers, dsn)),  # type: ignore[misc] # mypy does not infer defaults
                backend,
                _EVERY,
                _WORKERS,
                spark=session,
            )
            began, used = time.perf_counter(), time.process_time()
            runtime.execute()
            took, used = time.perf_counter() - began, time.process_time() - used
        state = sum(path.stat().st_size for path in Path(folder, "state").rglob("*") if path.is_file())
        files = len([*Path(folder, f"out-{records}").glob("*.parquet")])
    leave_session()
    return {"records/s": records / took, "driver us": 1e6 * used / records, "state bytes": state, "files": files}


def new_table(dsn: str, kind: str) -> str:
    """Create an empty table of a database; return its name."""
    import psycopg  # noqa: PLC0415 - only the extra has it

    name = f"malflow_bench_{kind}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        columns = f"(part int, n bigint, price float8, name text{_TABLES[kind]})"
        connection.execute(f"drop table if exists {name}; create table {name} {columns}".encode())
        connection.execute("checkpoint")
    return name


def table_sink(kind: str, table: str, dsn: str, *, on_workers: bool = True) -> Any:
    """Return a sink of such a table."""
    from malflow.connectors.postgres import PostgresSink  # noqa: PLC0415 - only the extra has it

    key = () if kind == "rows" else None
    return PostgresSink(dsn, table, key=key, columns=["part", "n", "price", "name"], on_workers=on_workers)


def _sink(kind: str, target: str, on_workers: bool, dsn: str) -> Any:
    if kind in _TABLES:
        return table_sink(kind, target, dsn, on_workers=on_workers)
    if kind == "delta":
        from malflow.connectors.delta import DeltaSink  # noqa: PLC0415 - only the extra has it

        return DeltaSink(target, on_workers=on_workers)
    from malflow.connectors.parquet import ParquetSink  # noqa: PLC0415 - as above

    return ParquetSink(target, on_workers=on_workers)


def _flow(provider: StreamProvider, records: int, sink: Any) -> None:
    numbers: Any = provider.new_stream().source("rows", StatefulSource(_Rows(records)))
    numbers.key_distribute("key", _key).sink("out", sink)


def _key(message: Any) -> int:
    return int(message.value["n"]) % 1024
