"""The suite for sources: it accepts good ones, and names the law that a bad one breaks."""

from __future__ import annotations

import bz2
import gzip
import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, connect
from malflow.sources import CsvSource, JsonLinesSource, StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.testing import ScriptedSource, Timed, assert_source
from malflow.testing.source_laws import SOURCE_LAWS

pytestmark = pytest.mark.slow

ROWS = 23
LINES = "x\ny"


class Numbers(StatefulSourceImpl[str, int, int, Any]):
    """A good source of endless parts, of which subclasses are bad ones."""

    password = "hush"  # noqa: S105 - to be looked for

    def list_parts(self) -> Any:
        return ["a", "b", "c"]

    def build_part(self, part: str, state: Any) -> Any:
        return Reader(part, 0 if state is None else state)


class Reader(StatefulSourcePartition[int, int, Any]):
    size = 9

    def __init__(self, part: str, position: Any) -> None:
        self.part, self.at = part, position

    def poll(self) -> Any:
        if self.at >= self.size:
            return None
        self.at += 1
        return ord(self.part) + self.at, self.at

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Any:
        return self.at

    def go_on_from(self, position: Any) -> bool:
        self.at = position
        return True

    def committed(self, position: Any) -> None:
        """Do nothing."""

    def lag(self) -> int | None:
        return self.size - self.at


class WholeBatchesOnly(Reader):
    """Drops the last records if they don't fill a batch."""

    def poll_batch(self, limit: int) -> Any:
        short = self.size - self.at < limit
        polled = [self.poll() for _ in range(min(limit, self.size - self.at))]
        return ([], []) if short else tuple(zip(*polled, strict=True))


def reading(reader: type[Reader], **attributes: Any) -> Callable[[], Any]:
    """Return a function that makes a source with such readers."""

    def build_part(_source: Any, part: str, state: Any) -> Any:
        return reader(part, 0 if state is None else state)

    return type("Bad", (Numbers,), {"build_part": build_part, **attributes})


class Restarting(Reader):
    def __init__(self, part: str, position: Any) -> None:
        super().__init__(part, min(position, 3))


class OneOff(Reader):
    def snapshot(self) -> Any:
        return max(0, self.at - 1)


class OneAhead(Reader):
    def snapshot(self) -> Any:
        return self.at + (0 < self.at < self.size)


class Mutating(Reader):
    def __init__(self, part: str, position: Any) -> None:
        super().__init__(part, position[0] if position else 0)
        self.where = [self.at]

    def snapshot(self) -> Any:
        self.where[0] = self.at
        return self.where


class Consuming(Reader):
    def snapshot(self) -> Any:
        self.at += 1
        return self.at


class Client(Reader):
    def __init__(self, part: str, position: Any) -> None:
        super().__init__(part, position[0] if position else 0)

    def snapshot(self) -> Any:
        return self.at, threading.Lock()


class Flooding(Reader):
    def poll_batch(self, limit: int) -> Any:
        found = [record for _ in range(limit + 1) if (record := self.poll())]
        return [value for value, _ in found], [stamp for _, stamp in found]


class Uneven(Reader):
    def poll_batch(self, limit: int) -> Any:
        values, stamps = super().poll_batch(limit)
        return values, stamps[:-1]


class Failing(Reader):
    def poll(self) -> Any:
        raise ConnectionError("nobody answers")


class Collecting(Reader):
    def collect(self) -> Any:
        return 0


class Jumping(Reader):
    def go_on_from(self, position: Any) -> bool:
        self.at = position + 1
        return True


class Deleting(Reader):
    def committed(self, position: Any) -> None:
        self.at = position


class Boasting(Reader):
    def lag(self) -> int | None:
        return 7


class Odd(Reader):
    def lag(self) -> Any:
        return 0.5


class Telling(Reader):
    def snapshot(self) -> Any:
        return self.at if self.at < 5 else self.at + 0

    def __repr__(self) -> str:
        return "Telling(password=hush)"


POLLED: list[int] = []


class Random(Reader):
    def poll(self) -> Any:
        record = super().poll()
        POLLED.append(1)
        return record and (record[0] + len(POLLED), record[1])


class Bulky(Reader):
    """Loses a record where a poll takes several."""

    def poll_batch(self, limit: int) -> Any:
        values, stamps = super().poll_batch(limit)
        self.at += limit > 2 and 0 < self.at < self.size
        return values, stamps


def other_parts(_source: Any, count: list[int] = [0]) -> Any:  # noqa: B006 - counts
    count[0] += 1
    return ["a", str(count)]


@pytest.mark.parametrize(
    ("law", "make"),
    [
        ("parts", reading(Reader, list_parts=other_parts)),
        ("parts", reading(Reader, list_parts=lambda _: ["a", "a"])),
        ("parts", reading(Reader, list_parts=lambda _: [["a"]])),
        ("records", reading(Failing)),
        ("records", reading(type("Short", (Reader,), {"size": 3}))),
        ("limit", reading(Flooding)),
        ("limit", reading(Uneven)),
        ("replay", reading(Random)),
        ("replay", reading(Bulky)),
        ("replay", reading(WholeBatchesOnly)),
        ("positions", reading(Mutating)),
        ("positions", reading(Consuming)),
        ("positions", reading(Client)),
        ("resume", reading(Restarting)),
        ("resume", reading(OneOff)),
        ("resume", reading(OneAhead)),
        ("move", reading(Collecting)),
        ("go on", reading(Jumping)),
        ("committed", reading(Deleting)),
        ("lag", reading(Boasting)),
        ("lag", reading(Odd)),
        ("secrets", reading(Telling)),
        ("secrets", reading(Reader, __repr__=lambda self: f"Numbers({self.password})")),
        ("pickle", reading(Reader, __reduce__=lambda self: threading.Lock().__reduce__())),
    ],
)
def test_the_law_that_a_source_breaks(law: str, make: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError, match=f"assert_source: the law '{law}' is broken: "):
        assert_source(make, count=27, timeout=1, secrets=["hush"])


def test_a_law_that_is_left_out() -> None:
    assert_source(reading(Boasting), count=27, without=["lag"])
    with pytest.raises(GraphError, match=r"assert_source has no law 'leg'; did you mean 'lag'\?"):
        assert_source(reading(Boasting), without=["leg"])


def test_a_source_that_never_ends_without_a_count() -> None:
    with pytest.raises(
        AssertionError, match=r"27 records arrived in 0\.1 s, expected every part to finish; pass count="
    ):
        assert_source(Numbers, timeout=0.1)


def test_every_law_in_the_docstring() -> None:
    text = assert_source.__doc__ or ""
    assert all(f"- ``{law}``:" in text for law in SOURCE_LAWS)


@pytest.mark.parametrize("make", [Numbers, lambda: StatefulSource(Numbers()), reading(Reader, keyed=False)])
def test_good_sources(make: Callable[[], Any]) -> None:
    assert_source(make, count=27)


def test_scripted_sources() -> None:
    assert_source(lambda: ScriptedSource({"a": [1, Timed(2, 7), 3], ("b", 1): [4, 5], 3: []}))


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_file_sources(ending: str, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"": open, ".gz": gzip.open, ".bz2": bz2.open}
    opened = kinds[ending]
    for name in "ab":
        rows = range(ROWS if name == "a" else 3)
        with opened(tmp_path / f"{name}.csv{ending}", "wt") as file:
            file.write("n,text\n" + "".join(f'{row},"{LINES * row}"\n' for row in rows))
        with opened(tmp_path / f"{name}.jsonl{ending}", "wt") as file:
            file.write("".join(json.dumps({"n": row, "ä": "é" * row}) + "\n\n" for row in rows))
    assert_source(lambda: CsvSource(f"{tmp_path}/*.csv{ending}"))
    assert_source(lambda: JsonLinesSource(f"{tmp_path}/*.jsonl{ending}", in_order=True))
    assert_source(lambda: connect(f"{tmp_path}/*.jsonl{ending}?format=text"))


class Log(StatefulSourceImpl[str, int, int, Any]):
    """A log in memory, read by position; subclasses notice in part, or not, that it was put back."""

    def __init__(self, records: list[int]) -> None:
        self.records = records

    def list_parts(self) -> Any:
        return ["log"]

    def build_part(self, part: str, state: Any) -> Any:
        return LogReader(self, *(state or (0, None)))

    def is_same(self, at: int, last: int | None) -> bool:
        return at == 0 or (at <= len(self.records) and self.records[at - 1] == last)


class LogReader(StatefulSourcePartition[int, int, Any]):
    def __init__(self, log: Log, at: int, last: int | None) -> None:
        self.log, self.at, self.last = log, at, last

    def poll(self) -> Any:
        if not self.log.is_same(self.at, self.last):
            raise ValueError("the log has other records than were read")
        if self.at >= len(self.log.records):
            return None
        self.at, self.last = self.at + 1, self.log.records[self.at]
        return self.last, self.at

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Any:
        return self.at, self.last


class ByLength(Log):
    """Notices a log that is too short, and none that has grown past the position."""

    def is_same(self, at: int, last: int | None) -> bool:
        return at <= len(self.records)


class Unseeing(Log):
    """Notices nothing."""

    def is_same(self, at: int, last: int | None) -> bool:
        return True


def assert_log(kind: type[Log], **options: Any) -> None:
    records, numbers = list(range(10)), count(10)

    def copy_input() -> Callable[[], None]:
        kept = list(records)

        def put_back() -> None:
            records[:] = kept

        return put_back

    def add_records(size: int) -> None:
        records.extend(islice(numbers, size))

    without = [law for law in SOURCE_LAWS if law not in ("parts", "records", "restored", "frozen")]
    options = {"count": 10, "add_records": add_records, "copy_input": copy_input, "without": without, **options}
    assert_source(lambda: kind(records), **options)


def test_law_of_an_input_that_goes_back() -> None:
    assert_log(Log)


@pytest.mark.parametrize(("kind", "added"), [(ByLength, 12), (Unseeing, 2)])
def test_input_that_goes_back_unseen(kind: type[Log], added: int) -> None:
    words = (
        f"'restored' is broken: part 'log', after 4 records were lost between two runs and {added} were added, and no"
    )
    with pytest.raises(AssertionError, match=words):
        assert_log(kind, timeout=0.3)


def test_reader_that_waits_for_a_frozen_system_without_end() -> None:
    with pytest.raises(AssertionError, match=r"'frozen' is broken: part 'log' raised no error in 0.3 s"):
        assert_log(Log, freeze=nullcontext, copy_input=None, timeout=0.3)
