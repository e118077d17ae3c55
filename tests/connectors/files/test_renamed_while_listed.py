"""Files that are renamed between their listing and their opening, while a job watches them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.parquet import ParquetSource
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, JsonLinesSource, TextFileSource
from tests.conformance.dataflow import Started
from tests.kit.backends import in_memory
from tests.kit.waiting import wait_until

SOON = timedelta(milliseconds=30)


def write_lines(path: Path, *numbers: int) -> None:
    path.write_text("".join(f"{number}\n" for number in numbers))


def write_parquet(path: Path, *numbers: int) -> None:
    pq.write_table(pa.table({"n": list(numbers)}), path)


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "text": (TextFileSource, write_lines),
    "csv": (partial(CsvSource, fields=["n"], types={"n": int}), write_lines),
    "json": (JsonLinesSource, write_lines),
    "parquet": (partial(ParquetSource, row="n"), write_parquet),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def after(source: Any, method: str, act: Callable[[], object]) -> Any:
    """Return a source that does something right after the first call of a method."""
    call, done = getattr(source, method), []

    def called(*args: Any) -> Any:
        found = call(*args)
        if not done:
            done.append(act())
        return found

    setattr(source, method, called)
    return source


def runtime(source: Any, backend: FsspecBackend, out: VecSink[Any, Any, Any]) -> SingleThreadRuntime:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("in", source).sink("out", out)

    return SingleThreadRuntime(build, backend)


def read(source: Any, backend: FsspecBackend) -> list[int]:
    out: VecSink[Any, Any, Any] = VecSink()
    runtime(source, backend, out).execute()
    return sorted(int(it["n"] if isinstance(it, dict) else it) for it in out.values)


def test_a_file_renamed_before_it_is_opened_is_read_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, write = KINDS[kind]
    backend, out = in_memory(), VecSink[Any, Any, Any]()
    write(tmp_path / "a.in", 1, 2)
    write(tmp_path / "b.in", 3)
    source = make(tmp_path / "*.in*", discover_every=SOON)
    rotated = after(source, "list_parts", lambda: (tmp_path / "a.in").rename(tmp_path / "a.in.1"))
    with Started(runtime(rotated, backend, out)):
        wait_until(lambda: "it may have been renamed after it was listed" in caplog.text)
        wait_until(lambda: "counts as renamed" in caplog.text)
        write(tmp_path / "c.in", 4)
        wait_until(lambda: len(out.values) == 2)

    assert read(make(tmp_path / "*.in*"), backend) == [1, 2]
    assert read(make(tmp_path / "*.in*"), backend) == []


def test_a_deleted_file_of_lines_counts_as_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend, log = in_memory(), tmp_path / "a.log"
    write_lines(log, 1, 2)
    source = TextFileSource(f"{tmp_path}/", discover_every=SOON)
    for doing in (log.unlink, list):
        with Started(runtime(after(source, "list_parts", doing), backend, VecSink())):
            wait_until(lambda: "a.log' no longer exists: it may have been renamed" in caplog.text)
    write_lines(log, 3)
    assert read(TextFileSource(f"{tmp_path}/"), backend) == [3]


def test_a_file_of_which_a_part_was_read_keeps_its_place(kind: str, tmp_path: Path) -> None:
    """The next start finds it under its new name, or fails, since its reader is not finished."""
    make, write = KINDS[kind]
    write(tmp_path / "a.in", 1, 2, 3)
    source = make(f"{tmp_path}/", discover_every=SOON)
    (part,) = source.list_parts()
    reader = source.build_part(part, None)
    reader.poll_batch(1)
    place = reader.snapshot()
    reader.suspend()

    (tmp_path / "a.in").rename(tmp_path / "b.in")
    assert len(reader.poll_batch(10)[0]) == 0
    assert reader.is_finished()
    assert reader.snapshot() == place
    assert not source.build_part(part, place).is_finished()
    assert source.renamed_parts({part: place}, source.list_parts()) == {part: str(tmp_path / "b.in")}


@pytest.mark.parametrize(("read", "rest"), [(1, [2, 3]), (3, [])])
def test_a_parquet_file_renamed_while_it_is_open_is_read_on(read: int, rest: list[int], tmp_path: Path) -> None:
    """A job that watches its files went on only if it had noticed the end of the file before."""
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "a.in", row_group_size=1)
    source = ParquetSource(f"{tmp_path}/", row="n", discover_every=SOON)
    (part,) = source.list_parts()
    reader = source.build_part(part, None)
    for _ in range(read):
        reader.poll_batch(10)
    (tmp_path / "a.in").rename(tmp_path / "b.in")
    assert len(reader.poll_batch(10)[0]) == 0
    assert reader.is_finished()

    place = reader.snapshot()
    assert source.renamed_parts({part: place}, source.list_parts()) == {part: str(tmp_path / "b.in")}
    again = source.build_part(str(tmp_path / "b.in"), place)
    assert [value for _ in range(3) for value in again.poll_batch(10)[0]] == rest


def test_an_empty_file_is_no_part_until_it_has_content(tmp_path: Path) -> None:
    """It may just have been opened for writing, and would count as read to its end."""
    source = TextFileSource(f"{tmp_path}/", discover_every=SOON)
    assert source.list_parts() == []
    (tmp_path / "a.log").touch()
    assert [source.list_again() for _ in range(3)] == [[], [], []]
    write_lines(tmp_path / "a.log", 1)
    assert [source.list_again() for _ in range(2)] == [[], [str(tmp_path / "a.log")]]


def test_a_file_that_is_gone_ends_a_job_that_does_not_watch(kind: str, tmp_path: Path) -> None:
    make, write = KINDS[kind]
    write(tmp_path / "a.in", 1, 2)
    source = after(make(tmp_path / "a.in"), "list_parts", (tmp_path / "a.in").unlink)
    with pytest.raises(OperatorError, match=r"a\.in' (no longer exists|does not exist)"):
        read(source, in_memory())


def test_a_file_replaced_before_it_is_opened_again_is_read_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend, log = in_memory(), tmp_path / "a.log"
    write_lines(log, 1, 2)
    assert read(TextFileSource(tmp_path / "*.log*"), backend) == [1, 2]
    with log.open("a") as file:
        file.write("3\n")

    def rotate() -> None:
        log.rename(tmp_path / "a.log.1")
        write_lines(log, 4)

    source = after(TextFileSource(tmp_path / "*.log*", discover_every=SOON), "renamed_parts", rotate)
    out: VecSink[Any, Any, Any] = VecSink()
    with Started(runtime(source, backend, out)):
        wait_until(lambda: "a.log' is shorter than" in caplog.text)
        wait_until(lambda: "counts as renamed" in caplog.text)
    assert out.values == []
    assert read(TextFileSource(tmp_path / "*.log*"), backend) == [3, 4]


def test_a_file_of_other_content_fails_each_start(tmp_path: Path) -> None:
    backend, log = in_memory(), tmp_path / "a.log"
    write_lines(log, 1, 2)
    assert read(TextFileSource(log), backend) == [1, 2]
    write_lines(log, 7)
    for _ in range(2):
        with pytest.raises(OperatorError, match=r"a\.log' is shorter than .*on_replaced='restart'"):
            read(TextFileSource(log, discover_every=SOON), backend)
