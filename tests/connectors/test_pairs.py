"""From one system into another, exactly once: jobs that are killed while records are added."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import deltalake
import psycopg
import pyarrow.parquet as pq
import pytest

from tests.connectors.kafka.kit import Broker
from tests.connectors.pairs_program import OUTPUT

ROOT = Path(__file__).parents[2]
EACH = 40
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
POINTS = ["prepared", "before-manifest", "manifest-written", "before-commit", "committed"]
"""Where a job dies, one after the other."""


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

    def run(self, point: str = "") -> int:
        """Run the job to its end, or to its death; return its exit code."""
        arguments = [self.source, self.sink, str(self.folder), self.servers, self.dsn, self.name]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "tests.connectors.pairs_program", *arguments],
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MALFLOW_FAILPOINT": point},
            capture_output=True,
            timeout=300,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        return done.returncode

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
    for point in POINTS if NIGHTLY else POINTS[::3]:
        pair.add()
        assert pair.run(point) == -signal.SIGKILL
        seen = pair.found()
        assert sorted(set(seen)) == sorted(seen)
    pair.add()
    assert pair.run() == 0
    assert sorted(pair.found()) == list(range(pair.added))
