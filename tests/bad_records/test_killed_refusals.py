"""Jobs whose target refuses records, killed around each step: each record is delivered once, or is one dead letter."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from malflow.snapshot import dead_letters, snapshots
from tests.bad_records.programs.refusing import REFUSED, VALUES, backend_of
from tests.bad_records.refusing_service import refusing_service
from tests.kit.killing import kill_child, run_child
from tests.kit.nights import NIGHTLY, only_nightly
from tests.servers.plugin import SERVER

PROGRAM = "tests.bad_records.programs.refusing"
GOOD = [it for it in VALUES if it > 0]

FIRST = ["before-manifest", "manifest-written", "before-commit", "divided", "amended", "committed"]
"""The points around the second transaction, the first of which records are refused."""

POINTS = [*(f"{point}:2" for point in FIRST), "divided:1", "amended:1", "before-commit:3", "committed:3"]
SHORT = ["committed:2"]
REPLAYS = ["before-manifest:1", "manifest-written:1", "before-commit:1", "committed:1"]

pytestmark = [pytest.mark.slow, pytest.mark.fault("A7", "N18")]


@dataclass
class Target:
    """A target that refuses negative numbers until it is mended."""

    address: str
    values: Callable[[], list[Any]]
    mend: Callable[[], object]


@pytest.fixture
def service() -> Iterator[Target]:
    with refusing_service() as made:
        yield Target(made.url, lambda: made.values, made.mend)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Target]:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path, isolation_level=None) as shop:
        shop.execute("create table t (n int)")
        shop.execute("create trigger no before insert on t when new.n < 0 begin select raise(abort, 'negative'); end")
        yield Target(
            f"sqlite:///{path}",
            lambda: [n for (n,) in shop.execute("select n from t")],
            lambda: shop.execute("drop trigger no"),
        )
    shop.close()


@pytest.fixture
def postgres(postgres_dsn: str) -> Iterator[Target]:
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_dsn, autocommit=True) as server:
        server.execute(f"create database {name}")
        dsn = make_conninfo(postgres_dsn, dbname=name)
        with psycopg.connect(dsn, autocommit=True) as shop:
            shop.execute("create table t (n int constraint positive check (n > 0))")
            yield Target(
                dsn,
                lambda: [n for (n,) in shop.execute("select n from t")],
                lambda: shop.execute("alter table t drop constraint positive"),
            )
        server.execute(f"drop database {name} with (force)")


@pytest.fixture(params=["sqlite", *(["service", pytest.param("postgres", marks=SERVER)] if NIGHTLY else [])])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


def letters(folder: Path) -> list[int]:
    """Return the numbers in dead letters; in rows of Postgres they are texts."""
    backend = backend_of(folder)
    values = [it.value for it in dead_letters(backend, "out")] if any(snapshots(backend)) else []
    return [int(it["n"]) if isinstance(it, dict) else it for it in values]


def assert_none_twice(target: Target, folder: Path) -> None:
    """Check what a killed job leaves: no record twice, and no letter of a good record."""
    seen = Counter([*target.values(), *letters(folder)])
    assert not seen - Counter(VALUES), seen
    assert set(letters(folder)) <= set(REFUSED)


def assert_continues(target: Target, folder: Path, *, is_mended: bool = False) -> None:
    """Check that the rest is delivered and, once the target is mended, a replay delivers the letters."""
    run_child(PROGRAM, folder, target.address)
    if not is_mended:
        assert sorted(target.values()) == GOOD
        assert sorted(letters(folder)) == sorted(REFUSED)
        target.mend()
    run_child(PROGRAM, folder, target.address, "replay")
    assert sorted(target.values()) == sorted(VALUES)
    assert letters(folder) == []


@pytest.mark.parametrize("point", POINTS if NIGHTLY else SHORT)
def test_a_record_is_delivered_or_a_letter_once(target: Target, tmp_path: Path, point: str) -> None:
    for _ in range(2 if NIGHTLY and point.endswith(":1") else 1):
        kill_child(PROGRAM, tmp_path / "state", target.address, point=point)
        assert_none_twice(target, tmp_path / "state")
    assert_continues(target, tmp_path / "state")


@only_nightly
@pytest.mark.parametrize("point", REPLAYS)
def test_a_replay_delivers_a_letter_once(target: Target, tmp_path: Path, point: str) -> None:
    run_child(PROGRAM, tmp_path / "state", target.address)
    target.mend()
    kill_child(PROGRAM, tmp_path / "state", target.address, "replay", point=point)
    assert_none_twice(target, tmp_path / "state")
    assert_continues(target, tmp_path / "state", is_mended=True)
