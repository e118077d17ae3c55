"""Numbers into a table, exactly once, whichever process is killed; on all databases under the profile nightly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.connectors.sql.conftest import DATABASES
from tests.connectors.sql.kit import Database
from tests.connectors.sql.program import SIZE
from tests.kit.killing import POINTS, kill_child, parked, run_child, wake
from tests.kit.nights import NIGHTLY

PROGRAM = "tests.connectors.sql.program"
WHOLE = [(number, side) for number in range(SIZE) for side in ("left", "right")]
SHORT = ["before-commit"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("database", DATABASES if NIGHTLY else ["sqlite"], indirect=True),
]


@contextmanager
def watched(database: Database) -> Iterator[str]:
    """Check beside that each transaction is seen whole, in order and once; yield the URL."""
    database.execute("create table t (n int, side varchar(5))")
    wrong: list[object] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            rows = sorted(database.rows("select n, side from t"))
            if rows != WHOLE[: len(rows)] or len(rows) % 2:
                wrong.append(rows)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield database.url.render_as_string(hide_password=False)
    finally:
        ended.set()
        thread.join()
    assert not wrong
    assert sorted(database.rows("select n, side from t")) == WHOLE


@pytest.mark.parametrize("point", POINTS if NIGHTLY else SHORT)
def test_program_killed_at_each_point(database: Database, tmp_path: Path, point: str) -> None:
    with watched(database) as url:
        kill_child(PROGRAM, tmp_path / "state", url, point=f"{point}:3")
        kill_child(PROGRAM, tmp_path / "state", url, point=f"{point}:4")
        run_child(PROGRAM, tmp_path / "state", url)


@pytest.mark.parametrize("point", POINTS if NIGHTLY else ["before-commit"])
@pytest.mark.nightly
def test_program_that_wakes_up_after_another(database: Database, tmp_path: Path, point: str) -> None:
    with watched(database) as url, parked(PROGRAM, tmp_path / "state", url, point=f"{point}:2") as zombie:
        run_child(PROGRAM, tmp_path / "state", url)
        _, errors = wake(zombie)
    assert "FencedError" in errors
