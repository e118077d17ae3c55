"""An older copy of a source's server, or folder, is restored at each point of a snapshot; other records follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from psycopg import sql

from tests.connectors import going_back_program
from tests.connectors.going_back_program import NAME
from tests.kit.going_back import copied, copied_folder, keep_copy, promote_copy
from tests.kit.killing import POINTS, parked, run_child, start_child, wake
from tests.kit.nights import NIGHTLY, at_night
from tests.servers.server import Server

pytestmark = pytest.mark.slow

PROGRAM = going_back_program.__name__
SHORT = ["committed"]
"""The point of the short suite: the position is in a snapshot, and what was read of it is outside."""
LOST = ("KafkaDataLost", "PositionLost", "RedisDataLost", "ReplacedFileError")
"""The errors of sources whose input went back."""


class Input(ABC):
    """Where the numbers are, which go on and on."""

    address: str

    def __init__(self) -> None:
        self.numbers = count()

    def add(self, size: int) -> list[int]:
        """Add numbers; return them."""
        added = list(islice(self.numbers, size))
        self.write(added)
        return added

    @abstractmethod
    def write(self, numbers: list[int]) -> None:
        """Write them."""

    @abstractmethod
    def copy(self) -> Callable[[], object]:
        """Copy what is there; return what puts it back."""


class Served(Input):
    """Numbers on a server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server, self.address = server, server.address

    def copy(self) -> Callable[[], object]:
        return copied(self.server)


class Topic(Served):
    def __init__(self, server: Server) -> None:
        from tests.connectors.kafka.kit import Broker  # noqa: PLC0415

        super().__init__(server)
        self.broker = Broker(server.address)
        self.broker.topic(name=NAME)

    def write(self, numbers: list[int]) -> None:
        self.broker.write(NAME, [b"%d" % number for number in numbers])


class Changes(Served):
    def __init__(self, server: Server) -> None:
        super().__init__(server)
        with psycopg.connect(self.address, autocommit=True) as connection:
            table = sql.SQL("create table {} (n int primary key)")
            connection.execute(table.format(sql.Identifier(NAME)))

    def write(self, numbers: list[int]) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            insert = sql.SQL("insert into {} select unnest(%s::int[])").format(sql.Identifier(NAME))
            connection.execute(insert, (numbers,))
            connection.execute("select pg_switch_wal()")

    def copy(self) -> Callable[[], object]:
        keep_copy(self.server)
        return lambda: promote_copy(self.server)


class Stream(Served):
    def write(self, numbers: list[int]) -> None:
        with redis.Redis.from_url(self.address) as client:
            for number in numbers:
                client.xadd(NAME, {"n": number})


class Files(Input):
    """Numbers in files of a folder, each addition in one of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.address = folder, str(folder)
        folder.mkdir()

    def path(self, suffix: str) -> Path:
        return self.folder / f"{len(list(self.folder.iterdir()))}.{suffix}"

    def write(self, numbers: list[int]) -> None:
        self.path("txt").write_text("".join(f"{number}\n" for number in numbers), encoding="utf-8")

    def copy(self) -> Callable[[], object]:
        return copied_folder(self.folder)


class ParquetFiles(Files):
    def write(self, numbers: list[int]) -> None:
        pq.write_table(pa.table({"n": numbers}), self.path("parquet"))


@pytest.fixture(params=at_night(["kafka", "changes", "redis", "lines", "parquet"], but=["lines"]))
def there(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Input]:
    """Return a kind of source, and its input."""
    kind: str = request.param
    if kind in ("lines", "parquet"):
        return kind, {"lines": Files, "parquet": ParquetFiles}[kind](tmp_path / "input")
    name, made = {
        "kafka": ("own_kafka", Topic),
        "changes": ("own_postgres", Changes),
        "redis": ("own_redis", Stream),
    }[kind]
    return kind, made(request.getfixturevalue(name)())


@pytest.mark.parametrize("point", POINTS if NIGHTLY else SHORT)
def test_input_that_goes_back_at_a_point(there: Any, point: str, tmp_path: Path) -> None:
    kind, numbers = there
    arguments = (kind, numbers.address, tmp_path)
    old = numbers.add(6)
    run_child(PROGRAM, *arguments)
    put_back = numbers.copy()
    numbers.add(6)  # what is lost
    with parked(PROGRAM, *arguments, point=point) as child:
        put_back()
        new = numbers.add(12)
        ends = [wake(child)]
    with start_child(PROGRAM, *arguments) as child:
        ends.append((child.wait(120), child.communicate()[1]))
    errors = [text for code, text in ends if code]
    if errors:
        assert any(word in errors[0] for word in LOST), errors[0]
        return
    written = sorted(row["n"] for row in pq.read_table(tmp_path / "out").to_pylist())
    assert [number for number in written if number in (*old, *new)] == [*old, *new]
