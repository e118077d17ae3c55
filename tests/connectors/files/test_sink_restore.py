"""A file sink that returns to its position, whatever has happened to its file meanwhile."""

from __future__ import annotations

import gzip
import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import fsspec
import pytest

from malflow import NoKey, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.files.local_file import FileSinkPosition, SinkFileError
from malflow.sinks import TextFileSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.disks import make_room, small_disk

pytestmark = pytest.mark.slow


def send(sink: Any, *values: object) -> None:
    sink.sink_batch([NoKey] * len(values), values, range(len(values)))
    sink.flush()


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def written(path: Any, *values: object) -> FileSinkPosition | None:
    """Write values, and two more after the snapshot."""
    sink: Any = TextFileSink(path)
    send(sink, *values)
    position: FileSinkPosition | None = sink.snapshot()
    send(sink, "after", "the snapshot")
    sink.close()
    return position


def resumed(path: Any, position: FileSinkPosition | None, *values: object, **options: Any) -> None:
    sink: Any = TextFileSink(path, **options)
    try:
        sink.restore(position)
        send(sink, *values)
    finally:
        sink.close()


@pytest.mark.parametrize("name", ["out.txt", "out.gz", "out.bz2", "out.xz", "out.lz4"])
def test_it_is_cut_back_and_gone_on_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    resumed(path, written(path, "one", "two"), "three")
    with fsspec.open(str(path), "rb", compression="infer") as file:
        assert file.read() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
def test_going_back_twice_comes_to_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    position = written(path, "one")
    resumed(path, position, "two")
    resumed(path, position)
    resumed(path, position, "three")
    assert content(path) == b"one\nthree\n"


@pytest.mark.fault("F13")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.unlink(), "no longer exists"),
        (lambda path: os.truncate(path, 3), "has 3 bytes, fewer than the 8"),
        (lambda path: path.write_bytes(b"one\nTWO\nafter\n"), "was replaced"),
    ],
    ids=["deleted", "truncated", "replaced"],
)
def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path, change: Any, problem: str) -> None:
    path = tmp_path / "out.txt"
    position = written(path, "one", "two")
    change(path)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(SinkFileError, match=f"{problem}.*allow_dropped_state"):
        resumed(path, position, "three")
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_replaced_beginning_is_found_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    position = written(path, *range(10_000))
    path.write_bytes(b"X" + path.read_bytes()[1:])
    with pytest.raises(SinkFileError, match="was replaced"):
        resumed(path, position)


def test_a_file_that_was_moved_is_gone_on_with_where_it_is(tmp_path: Path) -> None:
    position = written(tmp_path / "out.txt", "one")
    (tmp_path / "out.txt").rename(tmp_path / "moved.txt")
    resumed(tmp_path / "moved.txt", position, "two")
    assert content(tmp_path / "moved.txt") == b"one\ntwo\n"


@pytest.mark.fault("F12")
def test_a_copy_is_gone_on_with_and_nothing_is_cut_off_it(tmp_path: Path) -> None:
    old, copy = tmp_path / "out.txt", tmp_path / "copy.txt"
    position = written(old, "one")
    copy.write_bytes(old.read_bytes())
    with pytest.raises(SinkFileError, match="append=True to append to it, or restore=None"):
        resumed(copy, position, "two")
    assert content(copy) == content(old)
    copy.write_bytes(b"one\n")
    resumed(copy, position, "two")
    assert content(copy) == b"one\ntwo\n"


def test_another_file_is_begun_and_the_old_one_left(tmp_path: Path) -> None:
    position = written(tmp_path / "monday.txt", "one")
    resumed(tmp_path / "tuesday.txt", position, "two")
    assert content(tmp_path / "monday.txt") == b"one\nafter\nthe snapshot\n"
    assert content(tmp_path / "tuesday.txt") == b"two\n"


@pytest.mark.parametrize("length", [0, 4])
def test_another_file_with_content_is_never_cut(tmp_path: Path, length: int) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("precious\n")
    with pytest.raises(SinkFileError, match="append=True to append to it, or restore=None"):
        resumed(path, FileSinkPosition(str(tmp_path / "out.txt"), length, "0123456789abcdef"))
    assert path.read_text() == "precious\n"


@pytest.mark.fault("F12")
def test_a_run_that_does_not_begin_leaves_what_it_finds(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("precious\n")
    TextFileSink[Any, Any, Any](path).close()
    assert path.read_text() == "precious\n"


def test_a_path_is_that_of_the_folder_where_the_sink_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink: Any = TextFileSink("out.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    send(sink, "one")
    sink.close()
    assert content(tmp_path / "out.txt") == b"one\n"


def test_the_end_of_a_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "out.txt")
    resumed(tmp_path / "link.txt", written(tmp_path / "out.txt", "one"), "two")
    assert content(tmp_path / "out.txt") == b"one\ntwo\n"
    assert (tmp_path / "link.txt").is_symlink()


@pytest.mark.fault("F14")
def test_two_sinks_do_not_write_to_one_file(tmp_path: Path) -> None:
    one: Any = TextFileSink(tmp_path / "out.txt")
    send(one, "one")
    other: Any = TextFileSink(tmp_path / "out.txt", append=True)
    with pytest.raises(SinkFileError, match="is being written by another run, or by another sink"):
        send(other, "two")
    one.close()
    send(other, "two")
    other.close()
    assert content(tmp_path / "out.txt") == b"one\ntwo\n"


@pytest.mark.fault("F14")
def test_a_job_whose_file_another_job_writes_does_not_begin(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def job(name: str, step: Callable[[int], int]) -> SingleThreadRuntime:
        def build(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(range(5))))
            numbers.map("step", step).sink("out", TextFileSink(path))

        return SingleThreadRuntime(build, FsspecBackend(str(tmp_path), job=name))

    def intrude(value: int) -> int:
        for _ in range(2 if value == 3 else 0):
            with pytest.raises(OperatorError, match="is being written by another run"):
                job("other", lambda value: value + 10).execute()
        return value

    job("first", intrude).execute()
    assert content(path) == b"0\n1\n2\n3\n4\n"


@pytest.mark.fault("F14")
def test_late_write_of_an_older_run_does_not_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.touch(mode=0o640)
    older: Any = TextFileSink(path)
    send(older, "one")
    position = older.snapshot()
    newer: Any = TextFileSink(path)
    newer.restore(position)
    send(newer, "two")
    send(older, "of the older one")
    with pytest.raises(SinkFileError, match="was moved, deleted or replaced while it was being written"):
        older.snapshot()
    newer.close()
    older.close()
    assert content(path) == b"one\ntwo\n"
    assert [it.name for it in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.fault("F13")
@pytest.mark.parametrize("size", [1, 20])
def test_a_file_that_others_change_meanwhile_is_an_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "out.txt"
    sink: Any = TextFileSink(path)
    send(sink, "one")
    os.truncate(path, size)
    with pytest.raises(SinkFileError, match="was changed by another process while it was being written"):
        sink.snapshot()
    sink.close()


@pytest.mark.fault("F13")
def test_a_disk_that_is_full_is_named_with_the_file(tmp_path: Path) -> None:
    sink: Any = TextFileSink("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        send(sink, "one")
    sink.close()


@pytest.mark.fault("F13")
@pytest.mark.parametrize("name", ["out.txt", "out.gz"])
def test_a_full_disk_costs_no_line_once_there_is_room(tmp_path: Path, name: str) -> None:
    lines = [f"{number} {uuid5(NAMESPACE_URL, str(number))}" for number in range(1000)]

    def run(path: Path) -> None:
        def build(provider: StreamProvider) -> None:
            script = [item for line in lines for item in (line, PAUSE)]
            provider.new_stream().source("lines", StatefulSource(ScriptedSource(script))).sink(
                "out", TextFileSink(path)
            )

        SingleThreadRuntime(build, FsspecBackend(str(tmp_path / "state")), timedelta(microseconds=1)).execute()

    with small_disk(tmp_path / "disk", 16) as disk:
        for _ in range(2):
            with pytest.raises(OperatorError, match=rf"operator 'out' failed.*No space left on device: '.*/{name}'"):
                run(disk / name)
        make_room(disk)
        run(disk / name)
        assert content(disk / name).decode().splitlines() == lines


@pytest.mark.fault("F14")
def test_the_child_of_a_fork_writes_nothing(tmp_path: Path) -> None:
    for name in ("out.txt", "out.gz"):
        sink: Any = TextFileSink(tmp_path / name)
        send(sink, "one")
        child = multiprocessing.get_context("fork").Process(target=_write_and_close, args=[sink])
        child.start()
        child.join()
        assert child.exitcode == 0
        send(sink, "two")
        sink.close()
        assert content(tmp_path / name) == b"one\ntwo\n"


def _write_and_close(sink: Any) -> None:
    with pytest.raises(Exception, match="this process was forked"):
        send(sink, "of the child")
    sink.close()


def test_file_that_can_not_be_cut_back_has_no_position() -> None:
    sink: Any = TextFileSink(os.devnull)
    assert sink.snapshot() is None
    send(sink, "one")
    assert sink.snapshot() is None
    sink.restore(None)
    sink.close()


def test_an_object_can_not_be_gone_on_with() -> None:
    memory: Any = fsspec.filesystem("memory")
    position = written("memory://back/out.txt", "one")
    with pytest.raises(SinkFileError, match="an object store takes whole files; write to a new path"):
        resumed("memory://back/out.txt", position, "two")
    memory.pipe("/back/other.txt", b"precious\n")
    with pytest.raises(SinkFileError, match="already exists, and cannot be appended to"):
        resumed("memory://back/other.txt", position, "two")
    resumed("memory://back/new.txt", position, "two")
    assert memory.cat("/back/new.txt") == b"two\n"
    memory.rm("/back/out.txt")
    with pytest.raises(SinkFileError, match="was never uploaded: the 4 bytes"):
        resumed("memory://back/newer.txt", position, "three")
    memory.rm("/back", recursive=True)


@pytest.mark.fault("F13")
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("writes_on", [False, True])
def test_an_older_copy_that_is_put_back_meanwhile_is_an_error(tmp_path: Path, resumed: bool, writes_on: bool) -> None:
    path = tmp_path / "out.txt"
    sink: Any = TextFileSink(path)
    send(sink, "one")
    older = content(path)
    send(sink, "two")
    position = sink.snapshot()
    if resumed:
        sink.close()
        sink = TextFileSink(path)
        sink.restore(position)
    path.write_bytes(older)  # in place: the file is the same, and has fewer bytes
    if writes_on:
        send(sink, "three")
    with pytest.raises(SinkFileError, match=r"was restored to an older state|was changed by another process"):
        sink.snapshot()
    sink.close()
    with pytest.raises(SinkFileError, match=r"its first 8 bytes differ|has 4 bytes, fewer than the 8"):
        TextFileSink(tmp_path / "out.txt").restore(position)


def test_a_file_that_is_deleted_meanwhile_is_an_error_without_new_records(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    sink: Any = TextFileSink(path)
    send(sink, "one")
    position = sink.snapshot()
    path.unlink()
    with pytest.raises(SinkFileError, match="was moved, deleted or replaced while it was being written"):
        sink.snapshot()
    sink.close()
    with pytest.raises(SinkFileError, match="no longer exists"):
        TextFileSink(path).restore(position)
