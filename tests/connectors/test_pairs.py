"""From one system into another, exactly once: jobs that are killed while records are added."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import deltalake
import psycopg
import pyarrow.parquet as pq
import pytest

from tests.connectors.kafka.kit import Broker
from tests.connectors.pairs_program import OUTPUT
from tests.kit.killing import NIGHTLY, POINTS, kill_child, run_child

PROGRAM = "tests.connectors.pairs_program"
EACH = 40


class Pair:
    """A source with records, and a job that writes them elsewhere."""

    def __init__(self, source: str, sink: str, folder: Path, servers: str, dsn: str) -> None:
        self.source, self.sink, self.folder, self.servers, self.dsn = source, sink, folder, servers, dsn
        self.name = f"pair{uuid4().hex[:12]}"
        self.added = 0
        self.sql(f"create table {self.name} (n int primary key)")
        self.sql(f"create table {self.name}_out (n int, nth int)")
        if source == "kafka":
            self.broker = Broker(servers)
            self.name = self.broker.topic(2)
            self.sql(f'create table "{self.name}_out" (n int, nth int)')

    def sql(self, text: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(text.encode())

    def add(self) -> None:
        """Add records that the job has not seen."""
        numbers = range(self.added, self.added + EACH)
        self.added += EACH
        if self.source == "kafka":
            for part in range(2):
                self.broker.write(self.name, [json.dumps(it).encode() for it in numbers if it % 2 == part], part)
        else:
            values = ", ".join(f"({it})" for it in numbers)
            self.sql(f"insert into {self.name} values {values}")  # noqa: S608 - a name of ours

    def run(self, point: str = "") -> None:
        """Run the job to its end, or until it is killed at a point."""
        arguments = self.source, self.sink, self.folder, self.servers, self.dsn, self.name
        if point:
            kill_child(PROGRAM, *arguments, point=point)
        else:
            run_child(PROGRAM, *arguments)

    def found(self) -> list[int]:
        """Return the numbers that a reader of the output sees."""
        output = self.folder / OUTPUT
        if self.sink == "postgres":
            with psycopg.connect(self.dsn) as connection:
                return [n for (n,) in connection.execute(f'select n from "{self.name}_out"')]  # noqa: S608
        if self.sink == "parquet":
            return [n for file in output.glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()]
        if not deltalake.DeltaTable.is_deltatable(str(output)):
            return []
        files = deltalake.DeltaTable(str(output)).file_uris()
        return [n for file in files for n in pq.read_table(file)["n"].to_pylist()]

    def close(self) -> None:
        """Drop the slot, if there is one."""
        slots = f"pg_replication_slots where slot_name = '{self.name}'"
        self.sql(f"select pg_drop_replication_slot(slot_name) from {slots}")  # noqa: S608


@pytest.fixture(params=[("kafka", "postgres"), ("changes", "parquet"), ("changes", "delta")], ids="_to_".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path, kafka_servers: str, postgres_dsn: str) -> Iterator[Pair]:
    source, sink = request.param
    made = Pair(source, sink, tmp_path, kafka_servers, postgres_dsn)
    yield made
    made.close()


@pytest.mark.fault("A7")
def test_kills_between_two_systems_lose_and_double_nothing(pair: Pair) -> None:
    for point in POINTS if NIGHTLY else ["prepared", "before-commit"]:
        pair.add()
        pair.run(point)
        seen = pair.found()
        assert sorted(set(seen)) == sorted(seen)
    pair.add()
    pair.run()
    assert sorted(pair.found()) == list(range(pair.added))
