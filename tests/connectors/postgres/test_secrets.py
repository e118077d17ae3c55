import logging
import pickle
import traceback
from datetime import timedelta

import pytest

from malflow.connectors.postgres import PostgresChanges, PostgresSink, PostgresSource
from malflow.errors import MalflowError
from tests.connectors.postgres.kit import Database, poll_until, read_all, slot_name

SECRET = " ".join(("s3cr3t-pass", "word"))
DSN = f"host=127.0.0.1 port=1 user=u password='{SECRET}' dbname=d connect_timeout=2"


def test_repr_has_no_password() -> None:
    things = [
        PostgresSource(DSN, "t"),
        PostgresChanges(DSN, ["t"], slot="s"),
        PostgresSink(DSN, "t"),
        PostgresSource(f"postgresql://u:{SECRET.replace(' ', '%20')}@h/d", "t"),
    ]
    assert not [thing for thing in things if "s3cr3t" in repr(thing)]


def read_table(dsn: str) -> None:
    read_all(PostgresSource(dsn, "t", retry_for=timedelta(0)).build_part("t", None))


UNREADABLE = [
    f"host=h pass {SECRET}",
    f"postgresql://u:{SECRET}@[::",
    f"{DSN} replication=1",
    f"postgresql://u:a@{SECRET}@h/d",
    f"postgres://u:a/{SECRET}@h/d",
]


@pytest.mark.parametrize("dsn", [DSN, *UNREADABLE])
def test_errors_have_no_password(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(MalflowError) as caught:
        read_table(dsn)
    text = "".join(traceback.format_exception(caught.value))
    assert "s3cr3t" not in text
    assert "s3cr3t" not in caplog.text


def test_positions_have_no_password(database: Database) -> None:
    database.execute("create table t (id int primary key); insert into t values (1)")
    dsn = f"{database.dsn} password='{SECRET}'"
    source = PostgresChanges(dsn, ["t"], slot=slot_name())
    reader = source.build_part("s", None)
    poll_until(reader, len)
    assert b"s3cr3t" not in pickle.dumps(reader.snapshot())
    reader.suspend()
