"""Reading in one go equals reading with stops and resumptions anywhere; the model is a naive reader."""

import bz2
import codecs
import csv
import gzip
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any

import fsspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow.connectors.files import lines
from malflow.connectors.files import source as files_source
from malflow.sources import BadRecord, CsvSource, JsonLinesSource, TextFileSource

PATH = "memory://resume/file"
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}

suffixes = st.sampled_from(sorted(PACK))
schedules = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8)
"""How many records to ask for, and whether to resume from a snapshot afterwards; over and over."""

characters = st.sampled_from("ab é語😀\x0b\x0c\x1c\x85\u2028 ,;\"'")
line_ends = st.sampled_from(["\n", "\r\n"])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 7)


@pytest.fixture(autouse=True, scope="module")
def _clean_store() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").rm("/resume", recursive=True)


def put(content: bytes, suffix: str) -> str:
    fsspec.filesystem("memory").pipe(f"/resume/file{suffix}", PACK[suffix](content))
    return PATH + suffix


def read(source: Any, path: str, schedule: list[tuple[int, bool]], state: Any = None) -> list[tuple[Any, int]]:
    records: list[tuple[Any, int]] = []
    partition = source.build_part(path, state)
    for limit, stop in cycle(schedule):
        if partition.is_finished():
            break
        values, timestamps = partition.poll_batch(limit)
        assert len(values) == len(timestamps) <= limit
        records += zip(values, timestamps, strict=True)
        if stop and not partition.is_finished():
            state = pickle.loads(pickle.dumps(partition.collect()))
            partition.suspend()
            partition = source.build_part(path, state)
    partition.suspend()
    return records


def read_in_turns(source: Any, path: str, turns: list[tuple[int, int]]) -> tuple[list[tuple[Any, int]], int]:
    """Read with several readers, each of which goes on where the last one was; count those that were built.

    Args:
        source: the source.
        path: its part.
        turns: how many records to ask for, and of which reader; over and over.
    """
    records: list[tuple[Any, int]] = []
    readers: dict[int, Any] = {}
    position, built = None, 0
    for limit, who in cycle(turns):
        reader = readers.get(who)
        if reader is None or position is None or not reader.go_on_from(position):
            if reader is not None:
                reader.suspend()
            reader = readers[who] = source.build_part(path, position)
            built += 1
        records += zip(*reader.poll_batch(limit), strict=True)
        position = pickle.loads(pickle.dumps(reader.snapshot()))
        if reader.is_finished():
            break
    for reader in readers.values():
        reader.suspend()
    return records, built


def lines_of(text: str) -> list[str]:
    ended = re.findall(r"[^\n]*\n|[^\n]+", text)
    return [line[:-1].removesuffix("\r") if line.endswith("\n") else line for line in ended]


def numbered(values: list[Any]) -> list[tuple[Any, int]]:
    return [(value, index) for index, value in enumerate(values)]


@given(
    st.lists(st.tuples(st.text(characters | st.just("\r"), max_size=6), line_ends)),
    st.booleans(),
    suffixes,
    schedules,
    st.booleans(),
)
@example([("", "\r\n"), ("", "\n")], True, "", [(1, True)], True)
def test_text_resumes_at_the_exact_line(
    pieces: list[tuple[str, str]], ended: bool, suffix: str, schedule: list[tuple[int, bool]], bom: bool
) -> None:
    text = "".join(line + end for line, end in pieces)
    text = text if ended else text.removesuffix("\n")
    path = put(codecs.BOM_UTF8 * bom + text.encode(), suffix)
    expected = lines_of(text)
    assert read(TextFileSource(path), path, schedule) == numbered(expected)


@given(st.text(characters | st.sampled_from("\r\n"), max_size=40), st.integers(0, 40), suffixes, schedules)
def test_a_file_that_has_grown_is_read_on(text: str, cut: int, suffix: str, schedule: list[tuple[int, bool]]) -> None:
    before, added = text[:cut], text[cut:]
    path = put(before.encode(), suffix)
    partition = TextFileSource(path).build_part(path, None)
    values: list[str] = []
    while not partition.is_finished():
        values += partition.poll_batch(100)[0]
    put(text.encode(), suffix)
    source = TextFileSource(path, on_error="skip")
    continued = ""
    if before and not before.endswith("\n"):
        continued, _, added = added.partition("\n")
    expected = lines_of(before) + lines_of(added)
    grown = read(source, path, schedule, partition.snapshot())
    assert numbered(values) + grown == numbered(expected)
    assert source.skipped == {path: 1 if continued.removesuffix("\r") else 0}


fields = st.lists(characters | line_ends, max_size=6).map("".join)


@given(
    st.lists(st.tuples(fields, fields, fields), max_size=8),
    line_ends,
    st.sampled_from([",", ";", "\t"]),
    suffixes,
    schedules,
)
@pytest.mark.slow
def test_csv_resumes_at_the_exact_row(
    rows: list[tuple[str, str, str]], end: str, delimiter: str, suffix: str, schedule: list[tuple[int, bool]]
) -> None:
    names = ("first", "the\nsecond", "third,é")
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter, lineterminator=end).writerows([names, *rows])
    path = put(written.getvalue().encode(), suffix)
    expected = [dict(zip(names, row, strict=True)) for row in rows]
    assert read(CsvSource(path, delimiter=delimiter), path, schedule) == numbered(expected)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(characters),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(characters, max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(st.tuples(json_values, line_ends, st.sampled_from(["", "\n", " \t\r\n"])), max_size=8),
    st.booleans(),
    suffixes,
    schedules,
)
@pytest.mark.slow
def test_json_lines_resume_at_the_exact_line(
    pieces: list[tuple[Any, str, str]], ended: bool, suffix: str, schedule: list[tuple[int, bool]]
) -> None:
    text = "".join(json.dumps(value, ensure_ascii=False) + end + blank for value, end, blank in pieces)
    path = put((text if ended else text.rstrip()).encode(), suffix)
    assert read(JsonLinesSource(path), path, schedule) == numbered([value for value, _, _ in pieces])


good_rows = [b"1,2", b'3,"4"']
bad_rows = [b"5", b"6,7,8", b"\xff,9", b"10,\x00", b'"11"x,12', b"13,1\r4", b'15,"16']


@given(st.lists(st.sampled_from([*good_rows, *bad_rows, b""]), max_size=12), suffixes, schedules)
@example([b'15,"16', b'"11"x,12', b"1,2"], "", [(5, False)])
def test_no_record_is_dropped_uncounted_wherever_it_stops(
    written: list[bytes], suffix: str, schedule: list[tuple[int, bool]]
) -> None:
    path = put(b"".join(row + b"\n" for row in written), suffix)
    dead_letters: list[BadRecord] = []
    source = CsvSource(path, fields=["a", "b"], on_error=dead_letters.append)
    rows = [row for row in written if row]
    expected = [
        ({"a": row.decode()[0], "b": row.decode().strip('"')[-1]}, index)
        for index, row in enumerate(rows)
        if row in good_rows
    ]
    assert read(source, path, schedule) == expected
    assert [bad.line for bad in dead_letters] == [line for line, row in enumerate(written, 1) if row in bad_rows]
    assert source.skipped == {path: len(dead_letters)}


turns = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=8)
texts = st.lists(st.sampled_from([*good_rows, *bad_rows, b"", b"a line longer than a chunk"]), max_size=20)


@given(texts, st.booleans(), suffixes, turns)
@pytest.mark.parametrize("kind", ["text", "csv", "json"])
def test_readers_that_take_turns_read_what_one_reads(
    kind: str, written: list[bytes], ended: bool, suffix: str, turns: list[tuple[int, int]]
) -> None:
    path = put(b"\n".join(written) + b"\n" * ended, suffix)
    kinds: dict[str, Callable[..., Any]] = {
        "text": TextFileSource,
        "csv": partial(CsvSource, fields=["a", "b"]),
        "json": JsonLinesSource,
    }
    source, alone = (kinds[kind](path, on_error="skip") for _ in range(2))
    records, built = read_in_turns(source, path, turns)
    assert records == read(alone, path, [(100, False)])
    assert source.skipped == alone.skipped
    if suffix and ended and written:
        assert built <= len({who for _, who in turns}) + 2, "one that has not begun is built, and then reads on"


def test_a_reader_does_not_go_on_in_a_file_that_was_replaced() -> None:
    path = put(b"one\ntwo\nthree\nfour\n", ".gz")
    source = TextFileSource(path, on_replaced="restart")
    first = source.build_part(path, None)
    assert first.poll() == ("one", 0)
    put(b"ONE\nTWO\nTHREE\nFOUR\n", ".gz")
    second = source.build_part(path, first.snapshot())
    assert [second.poll(), second.poll()] == [("ONE", 0), ("TWO", 1)]
    assert not first.go_on_from(second.snapshot()), "what it has read is not what comes before the place"
    first.suspend()
    second.suspend()


def test_a_reader_does_not_go_back() -> None:
    path = put(b"one\ntwo\nthree\n", ".gz")
    source = TextFileSource(path)
    first, second = source.build_part(path, None), source.build_part(path, None)
    for reader in (first, first, second):
        reader.poll()
    assert not first.go_on_from(second.snapshot())
    assert second.go_on_from(first.snapshot())
    assert [second.poll(), second.poll()] == [("three", 2), None]
    assert second.is_finished()
    assert first.go_on_from(second.snapshot())
    assert first.is_finished() or first.poll() is None
    first.suspend()


def test_large_repeated_decompression_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files_source, "_LONG", 8)
    for suffix in PACK:
        path = put(b"one\ntwo\nthree\n", suffix)
        first = TextFileSource(path).build_part(path, None)
        first.poll()
        early = first.snapshot()
        first.poll()
        first.poll()
        for position in (early, first.snapshot()):
            again = TextFileSource(path).build_part(path, position)
            again.poll_batch(9)
            again.suspend()
        first.suspend()
    told = [record.getMessage() for record in caplog.records]
    assert [it.split("'")[1] for it in told] == [PATH + ".gz", PATH + ".bz2"]
    assert "decompress the 1.8 GiB before its position again" in told[0]
