"""Tables for look-ups by their URL."""

from __future__ import annotations

import importlib.metadata
import sqlite3
import tomllib
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, SingleThreadRuntime, connect
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the entry points of the project, which may not be those installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = [
        importlib.metadata.EntryPoint(name, value, group)
        for group, entries in project["entry-points"].items()
        for name, value in entries.items()
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", importlib.metadata.EntryPoints(points).select)


def test_records_are_joined_with_the_rows_of_a_url(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "towns.db")) as database, database:
        database.execute("create table towns (name text primary key, people int)")
        database.execute("insert into towns values ('Ulm', 130000)")
    found: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        names = provider.new_stream().source("names", SingleIteratorSource(["Ulm", "Aue"]))
        table = connect(f"sqlite:///{tmp_path}/towns.db/towns?key=name&columns=people", row=lambda **row: row["people"])
        names.lookup("people", None, table, lambda name, people: (name, people)).sink("found", found)

    SingleThreadRuntime(build).execute()
    assert found.values == [("Ulm", 130_000), ("Aue", None)]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:hush@h:7/3/users?decode=json&retry_for=5s", "RedisLookup('users' at h:7/3)"),
        ("rediss://h?prefix=user:", "RedisLookup('user:*' at h:6379/0)"),
        ("postgres://u:hush@h:7/shop/eu.users?key=id", "PostgresLookup(host=h port=7 dbname=shop, 'eu.users')"),
        ("postgresql://h/shop/users", "PostgresLookup(host=h dbname=shop, 'users')"),
        ("mysql+pymysql://u:hush@h/shop/users?driver.charset=utf8mb4", "SqlLookup(mysql+pymysql://h/shop, 'users')"),
        ("https://u:hush@h/users/{}?retries=2&timeout=1.5", "HttpLookup('https://h/...')"),
        ("http://h/users?batch=10&settings.ca_certs=ca.pem", "HttpLookup('http://h/...')"),
    ],
)
def test_kinds_of_tables(url: str, shown: str) -> None:
    assert repr(connect(url).lookup()) == shown


def test_options_reach_the_table() -> None:
    table: Any = connect("https://h/users/{}?retries=2", timeout=1.5, headers={"X-Key": "hush"}).lookup()
    assert table._options["retries"] == 2
    assert table._options["timeout"] == 1.5
    assert table._by_url
    of_redis: Any = connect("redis://h/users", retry_for=timedelta(seconds=3)).lookup()
    assert of_redis._server.retry_for == 3


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://u:hush@h/users?decod=json", "has no option 'decod'; did you mean 'decode'?"),
        (
            "redis://u:hush@h/users?retry_for=long",
            "RedisLookup retry_for must be a time of zero or more, such as '10s'",
        ),
        ("redis://u:hush@h", "needs table='...', a hash, or prefix='...'"),
        ("postgres://u:hush@h/shop", "has no table; write it after the database"),
        ("mysql+pymysql://u:hush@h", "has no table; write it after the database"),
        ("kafka://u:hush@h/users", "can't be asked for rows by key: its connector does not support it"),
        ("users.csv", "can't be asked for rows by key: its connector does not support it"),
        ("rediz://u:hush@h/users", "no connector for scheme 'rediz'; did you mean 'redis'?"),
        ("xyzzy://u:hush@h/users", "as entry points of 'malflow.sources', 'malflow.sinks' and 'malflow.lookups'"),
    ],
)
def test_refused_tables(url: str, words: str) -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("keys", SingleIteratorSource([1]))
        stream.lookup("users", None, connect(url), lambda key, row: row)

    with pytest.raises(GraphError) as refused:
        SingleThreadRuntime(build).execute()
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)
