import gzip
import logging
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from malflow import GraphError, MissingDependency, OperatorError, SingleThreadRuntime
from malflow.connectors.files.lines import CHUNK, LinePosition
from malflow.connectors.files.sinks import UnwritableValue
from malflow.sinks import TextFileSink, VecSink
from malflow.sources import BadRecord, CsvSource, InputFileError, JsonLinesSource, StatefulSource, TextFileSource


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.rm("/sources", recursive=True)


def drain(source: Any, state: Any = None) -> tuple[list[Any], Any]:
    """Read the one file of a source to its end; return the values and the last position."""
    [part] = source.list_parts()
    partition = source.build_part(part, state)
    values: list[Any] = []
    while not partition.is_finished():
        values += partition.poll_batch(100)[0]
    return values, partition.snapshot()


def file_of(directory: Path, content: bytes, name: str = "file") -> Path:
    path = directory / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


# which files


def test_a_part_is_a_full_path_and_globs_are_sorted_without_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.txt", "a.txt", "c.csv", "d[1].txt"):
        file_of(tmp_path, b"", name)
    (tmp_path / "directory.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    source = TextFileSource(["b.txt", tmp_path / "*.txt", "d[1].txt"])
    assert source.list_parts() == [f"{tmp_path}/{name}" for name in ("a.txt", "b.txt", "d[1].txt")]


@pytest.mark.fault("F4")
def test_a_file_has_one_name_however_its_path_is_spelt(tmp_path: Path, store: Any) -> None:
    (tmp_path / "in").mkdir()
    path = str(file_of(tmp_path / "in", b"", "a.txt"))
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "b.txt").symlink_to(path)
    spelt = [path, f"file://{path}", f"local://{path}", f"{tmp_path}//in/a.txt", f"{tmp_path}/in/../in/a.txt"]
    spelt += [f"{tmp_path}/in/*.txt", f"file://{tmp_path}/link/*", f"{tmp_path}/link/a.txt"]
    for one in spelt:
        assert TextFileSource(one).list_parts() == [path], one
    assert TextFileSource(spelt).list_parts() == [path]
    store.pipe({"/sources/1": b"", "/sources/2": b""})
    expected = ["memory://sources/1", "memory://sources/2"]
    spelt = ["memory://sources/*", "memory://sources/1", "memory:///sources/1", "memory:///sources/*"]
    assert TextFileSource(spelt).list_parts() == expected


@pytest.mark.parametrize("name", ["a*b?[c].txt", "two\nlines", "a::b.txt", "s3://x".replace("/", "_"), "~", " é😀 "])
def test_a_name_may_have_any_characters(tmp_path: Path, name: str) -> None:
    path = file_of(tmp_path, b"one\n", name)
    assert drain(TextFileSource(path))[0] == ["one"]
    assert drain(TextFileSource(tmp_path / "*"))[0] == ["one"]


def test_a_relative_path_is_of_the_folder_where_the_source_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, b"one\n")
    monkeypatch.chdir(tmp_path)
    source, glob = TextFileSource("file"), TextFileSource("fi*")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert source.list_parts() == glob.list_parts() == [str(path)]


def test_a_file_that_can_not_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputFileError, match="loop"):
        drain(TextFileSource(loop))
    with pytest.raises(InputFileError, match="cannot be read: Is a directory"):
        TextFileSource("x").build_part(str(tmp_path), None).poll()


def test_several_members_of_gzip_an_empty_file_and_a_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfone\nt") + gzip.compress(b"") + gzip.compress(b"wo\nthree"))
    values, end = drain(TextFileSource(path))
    assert values == ["one", "two", "three"]
    assert drain(TextFileSource(path), end)[0] == []
    path.write_bytes(path.read_bytes() + gzip.compress(b"\nfour\n"))
    assert drain(TextFileSource(path), end)[0] == ["four"]


@pytest.mark.parametrize(
    ("name", "problem"), [("gone.csv", "does not exist"), ("*.csv", "matches no file"), ("", "is a directory")]
)
def test_a_path_without_a_file_is_an_error_that_names_it(tmp_path: Path, name: str, problem: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(InputFileError, match=problem) as missing:
        TextFileSource(path).list_parts()
    assert missing.value.path == path
    assert path in str(missing.value)


@pytest.mark.parametrize("path", [[], "", [""], 7, [b"bytes"], None])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(GraphError, match="TextFileSource needs"):
        TextFileSource(path)


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(GraphError, match="klingon"):
        TextFileSource("klingon://x").list_parts()


def test_s3_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for protocol in ("s3", "s3a"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'malflow\[s3\]'"):
        TextFileSource("s3://bucket/x").list_parts()


# what is read


def test_lines_end_where_they_should_and_nowhere_else(tmp_path: Path) -> None:
    content = "\ufeffa\r\nb\rc\n\x0b\x0c\x1c\x85\u2028\u2029\n\r\r\n\n\ufefflast".encode()
    values, _ = drain(TextFileSource(file_of(tmp_path, content)))
    assert values == ["a", "b\rc", "\x0b\x0c\x1c\x85\u2028\u2029", "\r", "", "\ufefflast"]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("source_type", [TextFileSource, CsvSource, JsonLinesSource])
def test_an_empty_file_has_no_records(tmp_path: Path, content: bytes, source_type: Any) -> None:
    assert drain(source_type(file_of(tmp_path, content)))[0] == []


@pytest.mark.parametrize("encoding", ["latin-1", "cp932", "gb18030", "utf-8-sig"])
def test_a_file_is_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    text = "naïve\n" if encoding == "latin-1" else "語\nñ\n".replace("ñ", "ア")
    path = file_of(tmp_path, text.encode(encoding))
    assert drain(TextFileSource(path, encoding=encoding))[0] == text.split()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7", "cp037", "hz", "klingon", "hex", "unicode_escape"])
def test_an_encoding_whose_lines_are_not_told_by_bytes_is_refused(encoding: str) -> None:
    with pytest.raises(GraphError, match=encoding):
        TextFileSource("x", encoding=encoding)


def test_a_batch_of_good_records_has_a_range_as_timestamps(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"a\nb\nc\n")
    partition = TextFileSource(path).build_part(str(path), None)
    assert partition.poll_batch(2) == (["a", "b"], range(2))
    assert partition.poll() == ("c", 2)
    assert partition.poll() is None
    assert partition.is_finished()


def test_a_file_is_opened_at_the_first_poll_and_closed_at_its_end(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"a\n")
    partition = TextFileSource(path).build_part(str(path), None)
    assert partition._lines is None
    partition.poll()
    handle = partition._lines._file  # type: ignore[attr-defined]
    assert partition.poll() is None
    assert handle.closed


def test_suspend_closes_the_file_and_a_poll_afterwards_goes_on(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"a\nb\n", "x.gz")
    partition = TextFileSource(path).build_part(str(path), None)
    partition.poll()
    partition.suspend()
    assert partition._lines is None
    assert partition.poll() == ("b", 1)
    partition.suspend()


def test_a_source_is_shipped_and_shows_no_credentials(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"5\n")
    source = StatefulSource(JsonLinesSource(path, storage_options={"secret": "hush"}))
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy.impl) == f"JsonLinesSource({str(path)!r})"
    assert "hush" not in repr(copy.impl._options)
    assert drain(copy.impl)[0] == [5]


def test_a_shipped_source_counts_for_itself(tmp_path: Path) -> None:
    source = JsonLinesSource(file_of(tmp_path, b"x\n"), on_error="skip")
    drain(source)
    copy = pickle.loads(pickle.dumps(source))
    assert len(source.skipped) == 1
    assert copy.skipped == {}


# a file that is not what it was


@pytest.mark.fault("F3")
@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_file_shorter_than_its_position_is_an_error(tmp_path: Path, name: str) -> None:
    path = file_of(tmp_path, b"one\ntwo\n", name)
    _, end = drain(TextFileSource(path))
    file_of(tmp_path, b"one\n", name)
    with pytest.raises(InputFileError, match="is shorter than the 8 bytes"):
        drain(TextFileSource(path), end)


@pytest.mark.fault("F2")
@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_file_with_other_lines_is_an_error(tmp_path: Path, name: str) -> None:
    path = file_of(tmp_path, b"one\ntwo\n", name)
    _, end = drain(TextFileSource(path))
    file_of(tmp_path, b"something else\n", name)
    with pytest.raises(InputFileError, match="was replaced"):
        drain(TextFileSource(path), end)


@pytest.mark.fault("F2")
@pytest.mark.parametrize("name", ["file", "file.gz"])
@pytest.mark.parametrize("size", [3, 3_000])
@pytest.mark.parametrize("changed", [0, -1])
@pytest.mark.parametrize("grown", [0, 2])
def test_a_replaced_file_of_like_lines_is_told(tmp_path: Path, name: str, size: int, changed: int, grown: int) -> None:
    lines = [f"old {number:06d}" for number in range(size)]
    path = file_of(tmp_path, "".join(f"{line}\n" for line in lines).encode(), name)
    _, end = drain(TextFileSource(path))
    lines[changed] = "n" + lines[changed][1:]
    lines += [f"new {number:06d}" for number in range(grown)]
    file_of(tmp_path, "".join(f"{line}\n" for line in lines).encode(), name)
    with pytest.raises(InputFileError, match=r"was replaced.*on_replaced='restart'.*restore=None"):
        drain(TextFileSource(path), end)
    values, end = drain(TextFileSource(path, on_replaced="restart"), end)
    assert values == lines
    assert drain(TextFileSource(path), end)[0] == []


def test_a_shorter_file_is_read_from_its_beginning_where_that_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, b"1\nx\n3\n4\n")
    _, end = drain(JsonLinesSource(path, on_error="skip"))
    file_of(tmp_path, b"5\n")
    caplog.clear()
    source = JsonLinesSource(path, on_replaced="restart")
    partition = source.build_part(str(path), end)
    assert partition.poll_batch(9) == ([5], range(1))
    assert source.skipped == {str(path): 0}
    told = f"source file '{path}' is shorter than the 8 bytes read from it; reading it from the beginning"
    assert caplog.record_tuples == [("malflow", logging.WARNING, told)]
    partition.suspend()


@pytest.mark.fault("F2")
def test_a_header_that_changed_is_told(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"h,k\n1,2\n")
    _, end = drain(CsvSource(path))
    file_of(tmp_path, b"k,h\n1,2\n3,4\n")
    with pytest.raises(InputFileError, match="was replaced"):
        drain(CsvSource(path), end)
    assert drain(CsvSource(path, on_replaced="restart"), end)[0] == [{"k": "1", "h": "2"}, {"k": "3", "h": "4"}]


@pytest.mark.fault("F2")
def test_a_position_of_an_older_version_is_gone_on_from(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"one\ntwo\n")
    _, end = drain(TextFileSource(path))
    old = replace(end, at=LinePosition(8, 2))
    file_of(tmp_path, b"ONE\nTWO\nthree\n")
    assert drain(TextFileSource(path), old)[0] == ["three"]
    file_of(tmp_path, b"something else\n")
    with pytest.raises(InputFileError, match="has changed: byte 8 is no longer a line end"):
        drain(TextFileSource(path), old)


@pytest.mark.parametrize("on_replaced", ["skip", None])
def test_another_way_with_replaced_files_is_refused(on_replaced: Any) -> None:
    with pytest.raises(GraphError, match="on_replaced must be 'fail' or 'restart'; got"):
        CsvSource("x", on_replaced=on_replaced)


@pytest.mark.fault("F3")
def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"one\n")
    _, end = drain(TextFileSource(path))
    path.unlink()
    with pytest.raises(InputFileError, match="no longer exists"):
        TextFileSource(path).build_part(str(path), end).poll()


@pytest.mark.parametrize("damage", [slice(0, -6), slice(3, None)])
def test_a_damaged_gzip_file_is_an_error_that_names_it(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n")[damage])
    with pytest.raises(InputFileError, match=r"file\.gz' cannot be decompressed"):
        drain(TextFileSource(path))


def test_lines_before_damage_are_read_before_its_error(tmp_path: Path) -> None:
    lines = [f"{number:032}" for number in range(2 * CHUNK // 32)]
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode())[:-6])
    partition = TextFileSource(path).build_part(str(path), None)
    values, _ = partition.poll_batch(len(lines))
    assert len(values) > CHUNK // 64
    assert values == lines[: len(values)]
    with pytest.raises(InputFileError, match="cannot be decompressed"):
        values += list(iter(partition.poll, None))


def test_a_poll_of_short_lines_is_full_and_the_last_one_ends_the_file(tmp_path: Path) -> None:
    lines = [f"line {number:06}" for number in range(60_000)]
    path = file_of(tmp_path, "\n".join(lines).encode())
    partition = TextFileSource(path).build_part(str(path), None)
    polls = []
    while not partition.is_finished():
        polls.append(partition.poll_batch(8_192)[0])
    assert [*map(len, polls)] == [8_192] * 7 + [60_000 - 7 * 8_192]
    assert [line for poll in polls for line in poll] == lines


def test_a_poll_of_long_lines_reads_no_more_than_a_megabyte_ahead(tmp_path: Path) -> None:
    path = file_of(tmp_path, (b"x" * (CHUNK // 2 - 1) + b"\n") * 40)
    partition = TextFileSource(path).build_part(str(path), None)
    polls = []
    while not partition.is_finished():
        polls.append(len(partition.poll_batch(8_192)[0]))
    assert (max(polls), sum(polls)) == (8, 40)


@pytest.mark.parametrize("name", ["file", "file.gz"])
@pytest.mark.parametrize("before", [b"one\ntwo\n", b"one\ntwo"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_file_that_has_grown_is_read_on(tmp_path: Path, name: str, before: bytes, end: bytes) -> None:
    path = file_of(tmp_path, before, name)
    _, state = drain(TextFileSource(path))
    file_of(tmp_path, before.removesuffix(b"\n") + (b"\n" if before.endswith(b"\n") else end) + b"three\n", name)
    values, position = drain(TextFileSource(path), state)
    assert values == ["three"]
    assert (position.index, position.at.line) == (3, 3)


def test_a_last_line_that_was_continued_is_a_bad_record(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"one\ntw")
    values, state = drain(TextFileSource(path))
    assert values == ["one", "tw"]
    file_of(tmp_path, b"one\ntwo\nthree\n")
    with pytest.raises(BadRecord, match="before it was complete") as bad:
        drain(TextFileSource(path), state)
    assert (bad.value.line, bad.value.record) == (2, b"o")
    source = TextFileSource(path, on_error="skip")
    values, position = drain(source, state)
    assert values == ["three"]
    assert (position.index, position.skipped, position.first_bad) == (3, 1, 2)


def test_a_header_alone_is_read_again_when_the_file_has_grown(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"a,b")
    values, state = drain(CsvSource(path))
    assert values == []
    file_of(tmp_path, b"a,bc\n1,2\n")
    assert drain(CsvSource(path), state)[0] == [{"a": "1", "bc": "2"}]


# bad records


BAD = [
    (CsvSource, b"a,b\n1,2\n3\n", 3, "3", "1 fields, expected 2"),
    (CsvSource, b'a,b\n"1\n1",2\n3,4,5\n', 4, "3,4,5", "3 fields, expected 2"),
    (CsvSource, b'a,b\n1,2\n3,"4\n5,6\n', 3, '3,"4', "a quote is opened and not closed"),
    (CsvSource, b'a,b\n1,2\n"3"x,4\n', 3, '"3"x,4', "',' expected after '\"'"),
    (CsvSource, b"a,b\n1,2\n3,\x00\n", 3, "3,\0", "a NUL character"),
    (CsvSource, b"a,b\n1,2\n3,4\r5,6\n", 3, "3,4\r5,6", "a carriage return outside quotes"),
    (CsvSource, b"a,b\n1,2\n3,\xff\n", 3, b"3,\xff", "byte 0xff at 2 is not utf-8 (invalid start byte)"),
    (
        JsonLinesSource,
        b"1\n\n{]\n",
        3,
        "{]",
        "invalid JSON: Expecting property name enclosed in double quotes at column 2",
    ),
    (JsonLinesSource, b"1\n2 3\n", 2, "2 3", "invalid JSON: Extra data at column 3"),
    (JsonLinesSource, b"1\r\n\x0b\r\n", 2, "\x0b", "invalid JSON: Expecting value at column 1"),
    (TextFileSource, b"a\nb\xe9\r\n", 2, b"b\xe9", "byte 0xe9 at 1 is not utf-8 (unexpected end of data)"),
]


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize(("source_type", "content", "line", "record", "reason"), BAD)
def test_a_bad_record_is_raised_after_the_good_ones_before_it(
    tmp_path: Path, source_type: Any, content: bytes, line: int, record: object, reason: str, limit: int
) -> None:
    path = str(file_of(tmp_path, content))
    partition = source_type(path).build_part(path, None)
    assert len(partition.poll_batch(limit)[0]) == 1
    index = partition.snapshot().index
    for _ in range(2):
        with pytest.raises(BadRecord) as bad:
            partition.poll_batch(limit)
        assert (bad.value.path, bad.value.line, bad.value.record) == (path, line, record)
        assert bad.value.reason == reason
        assert str(bad.value).startswith(f"{path} line {line}: {reason}; got {record!r}; ")
        assert ("pass encoding= if" in str(bad.value)) == isinstance(record, bytes)
    assert partition.snapshot().index == index == 1


def test_bad_record_error_is_one_sentence() -> None:
    bad = BadRecord("flights.csv", 3, "a,b,c,d,e" * 100, "5 fields, expected 19")
    shown = "'" + ("a,b,c,d,e" * 9)[:80] + "'..."
    assert str(bad) == (
        f"flights.csv line 3: 5 fields, expected 19; got {shown}; "
        "to continue without it, pass on_error='skip', or a function that takes this error"
    )
    copy = pickle.loads(pickle.dumps(bad))
    assert (str(copy), vars(copy)) == (str(bad), vars(bad))


def test_skipped_records_are_counted_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(file_of(tmp_path, b"1\nx\n2\ny\n3\n"))
    source = JsonLinesSource(path, on_error="skip")
    partition = source.build_part(path, None)
    assert source.skipped == {path: 0}
    assert partition.poll_batch(2) == ([1], [0])
    assert source.skipped == {path: 1}
    assert partition.poll_batch(10) == ([2, 3], [2, 4])
    partition.suspend()
    partition.poll_batch(10)
    assert source.skipped == {path: 2}
    told = f"{path}: 2 bad records skipped, the first in line 2"
    assert caplog.record_tuples == [("malflow", logging.WARNING, told)]


def test_the_count_survives_a_resume(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(file_of(tmp_path, b"x\n1\n2\n"))
    partition = JsonLinesSource(path, on_error="skip").build_part(path, None)
    partition.poll_batch(2)
    state = partition.collect()
    partition.suspend()
    caplog.clear()
    source = JsonLinesSource(path, on_error="skip")
    assert drain(source, state)[0] == [2]
    assert source.skipped == {path: 1}
    assert caplog.records == []


@pytest.mark.fault("E1")
def test_a_function_is_given_each_bad_record_once(tmp_path: Path) -> None:
    path = str(file_of(tmp_path, b"x\n1\ny\n"))
    dead_letters: list[BadRecord] = []
    source = JsonLinesSource(path, on_error=dead_letters.append)
    assert drain(source)[0] == [1]
    assert [(bad.line, bad.record) for bad in dead_letters] == [(1, "x"), (3, "y")]
    assert source.skipped == {path: 2}


def test_error_of_a_dead_letter_function_is_not_swallowed(tmp_path: Path) -> None:
    path = str(file_of(tmp_path, b"1\nx\n"))

    def refuse(bad: BadRecord) -> None:
        raise LookupError(bad.record)

    source = JsonLinesSource(path, on_error=refuse)
    partition = source.build_part(path, None)
    with pytest.raises(LookupError):
        partition.poll_batch(10)
    assert partition.snapshot().index == 0
    assert source.skipped == {path: 0}


@pytest.mark.parametrize("on_error", ["ignore", None, True])
def test_another_way_with_bad_records_is_refused(on_error: Any) -> None:
    with pytest.raises(GraphError, match="on_error must be 'fail', 'skip', 'dead_letter' or a plain function; got"):
        TextFileSource("x", on_error=on_error)


@pytest.mark.parametrize("line", ["[" * 100_000, "9" * 5_000])
def test_json_that_python_refuses_is_a_bad_record(tmp_path: Path, line: str) -> None:
    path = file_of(tmp_path, f"{line}\n1\n".encode())
    source = JsonLinesSource(path, on_error="skip")
    assert drain(source)[0] == [1]
    assert list(source.skipped.values()) == [1]


def test_no_password_of_a_url_in_what_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    url = "memory://me:hush@host/lines.jsonl"
    fsspec.filesystem("memory").pipe(url, b"1\n{\n")
    seen: VecSink[Any, Any, Any] = VecSink()
    source = JsonLinesSource(url)
    sink: TextFileSink[Any, Any, Any] = TextFileSink(url)
    with pytest.raises(OperatorError, match=r"at part 'memory://\*\*\*@host/lines.jsonl': BadRecord") as failed:
        SingleThreadRuntime(lambda provider: provider.new_stream().source("in", source).sink("out", seen)).execute()
    with pytest.raises(UnwritableValue, match=r"sink file 'memory://\*\*\*@host/lines.jsonl' cannot store") as unfit:
        sink.sink_batch([0], ["two\nlines"], [0])
    sink.close()
    with pytest.raises(InputFileError, match=r"does not exist") as missing:
        TextFileSource(url.replace("lines", "other")).list_parts()
    with pytest.raises(GraphError, match=r"cannot append") as refused:
        TextFileSink(url, append=True)
    skipping = JsonLinesSource(url, on_error="skip")
    part = skipping.build_part(url, None)
    fsspec.filesystem("memory").pipe(url, b"{\n")
    while not part.is_finished():
        assert not part.poll_batch(9)[0]
    fsspec.filesystem("memory").rm(url)
    errors = [failed.value, failed.value.__cause__, unfit.value, missing.value, refused.value]
    assert "1 bad record skipped" in caplog.text
    assert "hush" not in f"{errors!r} {errors} {source!r} {sink!r} {caplog.text}"


def test_records_that_are_kept_are_not_told_as_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("1\n{\n")
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream().source("lines", JsonLinesSource(file, on_error="dead_letter")).sink("out", VecSink())
        )
    ).execute()
    assert "1 bad record kept as dead letters, the first in line 2" in caplog.text


@pytest.mark.parametrize(
    ("kind", "content", "told"),
    [
        (CsvSource, b"a;b\n1;2\n", "has one field, 'a;b'; pass delimiter=';'"),
        (CsvSource, b"a\n1;2\n", None),
        (JsonLinesSource, b'[{"a": 1}, {"a": 2}]\n', "has an array of 2 objects in a line"),
        (JsonLinesSource, b"[1, 2]\n", None),
    ],
)
def test_a_file_of_another_form_is_told(
    kind: Any, content: bytes, told: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drain(kind(file_of(tmp_path, content)))
    assert (told or "") in caplog.text
    assert bool(told) is bool(caplog.text)
