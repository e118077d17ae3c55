"""Compressions of one's own: what is written is read by those functions alone, and what they break is named."""

from __future__ import annotations

import bz2
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, MultiProcessRuntime, SingleThreadRuntime
from malflow.errors import MissingDependency, RunFailed, SnapshotError
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import Compression, FsspecBackend, copy_snapshot, fsck, read_state
from malflow.snapshot.compression import compression_of
from malflow.snapshot.files.sections import sections_of
from malflow.sources import SingleIteratorSource, StatelessSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import kept_states

ZLIB = Compression("zlib-9", lambda raw: zlib.compress(raw, 9), zlib.decompress)
BZ2 = Compression("bz2", bz2.compress, bz2.decompress)
COMPRESSIONS: list[Any] = ["lz4", "zstd", "none", ZLIB]


def counting(items: Any) -> Any:
    """Return the build function of a dataflow that counts letters."""

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("letters", items).key_distribute("letter", lambda msg: msg.value)
        keyed.stateful_map("count", lambda _key, _value, n: (n + 1, n + 1), int).sink("out", VecSink())

    return build


def run(folder: Path, items: Any, compression: Any, runtime: Any = SingleThreadRuntime, **options: Any) -> None:
    """Run the dataflow, with a snapshot at its end."""
    runtime(counting(items), FsspecBackend(str(folder), compression=compression, **options)).execute()


@pytest.mark.parametrize("name", ["", "Zlib", "zlib 9", "-9", "é", "a" * 33, "a/b", 5, None, "lz4", "none", "zstd"])
def test_names_that_are_none_or_taken(name: Any) -> None:
    with pytest.raises(GraphError, match=r"the name of a compression|malflow's own"):
        Compression(name, zlib.compress, zlib.decompress)


@pytest.mark.parametrize(
    ("compress", "decompress", "words"),
    [
        (lambda raw: raw[:-1], lambda raw: raw, "does not return 7 bytes as they were, but 6 bytes"),
        (lambda raw: raw, bytearray, "does not return 0 bytes as they were"),
        (lambda raw: raw.decode(), lambda raw: raw.encode(), "fails for 65,536 bytes: UnicodeDecodeError"),
        (lambda raw: 1 / len(raw), zlib.decompress, "fails for 0 bytes: ZeroDivisionError"),
        (lambda raw: None, lambda raw: None, "but None"),
        (zlib.compress, bz2.decompress, "fails for 0 bytes"),
    ],
)
def test_functions_that_lose_something_are_refused_at_once(compress: Any, decompress: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        Compression("broken", compress, decompress)


@pytest.mark.parametrize(
    "given", ["lz5", 5, None, "json:dumps", "no_such_module:x", "tests.snapshot.test_compression:NO"]
)
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(GraphError, match="compression"):
        FsspecBackend("memory://x", compression=given, allow_unsigned_pickle=True)


def test_a_compression_may_be_named_by_its_module() -> None:
    assert compression_of("tests.snapshot.test_compression:ZLIB").name == "zlib-9"


def test_zstd_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=r"malflow\[zstd\]"):
        FsspecBackend("memory://x", compression="zstd", allow_unsigned_pickle=True)


@pytest.mark.parametrize("before", COMPRESSIONS, ids=str)
@pytest.mark.parametrize("after", COMPRESSIONS, ids=str)
def test_a_run_goes_on_with_another_compression(before: Any, after: Any, tmp_path: Path) -> None:
    given = {"compression": ZLIB} if ZLIB in (before, after) else {}
    items = ScriptedSource(["a", "b", PAUSE, "a"])
    run(tmp_path, items, before, growth=100.0)
    if before is not ZLIB or after is ZLIB:
        run(tmp_path, ScriptedSource(["a", "b", PAUSE, "a", "c", "a"]), after, growth=100.0)
        backend = FsspecBackend(str(tmp_path), **given)
        assert kept_states(backend, "count") == {"a": 3, "b": 1, "c": 1}
        assert fsck(backend).problems == ()
        return
    with pytest.raises(
        SnapshotError, match=r"with compression 'zlib-9'; pass compression=Compression\('zlib-9', \.\.\.\)"
    ):
        run(tmp_path, items, after)


def test_readers_need_the_functions(tmp_path: Path) -> None:
    run(tmp_path / "a", ScriptedSource("abca"), ZLIB)
    ours, none = FsspecBackend(str(tmp_path / "a"), compression=ZLIB), FsspecBackend(str(tmp_path / "a"))
    assert dict(read_state(ours, "count"))["a"] == 2
    with pytest.raises(SnapshotError, match="pass compression="):
        copy_snapshot(ours, to=FsspecBackend(str(tmp_path / "b"), compression=BZ2))
    copy = FsspecBackend(str(tmp_path / "b"), compression=ZLIB)
    copy_snapshot(ours, to=copy)
    assert dict(read_state(copy, "count"))["a"] == 2
    for read in (lambda: dict(read_state(none, "count")), lambda: run(tmp_path / "a", ScriptedSource("abca"), "zstd")):
        with pytest.raises(SnapshotError, match="pass compression="):
            read()
    assert "zlib-9" in str(fsck(none).problems)


def test_functions_that_differ_from_those_that_wrote(tmp_path: Path) -> None:
    run(tmp_path, ScriptedSource("abca"), ZLIB)
    other = Compression("zlib-9", bz2.compress, bz2.decompress)
    with pytest.raises(SnapshotError, match=r"compression 'zlib-9' can't decompress: OSError.*pass the functions"):
        run(tmp_path, ScriptedSource("abca"), other)
    short = Compression("zlib-9", zlib.compress, lambda frame: zlib.decompress(frame)[: 1 << 16])
    object.__setattr__(short, "decompress", lambda frame: zlib.decompress(frame)[:-1])
    with pytest.raises(SnapshotError, match=r"is not .* bytes of zlib-9"):
        run(tmp_path, ScriptedSource("abca"), short)


def test_a_function_that_fails_while_the_run_goes_on_ends_it_with_its_name(tmp_path: Path) -> None:
    failing = Compression("small-only", zlib.compress, zlib.decompress)
    object.__setattr__(failing, "compress", lambda raw: "text")
    with pytest.raises((SnapshotError, RunFailed), match="compression 'small-only' returned 'text' instead of bytes"):
        run(tmp_path, ScriptedSource("abca"), failing)


@given(st.binary(max_size=3_000), st.data())
def test_frames_of_zstd_that_were_changed_make_nothing_else(raw: bytes, data: st.DataObject) -> None:
    zstd = compression_of("zstd")
    frame = zstd.packed(raw)
    assert zstd.unpacked(frame, len(raw)) == raw
    assert zstd.unpacked(frame, len(raw) + 1) is None
    assert zstd.unpacked(frame + frame, len(raw)) is None
    at = data.draw(st.integers(0, len(frame) - 1))
    changed = bytearray(frame)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert zstd.unpacked(bytes(changed), len(raw)) in (None, raw)
    assert zstd.unpacked(frame[:at], len(raw)) is None


def test_frames_are_merged_with_frames_of_their_compression(tmp_path: Path) -> None:
    backends = [FsspecBackend(str(tmp_path / it), compression=it) for it in ("lz4", "zstd")]
    entries, data = [], {}
    for backend in backends:
        run(tmp_path / backend.arguments["compression"].name, ScriptedSource("abca"), backend.arguments["compression"])
        log = backend.manifest_log()
        assert log.find()
        (entry,) = log.manifest(2).files
        entries.append(entry)
        data[entry.name] = log.read(entry)
    zstd = compression_of("zstd")
    assert sections_of(lambda it: data[it.name], entries, zstd) is None
    assert sections_of(lambda it: data[it.name], entries[1:], zstd)


def letters(count: int) -> Any:
    """Return a source of letters that any process can read."""
    return StatelessSource(SingleIteratorSource(["a", "b"] * count))


@pytest.mark.slow
def test_functions_of_the_test_reach_other_processes(tmp_path: Path) -> None:
    runtime = partial(MultiProcessRuntime, parallelism=2, processes=2, start_method="forkserver")
    run(tmp_path, letters(3), ZLIB, runtime)
    assert kept_states(FsspecBackend(str(tmp_path), compression=ZLIB), "count") == {"a": 3, "b": 3}


@pytest.mark.spark
def test_functions_of_the_test_reach_spark(tmp_path: Path, spark: Any) -> None:
    run(tmp_path, letters(3), ZLIB, partial(SparkRuntime, parallelism=2, spark=spark))
    assert kept_states(FsspecBackend(str(tmp_path), compression=ZLIB), "count") == {"a": 3, "b": 3}
