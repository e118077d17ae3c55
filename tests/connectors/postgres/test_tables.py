"""A table that is kept by the changes of one in Postgres, and written back, is that table: through kills as well."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg
import pytest

from malflow.snapshot import FsspecBackend, read_state
from tests.connectors.postgres.kit import Database, slot_name
from tests.connectors.postgres.writer import writing
from tests.kit.killing import POINTS, kill_child, run_child
from tests.kit.nights import NIGHTLY

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.postgres.tabling"
KILLS = 30 if NIGHTLY else 2
DOCUMENTS = """
create table documents (id int primary key, state text, body text);
alter table documents alter column body set storage external;
insert into documents select i, 'old', repeat(i::text, case when i % 3 = 0 then 1000 else 1 end)
from generate_series(1, 500) i;
create table copy (like documents including all)
"""


def write(dsn: str, stop: threading.Event, seed: int) -> None:
    """Change rows, some with large values, which updates do not send; move small ones to other keys."""
    rng, last = random.Random(seed), 500
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not stop.wait(0.002):
            with connection.transaction():
                for _ in range(rng.randint(1, 5)):
                    kind, key = rng.random(), rng.randint(1, last)
                    last += 1
                    if kind < 0.3:
                        body = str(last) * rng.choice([1, 1000])
                        connection.execute("insert into documents values (%s, 'new', %s)", (last, body))
                    elif kind < 0.7:
                        connection.execute("update documents set state = %s where id = %s", (str(kind), key))
                    elif kind < 0.8:
                        connection.execute("delete from documents where id = %s", (key,))
                    else:
                        moved = "update documents set id = %s where id = %s and length(body) < 99"
                        connection.execute(moved, (last, key))


@pytest.mark.fault("L7")
def test_a_table_of_changes_is_the_table_that_changed(database: Database, tmp_path: Path) -> None:
    database.connection.execute(DOCUMENTS)
    arguments = (tmp_path, database.dsn, slot_name())
    rng = random.Random(1)
    with writing(database.dsn, 0, write):
        for number in range(KILLS):
            kill_child(PROGRAM, *arguments, point=f"{rng.choice(POINTS)}:{3 + number % 5}")
    run_child(PROGRAM, *arguments, "ends")
    documents = database.rows("select * from documents order by id")
    assert database.rows("select * from copy order by id") == documents
    states = dict(read_state(FsspecBackend((tmp_path / "snapshots").as_uri()), "table"))
    assert sorted(tuple(row.values()) for row in states.values()) == documents
    assert any(len(body) > 1000 and state not in ("old", "new") for _, state, body in documents), "a value was not sent"
