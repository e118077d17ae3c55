"""The Postgres sink beside a bare COPY and upsert, and its changes beside a bare decoder of pgoutput."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import count
from statistics import median
from struct import Struct
from typing import Any

import psycopg
from psycopg import sql
from tables import print_table

from malflow.connectors.postgres import PostgresChanges, PostgresSink
from malflow.connectors.postgres.changes.replication import ReplicationStream
from malflow.runtime.process_state import rarer_collections
from malflow.sinks import SinkOwner

_NAME = "malflow_bench"
_BATCH = 8_192

__all__ = ["measure"]
_SHORT, _INT, _LSN = Struct(">h").unpack_from, Struct(">i").unpack_from, Struct(">q").unpack_from

Rows = list[dict[str, Any]]


def rows(records: int) -> Rows:
    return [{"id": number, "name": f"name {number}", "total": number * 3} for number in range(records)]


def bare_upsert(connection: psycopg.Connection[Any], data: Rows) -> Callable[[], None]:
    connection.execute(
        sql.SQL("drop table if exists stage; create temp table stage (id bigint, name text, total bigint)")
    )
    upsert = sql.SQL(
        "insert into {} select * from stage order by id on conflict (id) do update "
        "set name = excluded.name, total = excluded.total"
    ).format(sql.Identifier(_NAME))

    def run() -> None:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("truncate stage")
            with cursor.copy("copy stage from stdin") as copy:
                for row in data:
                    copy.write_row((row["id"], row["name"], row["total"]))
            cursor.execute(upsert)

    return run


def sink_upsert(dsn: str, data: Rows) -> tuple[Callable[[], None], Callable[[], None]]:
    sink = PostgresSink(dsn, _NAME)
    sink.fence(SinkOwner(_NAME, "sink", 1))
    numbers = count(1 + sink.fence(SinkOwner(_NAME, "sink", 1)))

    def run() -> None:
        for at in range(0, len(data), _BATCH):
            batch = data[at : at + _BATCH]
            sink.sink_batch([None] * len(batch), batch, range(len(batch)))
        handle = sink.prepare(next(numbers))
        if handle is not None:
            sink.commit([handle])

    return run, sink.close


class BareDecoder:
    """What one would write by hand for `pgoutput`: kinds, tables, and rows as dicts of texts."""

    def __init__(self) -> None:
        self.relations: dict[int, list[str]] = {}
        self.commit = 0

    def row(self, data: bytes, at: int, names: list[str]) -> dict[str, Any]:
        """Return the row at an offset."""
        (width,) = _SHORT(data, at)
        at, row = at + 2, {}
        for name in names[:width]:
            kind, at = data[at : at + 1], at + 1
            if kind == b"n":
                row[name] = None
                continue
            (size,) = _INT(data, at)
            row[name] = data[at + 4 : at + 4 + size].decode()
            at += 4 + size
        return row

    def __call__(self, data: bytes) -> tuple[str, dict[str, Any]] | None:
        """Return the change that a message is."""
        kind = data[25:26]
        if kind == b"I":
            names = self.relations[_INT(data, 26)[0]]
            return "insert", self.row(data, 31, names)
        if kind == b"R":
            self.relations[_INT(data, 26)[0]] = ["id", "name", "total"]
        elif kind == b"C":
            (self.commit,) = _LSN(data, 35)
        return None


def bare_changes(stream: ReplicationStream, records: int) -> None:
    """Decode in batches, as `poll_batch` does."""
    seen, decode, batch = 0, BareDecoder(), []
    while seen < records:
        data = stream.receive()
        if data is None:
            time.sleep(0.001)
            continue
        change = decode(data)
        if change is None:
            continue
        batch.append(change)
        seen += 1
        if len(batch) >= _BATCH:
            batch = []


def measured_changes(dsn: str, position: tuple[Any, ...], records: int) -> float:
    reader = PostgresChanges(dsn, [_NAME], slot=_NAME).build_part(_NAME, position)
    seen, begun = 0, time.process_time()
    while seen < records:
        changes, _ = reader.poll_batch(_BATCH)
        seen += len(changes)
        if not changes:
            time.sleep(0.001)
    spent = time.process_time() - begun
    reader.suspend()
    return spent


def cpu(run: Callable[[], None]) -> tuple[float, float]:
    gc.collect()
    wall, begun = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - begun


def sinks_table(dsn: str, records: int, rounds: int) -> None:
    data = rows(records)
    with psycopg.connect(dsn, autocommit=True) as connection:
        bare = bare_upsert(connection, data)
        ours, close = sink_upsert(dsn, data)
        times: dict[str, list[tuple[float, float]]] = {"bare": [], "sink": []}
        for _ in range(rounds):
            for name, run in (("bare", bare), ("sink", ours)):
                connection.execute(sql.SQL("truncate {}").format(sql.Identifier(_NAME)))
                times[name].append(cpu(run))
        close()
    lines = []
    for name, title in (("bare", "COPY and upsert, by hand"), ("sink", "PostgresSink, exactly once")):
        wall = median(taken for taken, _ in times[name])
        spent = median(taken for _, taken in times[name])
        ratio = median(bare[0] / own[0] for bare, own in zip(times["bare"], times[name], strict=True))
        lines.append([title, f"{records / wall:,.0f}", f"{records / spent:,.0f}", f"{ratio:.2f}"])
    print_table(["rows upserted", "rows/s", "rows per CPU s of the client", "rate / by hand"], lines)


def changes_table(dsn: str, records: int, rounds: int) -> None:
    source = PostgresChanges(dsn, [_NAME], slot=_NAME)
    source.drop_slot()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("truncate {}").format(sql.Identifier(_NAME)))
        reader = source.build_part(_NAME, None)
        while reader.snapshot()[0] != "stream":
            reader.poll_batch(1)
        position = reader.snapshot()
        reader.suspend()
        fill = "insert into {} select i, 'name ' || i, i * 3 from generate_series(1, {}) i"
        connection.execute(sql.SQL(fill).format(sql.Identifier(_NAME), sql.Literal(records)))
    bare, ours = [], []
    for _ in range(rounds):
        stream = opened(source, position)
        bare.append(cpu(lambda stream=stream: bare_changes(stream, records))[1])  # type: ignore[misc]
        stream.close()
        time.sleep(0.5)
        ours.append(measured_changes(dsn, position, records))
        time.sleep(0.5)
    source.drop_slot()
    ratio = median(own / hand for own, hand in zip(ours, bare, strict=True))
    lines = [
        ["bare decoder, texts", f"{records / median(bare):,.0f}", "1.00"],
        ["PostgresChanges", f"{records / median(ours):,.0f}", f"{ratio:.2f}"],
    ]
    print_table(["changes decoded", "changes per CPU s", "cost / bare"], lines)


def opened(source: PostgresChanges, position: tuple[Any, ...]) -> ReplicationStream:
    server = source._options.server  # noqa: SLF001 - the bare decoder reads the same stream
    while True:
        try:
            return ReplicationStream(server, _NAME, position[2], _NAME)
        except psycopg.errors.ObjectInUse:
            time.sleep(0.2)


def measure(dsn: str, records: int, rounds: int) -> None:
    """Measure the sink, then the changes, and print a table of each."""
    make = "create table {} (id bigint primary key, name text, total bigint)"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(_NAME)))
        connection.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(_NAME)))
        connection.execute(sql.SQL(make).format(sql.Identifier(_NAME)))
    with rarer_collections():  # as in a run
        sinks_table(dsn, records, rounds)
        print()
        changes_table(dsn, records, rounds)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(_NAME)))
        connection.execute(sql.SQL("drop table {}").format(sql.Identifier(_NAME)))
