"""Files that have other names when a run resumes, as log rotation gives them, are read on and not again."""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.files.lines import LinePosition
from malflow.connectors.files.source import FilePosition
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.sources import CsvSource, JsonLinesSource, StatefulSource, TextFileSource
from tests.kit.backends import in_memory, kept, kept_states

KINDS: dict[str, Callable[..., Any]] = {
    "text": TextFileSource,
    "csv": partial(CsvSource, fields=["n"]),
    "json": JsonLinesSource,
}


def read(source: Any, backend: FsspecBackend, parallelism: int = 1) -> list[str]:
    """Run a job over a source; return its records, sorted."""
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("lines", StatefulSource(source))
        lines.sink("out", out)
        stamped = lines.assign_timestamps("time", lambda msg: msg.timestamp)
        timed, late = stamped.generate_epochs("epochs", lambda msg, _: msg.timestamp)
        timed.union(late, name="all").sink("timed", VecSink())

    SingleThreadRuntime(build, backend, parallelism=parallelism, debug=True).execute()
    return sorted(str(it["n"] if isinstance(it, dict) else it) for it in out.values)


def numbers(*them: int) -> str:
    return "".join(f"{number}\n" for number in them)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "db.log").write_text(numbers(100))
    return folder


def rename(old: Path, new: Path) -> None:
    old.rename(new)


def copy_and_truncate(old: Path, new: Path) -> None:
    shutil.copy(old, new)
    old.write_text("")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
def test_a_rotated_file_is_read_on_under_its_new_name(
    logs: Path, kind: str, rotate: Callable[[Path, Path], None]
) -> None:
    backend, source = in_memory(), KINDS[kind](logs / "*.log*")
    app = logs / "app.log"
    app.write_text(numbers(1, 2))
    assert read(source, backend) == ["1", "100", "2"]
    with app.open("a") as file:
        file.write(numbers(3))
    rotate(app, logs / "app.log.1")
    with app.open("a") as file:
        file.write(numbers(4, 5))
    assert read(source, backend) == ["3", "4", "5"]
    assert read(source, backend) == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_files_move_on_by_one_and_the_oldest_goes(logs: Path, parallelism: int) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    names = ["app.log", "app.log.1", "app.log.2"]
    for at, name in enumerate(names):
        (logs / name).write_text(numbers(10 + at, 20 + at))
    assert len(read(source, backend, parallelism)) == 7
    for old, new in ((1, 2), (0, 1)):
        (logs / names[old]).replace(logs / names[new])
    (logs / "app.log").write_text(numbers(31))
    assert read(source, backend, parallelism) == ["31"]
    assert set(kept_states(backend, "lines")) == {str(logs / name) for name in [*names, "db.log"]}
    epochs = {key for states in kept(backend).states["epochs"].values() for key in states if isinstance(key, tuple)}
    assert epochs == {("part", str(logs / name)) for name in [*names, "db.log"]}
    assert fsck(backend).problems == ()


@pytest.mark.parametrize("text", [numbers(1, 2), numbers(*range(5000))], ids=["short", "long"])
@pytest.mark.slow
def test_a_file_that_is_compressed_after_rotation_is_read_on(logs: Path, text: str) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    app = logs / "app.log"
    app.write_text(text)
    assert len(read(source, backend)) == text.count("\n") + 1
    (logs / "app.log.1.gz").write_bytes(gzip.compress(text.encode() + b"last\n"))
    app.unlink()
    assert read(source, backend) == ["last"]
    (logs / "app.log.1.gz").rename(logs / "app.log.2.gz")
    (logs / "app.log.1.gz").write_bytes(gzip.compress(b"new\n"))
    assert read(source, backend) == ["new"]


def test_objects_of_a_store_are_found_too() -> None:
    memory, backend = fsspec.filesystem("memory"), in_memory()
    source = TextFileSource("memory://renamed/*.log*")
    memory.pipe({"/renamed/app.log": b"1\n2\n", "/renamed/db.log": b"100\n"})
    try:
        assert read(source, backend) == ["1", "100", "2"]
        memory.mv("/renamed/app.log", "/renamed/app.log.1")
        memory.pipe("/renamed/app.log", b"3\n")
        assert read(source, backend) == ["3"]
    finally:
        memory.rm("/renamed", recursive=True)


def test_a_position_of_an_older_version_finds_its_file(logs: Path) -> None:
    source = TextFileSource(logs / "*.log*")
    (logs / "app.log").write_text(numbers(*range(3000)))
    reader = source.build_part(str(logs / "app.log"), None)
    reader.poll_batch(2000)
    at = reader.snapshot()
    reader.suspend()
    old = FilePosition(LinePosition(*at.at[:4]), at.index)
    (logs / "app.log").rename(logs / "app.log.1")
    found = source.renamed_parts({str(logs / "app.log"): old}, source.list_parts())
    assert found == {str(logs / "app.log"): str(logs / "app.log.1")}


def test_another_file_under_an_old_name_is_still_refused(logs: Path) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log")
    (logs / "app.log").write_text(numbers(1, 2))
    read(source, backend)
    (logs / "app.log").rename(logs / "app.log.1")  # the path does not match it
    (logs / "app.log").write_text(numbers(3, 4, 5))
    with pytest.raises(OperatorError, match="was replaced: its first 4 bytes differ"):
        read(source, backend)


def test_the_policy_may_refuse_renamed_files_or_read_them_again(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend, again = in_memory(), in_memory()
    source = partial(TextFileSource, logs / "*.log*")
    (logs / "app.log").write_text(numbers(1, 2))
    read(source(), backend)
    read(source(), again)
    (logs / "app.log").rename(logs / "app.log.1")
    with pytest.raises(OperatorError, match=r"app.log' was renamed to '.*app.log.1'; pass on_renamed='continue'"):
        read(source(on_renamed="fail"), backend)
    assert read(source(on_renamed="restart"), again) == ["1", "2"]
    assert read(source(), backend) == []
    assert "app.log' is now '" in caplog.text
    assert "reading continues after line 2" in caplog.text


def test_two_copies_of_a_renamed_file_are_refused(logs: Path) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    (logs / "app.log").write_text(numbers(1, 2))
    read(source, backend)
    shutil.copy(logs / "app.log", logs / "app.log.copy")
    (logs / "app.log").rename(logs / "app.log.1")
    with pytest.raises(OperatorError, match=r"both '.*app.log.1' and '.*app.log.copy' begin with what was read"):
        read(source, backend)
    (logs / "app.log.copy").unlink()
    assert read(source, backend) == []


def test_files_of_equal_content_are_each_read_once(logs: Path) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    for name in ("a.log", "b.log"):
        (logs / name).write_text(numbers(1))
    read(source, backend)
    for name in ("a", "b"):
        (logs / f"{name}.log").rename(logs / f"{name}.log.1")
    (logs / "c.log").write_text(numbers(2))
    assert read(source, backend) == ["2"]


@pytest.mark.slow
def test_a_copy_beside_a_file_is_told(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    (logs / "app.log").write_text(numbers(*range(3000)))
    read(source, backend)
    shutil.copy(logs / "app.log", logs / "app.log.copy")
    with caplog.at_level(logging.WARNING, "malflow"):
        assert len(read(source, backend)) == 3000
    assert "app.log.copy' begins with what was read from" in caplog.text


def test_a_file_that_was_not_read_is_a_new_one_under_its_new_name(logs: Path) -> None:
    backend, source = in_memory(), TextFileSource(logs / "*.log*")
    (logs / "app.log").write_text("")
    assert read(source, backend) == ["100"]
    (logs / "app.log").rename(logs / "app.log.1")
    (logs / "app.log.1").write_text(numbers(1))
    assert read(source, backend) == ["1"]


@pytest.mark.parametrize("on_renamed", ["continue", "restart", "fail"])
def test_a_file_that_was_not_begun_may_be_renamed(logs: Path, on_renamed: Any) -> None:
    """A run that is killed before its first poll has such positions; without the new name the file is missed."""
    source = TextFileSource(logs / "*.log*", on_renamed=on_renamed)
    (logs / "app.log.1").write_text(numbers(1))
    old, new, there = (str(logs / name) for name in ("app.log", "app.log.1", "db.log"))
    unread = {name: FilePosition() for name in (old, there)}

    assert source.renamed_parts(unread, [new, there]) == {old: new}
    assert source.renamed_parts(unread, [there]) == {}
    assert source.renamed_parts({**unread, new: FilePosition()}, [new, there]) == {}
