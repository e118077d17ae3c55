"""Snapshots in a store of the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.store import KeyExists, KeyMissing, require_folder, require_key
from malflow.testing import END, ScriptedSource


class FolderStore:
    """Objects as files whose names are their keys, in one folder; it can be pickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put_new(self, key: str, data: bytes) -> None:
        require_key(key)
        temp = self.folder / f".{os.urandom(8).hex()}"
        temp.write_bytes(data)
        try:
            os.link(temp, self._path(key))
        except FileExistsError:
            raise KeyExists(key) from None
        finally:
            temp.unlink()

    def get(self, key: str, limit: int) -> bytes:
        require_key(key)
        try:
            return self._path(key).read_bytes()[: limit + 1]
        except FileNotFoundError:
            raise KeyMissing(key) from None

    def list(self, prefix: str) -> list[str]:
        require_folder(prefix)
        keys = (it.name.replace("~", "/") for it in self.folder.iterdir() if not it.name.startswith("."))
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        require_key(key)
        self._path(key).unlink(missing_ok=True)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        require_folder(prefix)

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "~")


class Overwriting(FolderStore):
    def put_new(self, key: str, data: bytes) -> None:
        self._path(key).write_bytes(data)


class WithoutPickle(FolderStore):
    def __reduce__(self) -> Any:
        raise TypeError("a connection can't be pickled")


def sums(seen: VecSink[Any, Any, Any]) -> Callable[[StreamProvider], None]:
    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("numbers", ScriptedSource([1, 2, END, 3])).key_distribute("all", everyone)
        keyed.stateful_map("sum", add, int).sink("seen", seen)

    return build


def everyone(_: Any) -> str:
    return "all"


def add(_: str, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def backend_of(folder: Path, kind: type[FolderStore] = FolderStore, **options: Any) -> FsspecBackend:
    return FsspecBackend(store=kind(folder), job="sums", allow_unsigned_pickle=True, **options)


def test_a_job_resumes_from_a_store_of_its_own(tmp_path: Path) -> None:
    seen: VecSink[Any, Any, Any] = VecSink()
    for parallelism in (1, 2):
        SingleThreadRuntime(sums(seen), backend_of(tmp_path), parallelism=parallelism).execute()
    assert seen.values == [1, 3, 6]
    assert fsck(backend_of(tmp_path)).problems == ()
    assert [it.operators["sum"] for it in snapshots(backend_of(tmp_path))] == [1, 1]


@pytest.mark.spark
def test_tasks_of_spark_write_into_the_store(tmp_path: Path, spark: Any) -> None:
    seen: VecSink[Any, Any, Any] = VecSink()
    SparkRuntime(sums(seen), backend_of(tmp_path), parallelism=2, spark=spark).execute()
    SingleThreadRuntime(sums(seen), backend_of(tmp_path)).execute()
    assert seen.values == [1, 3, 6]


@pytest.mark.spark
def test_a_store_that_cannot_reach_the_tasks_of_spark_is_refused(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(
        GraphError, match=r"can't run on Spark: TypeError: a connection can't be pickled; .*__getstate__"
    ):
        SparkRuntime(sums(VecSink()), backend_of(tmp_path, WithoutPickle), parallelism=1, spark=spark).execute()


def test_a_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SnapshotError, match=r"Overwriting.* overwrites existing objects, .*; let put_new\(\) raise KeyE"
    ):
        SingleThreadRuntime(sums(VecSink()), backend_of(tmp_path, Overwriting)).execute()


def test_a_store_of_ones_own_is_not_private(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"others may be able to write to .*FolderStore.*; set signing_key="):
        FsspecBackend(store=FolderStore(tmp_path))


def test_two_jobs_do_not_share_a_store(tmp_path: Path) -> None:
    SingleThreadRuntime(sums(VecSink()), backend_of(tmp_path)).execute()
    other = FsspecBackend(store=FolderStore(tmp_path), job="other", allow_unsigned_pickle=True)
    with pytest.raises(SnapshotError, match=r"'job\.json' belongs to job 'sums'"):
        SingleThreadRuntime(sums(VecSink()), other).execute()


class Half:
    def put_new(self, key: str, data: bytes) -> None: ...

    def get(self, key: str, limit: int) -> bytes:
        raise KeyMissing(key)


class OldNames(FolderStore):
    def get(self, key: str) -> bytes:  # type: ignore[override]
        return super().get(key, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"store": Half()},
            r"store needs a store; .*Half.* has no list\(prefix\), delete\(key\), sweep\(prefix, dead\);",
        ),
        ({"store": FolderStore}, r"store needs an instance; got the class FolderStore; write FolderStore\(\.\.\.\)"),
        ({"store": OldNames(Path())}, r"store calls get\(key, limit\), but .*OldNames.* takes other arguments;"),
        ({"store": "s3://bucket"}, "store needs an object of your own; got 's3://bucket'; pass it as url"),
        ({"store": FolderStore(Path()), "url": "here"}, "url and store are mutually exclusive; pass one of them"),
        (
            {"store": FolderStore(Path()), "storage_options": {"key": "x"}},
            "storage_options and store are mutually excl",
        ),
        (
            {"store": FolderStore(Path()), "allow_unsafe_single_writer": True},
            "allow_unsafe_single_writer and store are",
        ),
        ({}, "a store needs a path or URL; got None"),
    ],
)
def test_a_wrong_store_is_refused_with_the_cure(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        FsspecBackend(**options, allow_unsigned_pickle=True)


def test_the_repr_shows_the_store_and_the_job(tmp_path: Path) -> None:
    assert repr(backend_of(tmp_path)).startswith("FsspecBackend(store=<")
    assert repr(backend_of(tmp_path)).endswith(", job='sums')")
