"""Changes to Postgres exactly once, through crashes of the program and of the server at each point of a snapshot."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from malflow.connectors.postgres import Change
from tests.connectors.postgres.kit import Database, StrictCopy, slot_name
from tests.connectors.postgres.writer import ACCOUNTS, TOTAL, move_amounts, writing
from tests.kit.killing import kill_child, parked, run_child, wake
from tests.kit.nights import NIGHTLY, only_nightly
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.postgres.copying"
PATIENCE = 60
COPYING = ["prepared:2", "manifest-written:4"]
"""Points amid the first copy."""
STREAMING = ["before-prepare:9", "prepared:9", "before-manifest:6", "manifest-written:6"]
STREAMING += ["sink-commit:4", "amid-commit:4", "sink-after-commit:4"]
ALL = [*STREAMING, "data-written:6", "before-commit:8", "committed:8"]


class Job:
    """A job that copies `orders`, run after run, each in a process of its own."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder, self.slot = database, folder, slot_name()
        database.connection.execute(ACCOUNTS)

    def arguments(self) -> list[object]:
        return [self.folder, self.database.dsn, self.slot]

    def kill(self, point: str) -> None:
        """Run it until it is killed at a point."""
        kill_child(PROGRAM, *self.arguments(), point=point)

    def parked(self, point: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """Run it until it is suspended at a point."""
        return parked(PROGRAM, *self.arguments(), point=point)

    def finish(self) -> None:
        """Run to the current end of the input."""
        run_child(PROGRAM, *self.arguments(), "ends")

    def check(self) -> None:
        """Check that the copy and the log, applied strictly, are the table."""
        self.finish()
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


@pytest.mark.nightly
def test_program_killed_at_each_point(database: Database, tmp_path: Path) -> None:
    job = Job(database, tmp_path)
    with writing(database.dsn, 0, move_amounts):
        for point in COPYING:
            job.kill(point)
        job.finish()
        with reading(database.dsn):
            for point in ALL if NIGHTLY else STREAMING:
                job.kill(point)
    job.check()


@pytest.mark.nightly
def test_server_killed_amid_commits(own_postgres: Callable[[], Postgres], tmp_path: Path) -> None:
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        job = Job(Database(server.address, connection), tmp_path)
    job.finish()
    with reading(server.address):
        for point in ("sink-commit:4", "amid-commit:4"):
            outlive(server, job, point)
        die_together(server, job, "amid-commit:4")
        with psycopg.connect(server.address, autocommit=True) as connection:
            job.database = Database(server.address, connection)
            job.check()


@only_nightly
@pytest.mark.parametrize("point", ALL)
def test_server_killed_at_each_point_and_then_both(
    own_postgres: Callable[[], Postgres], tmp_path: Path, point: str
) -> None:
    server = own_postgres()
    with psycopg.connect(server.address, autocommit=True) as connection:
        job = Job(Database(server.address, connection), tmp_path)
    with job.parked("manifest-written:4") as child:  # amid the first copy
        server.kill()
        child.kill()
        server.start()
    job.finish()
    with reading(server.address):
        outlive(server, job, point)
        die_together(server, job, point)
        with psycopg.connect(server.address, autocommit=True) as connection:
            job.database = Database(server.address, connection)
            job.check()


def outlive(server: Postgres, job: Job, point: str) -> None:
    """Kill the server while a run is at a point and start it again; the run goes on, and then stops when it is told."""
    with writing(server.address, 0, move_some), job.parked(point) as survivor:
        server.kill()
        survivor.send_signal(signal.SIGCONT)  # it asks a server that is away
        time.sleep(0.5)
        server.start()
        time.sleep(1)
        assert survivor.poll() is None
        survivor.send_signal(signal.SIGTERM)
        code, errors = wake(survivor)
        assert code == 0, errors


def die_together(server: Postgres, job: Job, point: str) -> None:
    """Kill the server, and a run that is at a point; start the server again."""
    with writing(server.address, 1, move_some), job.parked(point) as dead:
        server.kill()
        dead.kill()
        server.start()


def move_some(dsn: str, stop: threading.Event, seed: int) -> None:
    with suppress(psycopg.OperationalError):
        move_amounts(dsn, stop, seed)


@pytest.mark.nightly
def test_zombie_that_wakes_up(database: Database, tmp_path: Path) -> None:
    job = Job(database, tmp_path)
    job.finish()
    with reading(database.dsn):
        for point in ALL if NIGHTLY else ("sink-commit:4", "amid-commit:4"):
            with writing(database.dsn, 1, move_some), job.parked(point) as zombie:
                if point == "amid-commit:4":  # it holds the ledger's row; the server ends it, here at once
                    database.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where state = 'idle in transaction' and datname = current_database()"
                        " and application_name = 'malflow'"
                    )
                job.finish()
                _, errors = wake(zombie)
                assert "FencedError" in errors
        job.check()
