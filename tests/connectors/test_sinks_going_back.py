"""An older copy of a sink's output is restored at each point of a snapshot: an error, which persists."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.connectors.kafka.kit import Broker
from tests.connectors.sql.kit import opened
from tests.kit.going_back import copied, copied_folder
from tests.kit.killing import POINTS, SECONDS, parked, run_child, start_child, wake
from tests.kit.nights import NIGHTLY, at_night

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.sinks_back_program"
TABLE = "create table t (n int primary key)"
FILES = ["sqlite", "parquet", "delta", "lines"]
SERVERS = ["postgres", "mariadb", "redis", "kafka"]
OF_SNAPSHOTS = ["data-written", "before-manifest", "manifest-written"]
"""What a sink passes that returns to a position, and has no commits."""
SELECTED = {"lines": ("manifest-written",), "sqlite": ("before-prepare", "before-commit", "committed"), "kafka": ()}
"""The points of a small night, if not the one before a commit; a broker takes minutes."""
LOST = re.compile(
    r"transaction \d+ was committed|later ones were confirmed|was moved, deleted or replaced while it was being written"
    r"|has \d+ bytes, fewer than the \d+ that were written to it"
)


def output_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> tuple[str, Callable[[], Callable[[], None]]]:
    """Return an empty output, and what copies it."""
    if kind in SERVERS:
        server: Any = request.getfixturevalue(f"own_{kind}")()
        return _prepared(kind, server.address), lambda: copied(server)
    path = folder / f"{kind}.out"
    if kind != "sqlite":
        return str(path), lambda: copied_folder(path)
    url = sa.make_url(f"sqlite:///{path}")
    with opened(url) as database:
        database.execute(TABLE)
    return str(url), lambda: copied_folder(path)


def _prepared(kind: str, address: str) -> str:
    if kind == "postgres":
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(TABLE)
    if kind == "kafka":
        Broker(address).topic(name="t")
    if kind != "mariadb":
        return address
    url = sa.make_url(address)
    with opened(url) as database:
        database.execute("create database numbers", "use numbers", TABLE)
    return url.set(database="numbers").render_as_string(hide_password=False)


def ended(*arguments: object) -> str:
    """Return what a program has told of its error."""
    with start_child(PROGRAM, *arguments) as child:
        _, errors = child.communicate(timeout=SECONDS)
    assert child.returncode != 0, "it ended without an error"
    return errors


@pytest.mark.parametrize(
    ("kind", "point"),
    at_night(
        [
            (kind, point)
            for kind in (*FILES, *SERVERS)
            for point in (POINTS if kind != "lines" else OF_SNAPSHOTS)
            if NIGHTLY or point in SELECTED.get(kind, ("before-commit",))
        ],
        but=[("sqlite", "before-commit"), ("lines", "manifest-written")],
    ),
)
def test_older_copy_that_is_put_back_amid_a_run(
    kind: str, point: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    output, copy = output_of(kind, tmp_path, request)
    run_child(PROGRAM, kind, tmp_path / "state", output, 3)
    put_back = copy()
    with parked(PROGRAM, kind, tmp_path / "state", output, 9, point=f"{point}:3") as child:
        put_back()
        code, errors = wake(child)
    assert code != 0, "it ended without an error"
    assert LOST.search(errors), errors
    for _ in range(2):
        errors = ended(kind, tmp_path / "state", output, 12)
        assert LOST.search(errors), errors
