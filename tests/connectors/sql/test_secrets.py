"""No password of a URL, of the settings, or of a driver's options shows."""

from __future__ import annotations

import logging
import pickle
import traceback
from datetime import timedelta
from typing import Any

import pytest

from malflow.connectors.address import Address
from malflow.connectors.option_texts import options_for
from malflow.connectors.sql import SqlError, SqlSink, by_name
from malflow.errors import GraphError, MalflowError
from tests.connectors.sql.kit import Database, owner, write

SECRET = "".join(("s3cr3t", "-word"))
POSTGRES = f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d?sslpassword={SECRET}"
ODBC = f"postgresql+psycopg://h/d?options=DRIVER%3Dx%3BPWD%3D%7B{SECRET}%7D"


def test_pickled_copy_without_secrets(sqlite: Database) -> None:
    sqlite.execute("create table t (id int primary key)")
    copy = pickle.loads(pickle.dumps(SqlSink(sqlite.url, "t")))
    assert copy.fence(owner()) == 0
    copy.close()


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("url", [POSTGRES, ODBC, f"mysql+pymysql://u:{SECRET}@h/d"])
def test_repr_and_pickle(url: str) -> None:
    sink: Any = SqlSink(url, "t", settings={"connect_args": {"password": SECRET}})
    assert SECRET not in repr(sink)
    copy = pickle.dumps(sink)
    assert SECRET.encode() not in copy
    with pytest.raises(SqlError, match="has no password, since it was pickled"):
        pickle.loads(copy).fence(owner())


@pytest.mark.parametrize("url", [POSTGRES, f"mysql+pymysql://u:{SECRET}@127.0.0.1:1/d", ODBC])
def test_errors_and_logs_of_a_server_that_is_not_there(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink: Any = SqlSink(url, "t", retry_for=timedelta(0))
    with pytest.raises(SqlError) as caught:
        sink.fence(owner())
    assert SECRET not in shown(caught.value) + caplog.text


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        (f"postgresql+psycopg://u:{SECRET}@[::", {}),
        (f"mysql+pymysql://u:a@{SECRET}@h/d", {}),
        (f"fox://u:{SECRET}@h/d", {}),
        (f"mysql+aiomysql://u:{SECRET}@h/d", {}),
        (f"mysql+pymysql://u:{SECRET}@h/d", {"password": SECRET}),
        (f"mysql+pymysql://u:{SECRET}@h/d", {"isolation_level": "autocommit"}),
        (f"oracle://u:{SECRET}@h/d", {}),
        (f"sqlite://u:{SECRET}@h/d", {}),
    ],
)
def test_errors_of_wrong_arguments(url: str, settings: Any) -> None:
    with pytest.raises(MalflowError) as caught:
        SqlSink(url, "t", settings=settings).fence(owner())
    assert SECRET not in shown(caught.value)


def test_handles_errors_and_logs_of_a_server(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    database.execute("create table t (id int primary key, a int, check (a < 10))")
    url = database.url if database.dialect == "sqlite" else database.url.set(password=SECRET)
    sink: Any = SqlSink(url, "t", settings={"echo": "debug"})
    sink.fence(owner())
    write(sink, (1, 7))
    handle = sink.prepare(1)
    sink.commit([handle])
    write(sink, (1, 71_234_567))
    with pytest.raises(SqlError) as caught:
        sink.prepare(2)
    sink.close()
    assert SECRET.encode() not in pickle.dumps(handle)
    assert SECRET not in shown(caught.value) + caplog.text
    assert "71234567" not in caplog.text.partition("malflow_ledger SET")[2], "the engine's log has no values"


def made(url: str) -> SqlSink:
    address = Address.parse(url)
    return by_name.sink(address, **options_for(by_name.sink, "connect", address.query, {}))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:////data/shop.db/totals?key=a,b", "SqlSink(sqlite:////data/shop.db, 'totals')"),
        ("sqlite:///my%20shop.db/totals", "SqlSink(sqlite:///my shop.db, 'totals')"),
        (f"mysql+pymysql://u:{SECRET}@h:7/d/s.t?driver.charset=utf8mb4", "SqlSink(mysql+pymysql://h:7/d, 's.t')"),
        (f"mysql+pymysql://u:a@{SECRET}@h:7/d/t", "SqlSink(mysql+pymysql://h:7/d, 't')"),
        (f"mariadb+pymysql://u:{SECRET}@[::1]:7/d/t", "SqlSink(mariadb+pymysql://[::1]:7/d, 't')"),
        (f"sql+postgresql+psycopg://u:{SECRET}@h/d/t?retry_for=5s", "SqlSink(postgresql+psycopg://h/d, 't')"),
    ],
)
def test_sinks_by_their_url(url: str, words: str) -> None:
    assert repr(made(url)) == words


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///totals?key=a&colums=b", "did you mean 'columns'"),
        ("mysql+pymysql://h/", "has no table"),
        (f"mysql+pymysql://u:{SECRET}@h:port/d/t", "can't be read"),
    ],
)
def test_urls_that_make_no_sense(url: str, words: str) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        made(url)
    assert SECRET not in shown(caught.value)
