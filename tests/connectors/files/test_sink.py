import errno
import gzip
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.compression import compr
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, GraphError, MalflowError, NoKey, SingleThreadRuntime
from malflow.sinks import JsonLinesSink, StatelessSink, StdOutSink, TextFileSink, UnwritableValue
from malflow.snapshot import FsspecBackend
from malflow.sources import JsonLinesSource, TextFileSource
from malflow.testing import ScriptedSource


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    yield memory
    if memory.exists("/sinks"):
        memory.rm("/sinks", recursive=True)


def send(sink: TextFileSink | JsonLinesSink, *values: object) -> None:
    sink.sink_batch([NoKey] * len(values), values, range(len(values)))


def read_back(source: Any) -> list[Any]:
    [part] = source.list_parts()
    partition = source.build_part(part, None)
    values: list[Any] = []
    while not partition.is_finished():
        values += partition.poll_batch(3)[0]
    return values


lines = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))
batches = st.lists(st.lists(lines, max_size=4), max_size=4)
paths = st.sampled_from(["out.txt", "out.txt.gz"])


@given(batches, paths, st.booleans())
def test_text_source_reads_the_output_of_a_text_sink(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], name: str, local: bool
) -> None:
    path = f"{tmp_path_factory.mktemp('out')}/{name}" if local else f"memory://sinks/{name}"
    sink = TextFileSink(path)
    sink.flush()
    for batch in batches:
        send(sink, *batch)
        sink.flush()
    sink.close()
    expected = [line for batch in batches for line in batch]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")  # at the beginning of a file it is a byte order mark
    assert read_back(TextFileSource(path)) == expected


@given(
    st.lists(
        st.none()
        | st.integers()
        | lines
        | st.lists(lines)
        | st.dictionaries(lines, st.floats(allow_nan=False, allow_infinity=False))
    )
)
@pytest.mark.slow
def test_json_source_reads_the_output_of_a_json_sink(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("out") / "out.jsonl"
    sink = JsonLinesSink(path)
    send(sink, *values)
    sink.close()
    assert read_back(JsonLinesSource(path)) == values


@pytest.mark.parametrize("sink_type", [TextFileSink, JsonLinesSink])
@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_stream_without_records_leaves_an_empty_file(tmp_path: Path, store: Any, sink_type: Any, place: str) -> None:
    path = f"{tmp_path}/deep/out" if place == "local" else "memory://sinks/out"
    sink = sink_type(path)
    sink.flush()
    sink.close()
    assert fsspec.open(path).fs.cat_file(path) == b""


def test_nothing_is_opened_before_the_first_record(tmp_path: Path) -> None:
    TextFileSink(tmp_path / "out.txt").flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "read"), [("out.txt", Path.read_bytes), ("out.gz", None)])
def test_a_local_file_is_visible_after_a_flush(tmp_path: Path, name: str, read: Any) -> None:
    sink = TextFileSink(tmp_path / name)
    send(sink, "one")
    sink.flush()
    if read is None:
        with gzip.open(tmp_path / name) as file:
            assert file.readline() == b"one\n"
    else:
        assert read(tmp_path / name) == b"one\n"
    sink.close()


def test_an_object_appears_whole_when_the_sink_is_closed(store: Any) -> None:
    sink = TextFileSink("memory://sinks/out.txt")
    send(sink, "one")
    sink.flush()
    assert not store.exists("/sinks/out.txt")
    send(sink, "two")
    sink.close()
    assert store.cat_file("/sinks/out.txt") == b"one\ntwo\n"


def test_a_run_that_failed_leaves_what_it_wrote(store: Any) -> None:
    sink = JsonLinesSink("memory://sinks/out.jsonl")
    with pytest.raises(UnwritableValue):
        send(sink, 1, 2, {3}, 4)
    sink.close()
    assert store.cat_file("/sinks/out.jsonl") == b"1\n2\n"


def test_an_object_that_could_not_be_finished_is_not_put(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def close(self) -> None:
            full = not self.closed
            super().close()
            if full:
                raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setitem(compr, "gzip", lambda _file, mode: FullDisk())
    sink = TextFileSink("memory://sinks/out.gz")
    send(sink, "one")
    with pytest.raises(OSError, match="no space"):
        sink.close()
    assert not store.exists("/sinks/out.gz")


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_second_close_changes_nothing(tmp_path: Path, store: Any, place: str) -> None:
    path = f"{tmp_path}/out.txt" if place == "local" else "memory://sinks/out.txt"
    sink = TextFileSink(path)
    send(sink, "one")
    sink.close()
    sink.close()
    assert fsspec.open(path).fs.cat_file(path) == b"one\n"


def test_a_local_sink_goes_on_after_it_was_closed(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path / "out.txt")
    for value in ("one", "two"):
        send(sink, value)
        sink.close()
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"


def test_an_object_is_not_replaced_by_what_comes_after_it_was_closed(store: Any) -> None:
    sink = TextFileSink("memory://sinks/out.txt")
    send(sink, "one")
    sink.close()
    with pytest.raises(MalflowError, match="is closed"):
        send(sink, "two")
    assert store.cat_file("/sinks/out.txt") == b"one\n"


@pytest.mark.parametrize(
    ("append", "before", "after"),
    [
        (False, b"old\n", b"new\n"),
        (True, b"old\n", b"old\nnew\n"),
        (True, b"cut sho", b"cut sho\nnew\n"),
        (True, b"", b"new\n"),
    ],
)
def test_a_file_is_replaced_or_added_to(tmp_path: Path, append: bool, before: bytes, after: bytes) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(before)
    sink = TextFileSink(path, append=append)
    send(sink, "new")
    sink.close()
    assert path.read_bytes() == after


def test_a_compressed_file_can_be_added_to(tmp_path: Path) -> None:
    for value in ("one", "two"):
        sink = TextFileSink(tmp_path / "out.txt.gz", append=True)
        send(sink, value)
        sink.close()
    assert gzip.decompress((tmp_path / "out.txt.gz").read_bytes()) == b"one\ntwo\n"


def test_a_formatter_chooses_what_is_written(tmp_path: Path) -> None:
    text = TextFileSink(tmp_path / "out.txt", formatter=lambda msg: f"{msg.key}={msg.value}@{msg.timestamp}")
    jsonl = JsonLinesSink(tmp_path / "out.jsonl", formatter=lambda msg: {"key": msg.key, "value": msg.value})
    for sink in (text, jsonl):
        sink.sink(DataMessage("a", 1, 7))
        sink.close()
    assert (tmp_path / "out.txt").read_text() == "a=1@7\n"
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"key": "a", "value": 1}


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\n"])
def test_a_text_with_a_line_break_is_refused(tmp_path: Path, value: str) -> None:
    sink = TextFileSink(tmp_path / "out.txt")
    with pytest.raises(UnwritableValue, match="line break") as refused:
        send(sink, "before", value)
    sink.close()
    assert refused.value.value == value
    assert (tmp_path / "out.txt").read_text() == "before\n"


def test_a_text_that_does_not_encode_is_refused(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path / "out.txt", encoding="ascii")
    with pytest.raises(UnwritableValue, match=r"'é'.*in ascii"):
        send(sink, "é")
    sink.close()


circle: list[Any] = []
circle.append(circle)


@pytest.mark.parametrize("value", [{1, 2}, object(), {(1, 2): 3}, b"bytes", circle])
def test_a_value_that_is_not_json_is_refused_by_name(tmp_path: Path, value: object) -> None:
    sink = JsonLinesSink(tmp_path / "out.jsonl")
    with pytest.raises(UnwritableValue, match=r"out\.jsonl.*cannot store .*: it is not JSON") as refused:
        send(sink, value)
    sink.close()
    assert refused.value.value is value
    assert repr(value)[:80] in str(refused.value)


def test_the_refusal_travels_between_processes() -> None:
    error = UnwritableValue("out.txt", "a\nb", "it has a line break in it")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.path, copy.value, copy.reason) == (str(error), error.path, error.value, error.reason)


@pytest.mark.parametrize("sink_type", [TextFileSink, JsonLinesSink])
def test_mistakes_are_found_when_the_sink_is_made(sink_type: Any) -> None:
    with pytest.raises(GraphError, match="cannot append"):
        sink_type("s3://bucket/out", append=True)
    with pytest.raises(GraphError, match="formatter must be a plain function"):
        sink_type("out", formatter="{value}")
    with pytest.raises(GraphError, match="needs a path"):
        sink_type("")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "klingon", "hex"])
def test_an_encoding_that_has_no_plain_lines_is_refused(encoding: str) -> None:
    with pytest.raises(GraphError, match=encoding):
        TextFileSink("out.txt", encoding=encoding)


def test_a_sink_is_shipped_before_it_is_opened_and_shows_no_credentials(tmp_path: Path) -> None:
    sink = TextFileSink(tmp_path / "out.txt", storage_options={"key": "hush"})
    copy = pickle.loads(pickle.dumps(StatelessSink(sink)))
    assert "hush" not in repr(copy)
    copy.impl.sink(DataMessage("a", "one", 0))
    copy.impl.close()
    assert (tmp_path / "out.txt").read_text() == "one\n"


@pytest.mark.fault("E24")
@pytest.mark.parametrize("kind", [TextFileSink, JsonLinesSink])
def test_a_formatter_that_raises_stop_iteration_drops_no_line_in_silence(kind: Any, tmp_path: Path) -> None:
    sink = kind(tmp_path / "out", formatter=lambda msg: next(str(value) for value in [msg.value] if value != 3))
    with pytest.raises(StopIteration):
        sink.sink_batch([NoKey] * 9, list(range(9)), [0] * 9)
    sink.close()
    assert [line.strip('"') for line in (tmp_path / "out").read_text().splitlines()] == ["0", "1", "2"]


def test_a_value_whose_text_stops_drops_no_line_in_silence(tmp_path: Path) -> None:
    sink = TextFileSink[Any, Any, Any](tmp_path / "out")
    with pytest.raises(StopIteration):
        sink.sink_batch([NoKey] * 2, [1, type("Mute", (), {"__str__": lambda self: next(iter(()))})()], [0] * 2)
    sink.close()


def test_a_value_whose_repr_stops_is_no_end_of_what_is_printed() -> None:
    mute = type("Mute", (), {"__repr__": lambda self: next(iter(()))})()
    with pytest.raises(StopIteration):
        StdOutSink[Any, Any, Any]().sink_batch([NoKey] * 2, [1, mute], [0] * 2)


def written_by_a_run(sink: Any, *persistence: FsspecBackend) -> None:
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("words", ScriptedSource(["to", "be"])).sink("out", sink),
        *persistence,
    ).execute()


@pytest.mark.parametrize("sink_type", [TextFileSink, JsonLinesSink])
@pytest.mark.parametrize("place", ["disk", "store"])
def test_content_that_a_run_replaces_is_told(
    place: str, sink_type: Any, tmp_path: Path, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "out") if place == "disk" else "memory://sinks/out"
    written_by_a_run(sink_type(path))
    assert not caplog.messages
    size = len(fsspec.open(path).open().read())
    written_by_a_run(sink_type(path))
    [message] = caplog.messages
    assert message.startswith(f"sink file '{path}' is overwritten: its {size} bytes are replaced")
    assert [it.levelname for it in caplog.records] == ["WARNING"]


def test_content_that_is_kept_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink, backend = TextFileSink(tmp_path / "twice"), FsspecBackend(str(tmp_path / "state"))
    (tmp_path / "empty").touch()
    for _ in range(2):
        written_by_a_run(sink)
        written_by_a_run(TextFileSink(tmp_path / "added", append=True))
        written_by_a_run(TextFileSink(tmp_path / "resumed"), backend)
    written_by_a_run(TextFileSink(tmp_path / "empty"))
    assert not [it for it in caplog.messages if "sink file" in it]
