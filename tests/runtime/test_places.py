"""Locations, names and signing keys of snapshots, and secrets that are never shown."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    GraphError,
    SingleThreadRuntime,
    SnapshotError,
)
from malflow.errors import SnapshotCorrupt, SnapshotIncomplete, StoreError
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.store.contract import Store
from malflow.store.local import LocalStore
from tests.kit.backends import at_once
from tests.kit.counting import KEY, MOMENT, counted, counting, ids, one_a_tick, run


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket", "abfs://container/x", "nowhere://x", "ftp://h/x"])
def test_pickles_are_taken_only_from_where_nobody_else_writes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALFLOW_SIGNING_KEY", raising=False)
    with pytest.raises(GraphError, match=r"loading a pickle can execute code.*set signing_key=.*codec='msgpack'"):
        FsspecBackend(url)
    FsspecBackend(url, signing_key=KEY)
    FsspecBackend(url, allow_unsigned_pickle=True)
    monkeypatch.setenv("MALFLOW_SIGNING_KEY", KEY)
    FsspecBackend(url)


def test_msgpack_needs_no_key_anywhere() -> None:
    pytest.importorskip("msgpack")
    FsspecBackend("s3://bucket/prefix", codec="msgpack")


def test_signed_snapshot_is_read_with_its_key_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALFLOW_SIGNING_KEY", raising=False)
    counted("aab", at_once(tmp_path, signing_key=KEY))
    with pytest.raises(SnapshotCorrupt, match="it is signed, but no signing key is set"):
        counted("aab", at_once(tmp_path))
    with pytest.raises(SnapshotCorrupt, match="its signature does not match its content"):
        counted("aab", at_once(tmp_path, signing_key="another key, of sixteen bytes and more"))
    monkeypatch.setenv("MALFLOW_SIGNING_KEY", KEY)
    assert counted("aabb", at_once(tmp_path)) == [("b", 2)]


def test_unsigned_snapshot_is_refused_with_a_key(tmp_path: Path) -> None:
    counted("aab", at_once(tmp_path))
    with pytest.raises(SnapshotCorrupt, match="it is not signed, but a signing key is set"):
        counted("aab", at_once(tmp_path, signing_key=KEY))


def test_a_short_key_is_refused() -> None:
    with pytest.raises(GraphError, match="signing key 1 has 5 bytes; it needs at least 16"):
        FsspecBackend("memory://x", signing_key="short")


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "../x", "a b", "-x", "ä", "x" * 64, "a\n", None, 7])
def test_a_job_is_named_by_letters_digits_and_few_signs(job: Any) -> None:
    with pytest.raises(GraphError, match="job= must be up to 63 letters"):
        FsspecBackend("memory://x", job=job)


@pytest.mark.fault("G13")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retain": 0}, "retain must be a whole number, at least 1, or a timedelta or a text such as '7d'; got 0"),
        ({"retain": True}, "retain must be"),
        ({"retain": timedelta(0)}, "FsspecBackend retain must be a time above zero"),
        ({"compression": "zip"}, "compression must be 'lz4', 'none', 'zstd', or a Compression; got 'zip'"),
        ({"growth": 0}, "growth must be a positive number; got 0"),
        ({"growth": float("nan")}, "growth must be a positive number; got nan"),
        ({"codec": "pickel"}, "did you mean 'pickle'"),
        ({"retry_for": "5x"}, "FsspecBackend retry_for must be a time above zero, .*; got '5x'"),
        ({"tolerate_failures_for": timedelta(0)}, "tolerate_failures_for must be a time above zero"),
    ],
)
def test_options_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        FsspecBackend("memory://x", **options)


@pytest.mark.fault("G14")
@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1), 0, True, float("nan"), "1x", "0s"])
def test_an_interval_is_a_length_of_time(interval: Any) -> None:
    with pytest.raises(GraphError, match="a run's snapshots must be a time above zero, such as '10s'"):
        SingleThreadRuntime(counting(""), snapshots=interval)


@pytest.mark.fault("C3")
def test_a_folder_that_can_not_be_written_stops_the_run_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    seen: list[Any] = []
    with pytest.raises(StoreError, match="replace the file or symbolic link by a folder"):
        run(counting("aab", look=lambda msg, _ctx: seen.append(msg)), at_once(tmp_path / "file"))
    assert seen == []


@pytest.mark.fault("C3")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_write_permission_stops_the_run_early(tmp_path: Path) -> None:
    counted("aab", at_once(tmp_path))
    for folder in (*tmp_path.glob("default/*/"), tmp_path / "default"):
        folder.chmod(0o500)
    with pytest.raises(StoreError, match="give this user read and write permission"):
        counted("aab", at_once(tmp_path))


@pytest.mark.fault("D10")
def test_a_copied_job_is_refused(tmp_path: Path) -> None:
    counted("aab", at_once(tmp_path, job="first"))
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    with pytest.raises(SnapshotCorrupt, match="belongs to job 'first' and was copied into the folder of job 'second'"):
        counted("aab", at_once(tmp_path, job="second"))


@pytest.mark.damages_snapshots("it loses files")
@pytest.mark.parametrize(("lost", "said"), [("m", "all manifests of job"), ("job.json", "'job.json' is missing")])
def test_a_job_that_lost_files_never_begins_with_nothing(tmp_path: Path, lost: str, said: str) -> None:
    counted("aab", at_once(tmp_path))
    path = tmp_path / "default" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for restore in ("latest", None):
        with pytest.raises(SnapshotIncomplete, match=said):
            counted("aab", at_once(tmp_path), restore=restore)


@pytest.mark.fault("G15")
@pytest.mark.parametrize("spelling", ["{}", "{}/", "file://{}", "local://{}", "{}/../{name}"])
def test_one_place_has_many_spellings(tmp_path: Path, spelling: str) -> None:
    counted("aab", at_once(tmp_path))
    assert counted("aab", at_once(spelling.format(tmp_path, name=tmp_path.name))) == []


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    counted("aab", at_once(tmp_path / "state"))
    for path in (tmp_path / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


CANARY = "c4n4ry-s3cr3t-value"


def test_no_secret_shows(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALFLOW_SIGNING_KEY", raising=False)
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    def note(action: Callable[[], object]) -> None:
        try:
            told.append(repr(action()))
        except Exception as error:  # noqa: BLE001 - all that may be told
            chain: BaseException | None = error
            while chain is not None:
                told.append(f"{chain} {chain!r} {getattr(chain, '__notes__', '')}")
                chain = chain.__cause__ or chain.__context__

    options = {"key": "someone", "secret": CANARY, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}
    remote = FsspecBackend(
        "s3://bucket/x", storage_options=options, signing_key=CANARY, retry_for=timedelta(milliseconds=1)
    )
    note(lambda: remote)
    note(lambda: pickle.dumps(remote))
    note(lambda: vars(pickle.loads(pickle.dumps(remote))))
    note(lambda: run(counting("a"), remote))
    note(lambda: list(snapshots(remote)))
    note(lambda: FsspecBackend(f"ftp://me:{CANARY}@127.0.0.1/x"))
    note(lambda: FsspecBackend(f"ftp://me:{CANARY}@127.0.0.1/x", allow_unsigned_pickle=True, retain=0))
    local = at_once(tmp_path, signing_key=CANARY)
    counted("aab", local)
    note(lambda: counted("aab", at_once(tmp_path, signing_key=CANARY[:-1] + "X")))
    note(lambda: local)
    assert len(told) >= 9
    assert sum("could not" in text for text in told) >= 2, "the remote store was asked, and answered with an error"
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY not in " ".join([*told, caplog.text])
    assert CANARY.encode() not in stored


class Watched(FsspecBackend):
    """A backend that lets something happen before the first manifest is read."""

    happens: Iterator[Callable[[], object]] = iter(())

    def _store(self, *, exclusive: bool) -> Store:
        store, get = LocalStore(Path(self._url, self.job)), LocalStore.get

        def watched(key: str, limit: int) -> bytes:
            if key.startswith("m/"):
                next(self.happens, lambda: None)()
            return get(store, key, limit)

        store.get = watched  # type: ignore[method-assign]
        return store


@pytest.mark.parametrize("look", [ids, lambda it: fsck(it).problems], ids=["snapshots", "fsck"])
@pytest.mark.parametrize("after", range(3))
def test_a_list_is_read_while_a_run_deletes_what_is_on_it(tmp_path: Path, look: Any, after: int) -> None:
    run(counting(one_a_tick(range(5))), at_once(tmp_path, retain=3), snapshots=MOMENT)

    def overtake() -> None:
        run(counting(one_a_tick(range(15))), at_once(tmp_path, retain=3), snapshots=MOMENT)

    watched = Watched(str(tmp_path))
    watched.happens = iter([*[lambda: None] * after, overtake])
    seen = look(watched)
    assert seen == () or len(seen) == after
    assert len(ids(watched)) == 3


def test_there_is_nothing_where_no_run_was(backend: FsspecBackend) -> None:
    assert ids(backend) == []
    assert fsck(backend).problems == ()


@pytest.mark.fault("G15")
def test_a_relative_path_is_that_of_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    backend = at_once("state")
    counted("aab", backend)
    monkeypatch.chdir(tmp_path / "there")
    assert len(list(snapshots(backend))) == 1
    assert counted("aabb", backend) == [("b", 2)]
    assert not (tmp_path / "there" / "state").exists()


@pytest.mark.fault("G15")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket//prefix", "has an empty path component; write s3://bucket/prefix"),
        ("s3://bucket/prefix///deep//er", "has an empty path component; write s3://bucket/prefix/deep/er"),
        ("memory://a//b", "has an empty path component; write memory://a/b"),
        ("s3://bucket/prefix?versionId=3", "names a version of an object"),
        ("s3://bucket/pre\nfix", "contains a line break or another control character"),
        ("s3:/bucket/prefix", "write s3://bucket/prefix"),
    ],
)
def test_a_prefix_that_libraries_read_otherwise_is_refused(url: str, said: str) -> None:
    with pytest.raises(GraphError, match=re.escape(said)):
        FsspecBackend(url, codec="msgpack")


@pytest.mark.fault("B15")
@pytest.mark.parametrize("exposed", ["", "m", "d", "m/00000000000000000002.json"])
def test_pickles_are_not_loaded_from_where_others_may_write(tmp_path: Path, exposed: str) -> None:
    counted("aab", at_once(tmp_path))
    path = tmp_path / "default" / exposed
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(
        StoreError, match=r"may be changed by every user \(mode [67]02\), and loading a pickle can execute code"
    ):
        counted("aabb", at_once(tmp_path))
    assert counted("aabb", at_once(tmp_path, allow_unsigned_pickle=True)) == [("b", 2)]
    path.chmod(path.stat().st_mode & ~0o002)
    assert counted("aabbb", at_once(tmp_path)) == [("b", 3)]


@pytest.mark.parametrize("safe", [{"codec": "msgpack"}, {"signing_key": KEY}])
def test_safe_snapshot_is_loaded_from_any_folder(tmp_path: Path, safe: dict[str, Any]) -> None:
    counted("aab", at_once(tmp_path, **safe))
    (tmp_path / "default").chmod(0o777)
    assert counted("aabb", at_once(tmp_path, **safe)) == [("b", 2)]


@pytest.mark.fault("B15")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_pickles_are_not_loaded_from_the_folder_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    os.chown(tmp_path / "default", 12345, -1)
    with pytest.raises(StoreError, match=r"belongs to another user \(uid 12345\)"):
        counted("aab", at_once(tmp_path))
    assert [*(tmp_path / "default").iterdir()] == []
    counted("aab", at_once(tmp_path, allow_unsigned_pickle=True))


@pytest.mark.fault("G15")
@pytest.mark.parametrize(("inner", "job"), [("outer", "m"), ("outer", "d"), ("outer", "gc"), ("outer/m", "x")])
@pytest.mark.parametrize("memory", [True, False])
def test_no_job_begins_in_the_folder_of_another(tmp_path: Path, inner: str, job: str, memory: bool) -> None:
    root = f"memory://{tmp_path.name}-{job}" if memory else str(tmp_path)
    counted("aab", at_once(root, job="outer"))
    with pytest.raises(SnapshotError, match=r"outer' is the folder of job 'outer'; jobs must not be nested"):
        counted("aab", at_once(f"{root}/{inner}", job=job))
    assert counted("aabb", at_once(root, job="outer")) == [("b", 2)]


@pytest.mark.fault("G15")
@pytest.mark.parametrize(("inner", "job"), [("outer", "m"), ("outer", "d"), ("outer", "gc"), ("outer/m", "x")])
def test_no_job_begins_around_another(tmp_path: Path, inner: str, job: str) -> None:
    counted("aab", at_once(tmp_path / inner, job=job))
    with pytest.raises(SnapshotError, match=r"job 'outer' can't be created: its folder contains another job, at '"):
        counted("aab", at_once(tmp_path, job="outer"))
    assert counted("aabb", at_once(tmp_path / inner, job=job)) == [("b", 2)]


def test_a_file_of_that_name_that_is_no_jobs_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"job": "of mine", "name": "x"}')
    assert counted("a", at_once(tmp_path)) == [("a", 1)]
