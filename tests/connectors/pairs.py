"""A source of numbers, a job that writes them to another system, and a reader of the committed output."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from subprocess import Popen
from typing import Any
from uuid import uuid4

import psycopg

from tests.connectors.kafka.kit import Broker
from tests.connectors.pairs_program import KEYS, OUTPUT
from tests.kit.killing import kill_child, parked, run_child, start_child

PROGRAM = "tests.connectors.pairs_program"


class Pair:
    """The systems of a job, and its runs.

    Args:
        source, sink: the systems, as `tests.connectors.pairs_program` names them.
        folder: where the job keeps everything.
        servers, dsn: Kafka and Postgres.
    """

    def __init__(self, source: str, sink: str, folder: Path, servers: str, dsn: str) -> None:
        self.source, self.sink, self.folder, self.servers, self.dsn = source, sink, folder, servers, dsn
        self.name = f"pair{uuid4().hex[:12]}"
        self.added = 0
        self.broker = Broker(servers)
        if source == "kafka":
            self.broker.topic(2, self.name)
        else:
            self.sql(f"create table {self.name} (n int primary key)")
        if sink == "kafka":
            self.broker.topic(2, f"{self.name}_out")
        else:
            self.sql(f"create table {self.name}_out (n int, nth int)")

    @property
    def arguments(self) -> list[str]:
        """What the program is given."""
        return [self.source, self.sink, str(self.folder), self.servers, self.dsn, self.name]

    def sql(self, text: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(text.encode())

    def add(self, count: int = 40) -> None:
        """Add numbers that the job has not seen."""
        numbers = range(self.added, self.added + count)
        self.added += count
        if self.source == "kafka":
            for part in range(2):
                self.broker.write(self.name, [json.dumps(it).encode() for it in numbers if it % 2 == part], part)
        else:
            values = ", ".join(f"({it})" for it in numbers)
            self.sql(f"insert into {self.name} values {values}")  # noqa: S608 - a name of ours

    def run(self, *options: str) -> None:
        """Run the job to the current end of the input."""
        run_child(PROGRAM, *self.arguments, *options)

    def kill(self, point: str, *options: str) -> None:
        """Run the job until it is killed at a point; check what is seen then."""
        kill_child(PROGRAM, *self.arguments, *options, point=point)
        self.check()

    def started(self, workers: int) -> Popen[str]:
        """Start the job with a number of workers, slowly."""
        return start_child(PROGRAM, *self.arguments, str(workers))

    def parked(self, point: str, *options: str) -> AbstractContextManager[Popen[str]]:
        """Run the job until it is suspended at a point."""
        return parked(PROGRAM, *self.arguments, *options, point=point)

    def check(self, *, whole: bool = False) -> None:
        """Check that each number that can be seen is there once, and has the count that follows; all, if `whole`."""
        numbers: dict[int, list[int]] = defaultdict(list)
        counts: dict[int, list[int]] = defaultdict(list)
        for row in self._rows():
            numbers[row["n"] % KEYS].append(row["n"])
            counts[row["n"] % KEYS].append(row["nth"])
        for key, found in numbers.items():
            assert len(set(found)) == len(found), f"{found} has a number twice"
            assert sorted(counts[key]) == list(range(len(found)))
        if whole:
            assert sorted(chain.from_iterable(numbers.values())) == list(range(self.added))

    def close(self) -> None:
        """Drop the slot, if there is one."""
        slots = f"pg_replication_slots where slot_name = '{self.name}'"
        self.sql(f"select pg_drop_replication_slot(slot_name) from {slots}")  # noqa: S608

    def _rows(self) -> list[dict[str, Any]]:
        output = self.folder / OUTPUT
        if self.sink == "kafka":
            return [json.loads(value) for part in range(2) for value in self.broker.values(f"{self.name}_out", part)]
        if self.sink == "postgres":
            with psycopg.connect(self.dsn) as connection:
                rows = connection.execute(f"select n, nth from {self.name}_out")  # noqa: S608
                return [{"n": n, "nth": nth} for n, nth in rows]
        import deltalake  # noqa: PLC0415 - pairs of other systems run without it
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        files = [str(file) for file in output.glob("*.parquet")]
        if self.sink == "delta":
            is_table = deltalake.DeltaTable.is_deltatable(str(output))
            files = deltalake.DeltaTable(str(output)).file_uris() if is_table else []
        return [row for file in files for row in pq.read_table(file).to_pylist()]
