"""Changes to Postgres exactly once, through crashes of the program and of the server at each point of a snapshot.

MALFLOW_CRASH_ROUNDS=10 runs all of them ten times.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from malflow.connectors.postgres import Change
from tests.connectors.postgres.kit import Database, StrictCopy, slot_name
from tests.connectors.postgres.writer import ACCOUNTS, TOTAL, move_amounts, writing
from tests.servers.postgres import Postgres

ROOT = Path(__file__).parents[3]
ROUNDS = int(os.environ.get("MALFLOW_CRASH_ROUNDS", "1"))
PATIENCE = 60
FAILPOINTS = ("before-prepare:9", "prepared:9", "before-manifest:6", "manifest-written:6")


class Job:
    """A job that copies `orders`, run after run, each in a process of its own."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder, self.slot = database, folder, slot_name()
        database.connection.execute(ACCOUNTS)

    def start(self, **options: Any) -> subprocess.Popen[str]:
        failpoint = {"MALFLOW_FAILPOINT": options.pop("failpoint")} if "failpoint" in options else {}
        given = {"dsn": self.database.dsn, "slot": self.slot, "folder": str(self.folder), **options}
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.connectors.postgres.copying", json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, **failpoint},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **options: Any) -> int:
        """Return how a run ends; its words are shown if it ends by itself."""
        process = self.start(**options)
        _, words = process.communicate(timeout=PATIENCE)
        if process.returncode > 0:
            sys.stderr.write(words)
        return process.returncode

    def check(self) -> None:
        """Check that the copy and the log, applied strictly, are the table."""
        assert self.run(ends=True) == 0
        orders = self.database.rows("select * from orders order by id")
        assert self.database.rows("select * from copy order by id") == orders
        copy = StrictCopy()
        for line in self.database.rows("select kind, old, new from log order by n"):
            copy.apply(Change(line[0], "orders", line[1], line[2], 0, None))
        assert copy.rows("orders") == orders


@contextmanager
def reading(dsn: str) -> Iterator[list[int]]:
    """Read the sum of the copy all the time: every transaction must be seen whole. It is caught up at the beginning."""
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.002):
            with suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as connection:
                while not stop.wait(0.002):
                    row = connection.execute("select coalesce(sum(amount), 0) from copy").fetchone()
                    seen.append(int(row[0]) if row else 0)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert len(seen) > 10
    assert set(seen) == {TOTAL}


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_program_killed_at_each_point(database: Database, tmp_path: Path, seed: int) -> None:
    job = Job(database, tmp_path)
    with writing(database.dsn, seed, move_amounts):
        for failpoint in ("prepared:2", "manifest-written:4"):  # amid the first copy
            assert job.run(failpoint=failpoint) == -signal.SIGKILL, failpoint
        assert job.run(ends=True) == 0
        with reading(database.dsn):
            for failpoint in FAILPOINTS:
                assert job.run(failpoint=failpoint) == -signal.SIGKILL, failpoint
            for point in ("before-commit", "amid-commit", "after-commit"):
                assert job.run(at=point, do="program") == -signal.SIGKILL, point
    job.check()


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_server_killed_amid_commits(own_postgres: Callable[[], Postgres], tmp_path: Path, seed: int) -> None:
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        job = Job(Database(server.address, connection), tmp_path)
    assert job.run(ends=True) == 0
    with reading(server.address):
        for at, do in (("before-commit", "server"), ("amid-commit", "server"), ("amid-commit", "server and program")):
            with suppress(psycopg.OperationalError), writing(server.address, seed, move_some):
                process = job.start(at=at, do=do)
                crash_server(server, tmp_path / "kill-the-server")
                if do == "server":
                    time.sleep(1)
                    assert process.poll() is None
                    process.send_signal(signal.SIGTERM)
                _, words = process.communicate(timeout=PATIENCE)
                assert process.returncode == (0 if do == "server" else -signal.SIGKILL), words
        with psycopg.connect(server.address, autocommit=True) as connection:
            job.database = Database(server.address, connection)
            job.check()


def move_some(dsn: str, stop: threading.Event, seed: int) -> None:
    with suppress(psycopg.OperationalError):
        move_amounts(dsn, stop, seed)


def crash_server(server: Postgres, flag: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not flag.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.kill()
    flag.unlink()
    time.sleep(0.2)
    server.start()


def test_zombie_that_wakes_up(database: Database, tmp_path: Path) -> None:
    job = Job(database, tmp_path)
    assert job.run(ends=True) == 0
    with reading(database.dsn):
        for point in ("before-commit", "amid-commit"):
            with writing(database.dsn, 1, move_some):
                zombie = job.start(at=point, do="stop")
                os.waitid(os.P_PID, zombie.pid, os.WSTOPPED)
                if point == "amid-commit":  # it holds the ledger's row; the server ends it, here at once
                    database.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where state = 'idle in transaction' and application_name = 'malflow'"
                    )
                assert job.run(ends=True) == 0
                zombie.send_signal(signal.SIGCONT)
                _, words = zombie.communicate(timeout=PATIENCE)
                assert "FencedError" in words
        job.check()
