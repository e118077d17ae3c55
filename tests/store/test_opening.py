"""The store that a path or URL names, and URLs that are refused."""

from __future__ import annotations

import importlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from malflow.errors import GraphError, MissingDependency, StoreError
from malflow.store.contract import KeyExists, KeyMissing, Transient, UnknownOutcome
from malflow.store.local import LocalStore
from malflow.store.opening import is_private, open_store
from malflow.store.remote import FsspecStore
from tests.store.conftest import LinkingFileSystem, run_python


@pytest.mark.fault("G15")
@pytest.mark.parametrize(
    "spelling",
    [
        "{0}/job",
        "{0}/job/",
        "{0}//job///",
        "{0}/./job",
        "{0}/x/../job",
        "file://{0}/job",
        "local://{0}/job/",
        "job",
        "./job/",
    ],
)
def test_a_folder_has_many_spellings(spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repr(open_store(spelling.format(tmp_path))) == f"LocalStore('{tmp_path}/job')"


def test_a_path_may_be_a_path_object_and_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert repr(open_store("~/job")) == repr(open_store(tmp_path / "job")) == f"LocalStore('{tmp_path}/job')"


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("job")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put_new("m/1", b"")
    assert (tmp_path / "job" / "m" / "1").exists()


@pytest.mark.parametrize("url", ["memory://open/job", "memory://open/job//"])
def test_memory_is_of_this_process(url: str) -> None:
    store = open_store(url)
    assert repr(store) == "FsspecStore('memory://open/job/')"
    store.put_new(f"m/{len(url)}", b"1")
    assert open_store("memory://open/job").get(f"m/{len(url)}", 9) == b"1"


@pytest.mark.fault("G15")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "needs a path or URL"),
        ("  ", "needs a path or URL"),
        ("simplecache::s3://bucket/x", "chains file systems"),
        ("zip://a::file:///tmp/x.zip", "chains file systems"),
        ("nope://bucket/x", "protocol unknown to fsspec: nope"),
        ("s3://", "does not name a bucket or folder"),
        ("s3:///", "does not name a bucket or folder"),
        ("s3:/bucket/x", "write s3://bucket/x"),
        ("memory:/default", "write memory://default"),
    ],
)
def test_url_without_a_store_is_refused(url: str, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        open_store(url)


@pytest.mark.parametrize("url", [None, 3, b"/tmp/x"])
def test_invalid_path_is_refused(url: Any) -> None:
    with pytest.raises(GraphError, match="needs a path or URL"):
        open_store(url)


def test_options_for_a_local_folder_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"takes no storage_options; got key, secret; write s3://") as refused:
        open_store("bucket/job", {"key": "k", "secret": "hush"})
    assert "hush" not in str(refused.value)


def test_a_url_in_an_error_shows_no_password() -> None:
    with pytest.raises(GraphError, match=r"nope://\*\*\*@host") as refused:
        open_store("nope://me:hush@host/x")
    assert "hush" not in str(refused.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, "s3", raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'malflow\[s3\]'"):
        open_store("s3://bucket/job")


def test_a_file_system_may_be_given(tmp_path: Path) -> None:
    filesystem = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    store = open_store("job", filesystem=filesystem)
    store.put_new("m/1", b"1")
    assert filesystem.cat_file("/job/m/1") == b"1"
    assert isinstance(open_store(tmp_path, filesystem=LocalFileSystem()), LocalStore)
    assert isinstance(open_store(tmp_path / "job", filesystem=LinkingFileSystem()), FsspecStore)


def test_invalid_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="must be an fsspec file system; got str"):
        open_store("job", filesystem="memory")
    with pytest.raises(GraphError, match="mutually exclusive"):
        open_store("job", {"key": "k"}, filesystem=MemoryFileSystem())
    with pytest.raises(GraphError, match="wraps another file system"):
        open_store("job", filesystem=DirFileSystem(str(tmp_path), fs=LocalFileSystem()))


def test_a_file_system_that_writes_bit_by_bit_is_refused() -> None:
    class HandleFileSystem(LocalFileSystem):
        protocol = "handle"

    with pytest.raises(GraphError, match="HandleFileSystem writes files piece by piece"):
        open_store("/tmp/job", filesystem=HandleFileSystem())  # noqa: S108


def test_disk_and_memory_are_private() -> None:
    private = ["/x", "x", "~/x", "file:///x", "local://x", "memory://x", Path("x")]
    assert [is_private(url) for url in private] == [True] * 7
    assert [is_private(url) for url in ("s3://bucket/x", "s3a://bucket/x", "gs://bucket/x", "nope://x")] == [False] * 4
    assert is_private("s3://x", MemoryFileSystem())
    assert is_private("x", LocalFileSystem())
    assert not is_private("/x", LinkingFileSystem())


class SlowMemoryFileSystem(MemoryFileSystem):
    """Takes its time between looking and writing."""

    def exists(self, path: str, **options: Any) -> bool:
        found = super().exists(path, **options)
        time.sleep(0.002)
        return bool(found)


def test_memory_creates_exclusively_though_its_file_system_looks_first() -> None:
    stores = [FsspecStore(SlowMemoryFileSystem(), "/slow/job") for _ in range(4)]

    def attempt(racer: int) -> bool:
        try:
            stores[racer].put_new("m/1", b"%d" % racer)
        except KeyExists:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(attempt, range(4)))
    assert outcomes.count(True) == 1
    assert stores[0].get("m/1", 9) == b"%d" % outcomes.index(True)


class RememberingFileSystem(LinkingFileSystem):
    """Lists what it saw before, until it is told to look again."""

    protocol = "remembering"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: dict[str, Any] = {}

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        if path not in self.seen:
            self.seen[path] = super().ls(path, detail, **options)
        return self.seen[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.seen.clear()


@pytest.mark.fault("C13")
def test_a_listing_is_never_remembered(tmp_path: Path) -> None:
    ours, theirs = (FsspecStore(RememberingFileSystem(skip_instance_cache=True), str(tmp_path)) for _ in range(2))
    for number in range(3):
        theirs.put_new(f"m/{number}", b"")
        assert len(ours.list("m/")) == number + 1


class Broken(LinkingFileSystem):
    """Fails as it is told."""

    protocol = "broken"

    def __init__(self, error: Exception, **options: Any) -> None:
        super().__init__(**options)
        self.error = error

    def pipe_file(self, *_: Any, **__: Any) -> None:
        raise self.error

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        raise self.error

    def ls(self, *_: Any, **__: Any) -> list[Any]:
        raise self.error

    def rm_file(self, *_: Any, **__: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "writing", "reading"),
    [
        (PermissionError("no"), StoreError, StoreError),
        (ConnectionResetError("reset"), UnknownOutcome, Transient),
        (TimeoutError("slow"), UnknownOutcome, Transient),
        (OSError(5, "EIO"), UnknownOutcome, StoreError),
        (FileNotFoundError("bucket"), UnknownOutcome, KeyMissing),
        (ValueError("what"), UnknownOutcome, StoreError),
    ],
)
def test_errors_of_a_file_system_that_nobody_knows(
    error: Exception, writing: type[Exception], reading: type[Exception]
) -> None:
    store = FsspecStore(Broken(error, skip_instance_cache=True), "/job")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is looked at below
        store.put_new("m/1", b"")
    assert type(raised.value) is writing
    with pytest.raises(Exception) as raised:  # noqa: PT011
        store.get("m/1", 9)
    assert type(raised.value) is reading
    if reading is KeyMissing:
        assert store.list("m/") == []
        store.delete("m/1")
        return
    for operation in (lambda: store.list("m/"), lambda: store.delete("m/1")):
        with pytest.raises(Exception) as raised:  # noqa: PT011
            operation()
        assert type(raised.value) is reading


@pytest.mark.slow
def test_opening_a_store_on_disk_needs_no_network_library(tmp_path: Path) -> None:
    told = run_python(
        "import sys; from malflow.store.opening import open_store\n"
        f"open_store({os.fspath(tmp_path)!r}).put_new('m/1', b'')\n"
        "print([name for name in ('s3fs', 'aiohttp', 'botocore') if name in sys.modules])"
    )
    assert (told.stdout, told.stderr) == ("[]\n", "")
