"""No secret is revealed: not in errors, logs, reprs, pickles, or stored data."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import GraphError, MalflowError, SnapshotError
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.snapshot.protocol.signing import KEY_VARIABLE
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from tests.kit.jobs import Job, steady

PASSWORD = "canary-" + "password-7f3a"
SIGNING_KEY = "canary-signing-key-91c4"
SECRETS = (PASSWORD, SIGNING_KEY)


class Talkative(MemoryFileSystem):
    """A file system whose errors say all they know.

    Attributes:
        failing: the methods that fail.
    """

    protocol = "talkative"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its base does
    pseudo_dirs = [""]  # noqa: RUF012
    failing: set[str] = set()  # noqa: RUF012
    error: type[Exception] = OSError

    def __init__(self, password: str = "", **options: Any) -> None:
        super().__init__(password=password, **options)
        self.password = password

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self._fail("pipe_file")
        super().pipe_file(path, value, mode=mode, **options)

    def cat_file(self, *args: Any, **options: Any) -> Any:
        self._fail("cat_file")
        return super().cat_file(*args, **options)

    def ls(self, *args: Any, **options: Any) -> Any:
        self._fail("ls")
        return super().ls(*args, **options)

    def rm_file(self, *args: Any) -> None:
        self._fail("rm_file")
        super().rm_file(*args)

    def _fail(self, method: str) -> None:
        if method in self.failing:
            raise self.error(f"login as {self.password} failed at https://me:{self.password}@host/?sig={self.password}")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    Talkative.store.clear()
    Talkative.failing = set()
    yield
    Talkative.failing = set()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[BaseException | None], str]:
    """Return a function that collects all texts of an error and all that was logged."""
    caplog.set_level(logging.DEBUG)

    def tell(error: BaseException | None) -> str:
        if error is None:
            return caplog.text
        links = "".join(traceback.format_exception(error))
        return f"{caplog.text} {links} {error!r} {vars(error)!r} {pickle.loads(pickle.dumps(str(error)))}"

    return tell


def backend(**options: Any) -> FsspecBackend:
    made = FsspecBackend(
        "/place",
        filesystem=Talkative(password=PASSWORD, skip_instance_cache=True),
        signing_key=SIGNING_KEY,
        retry_for=timedelta(seconds=1),
        **options,
    )
    return steady(made)


def assert_no_secret(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text


def do_open() -> object:
    return Job(backend())


def do_list() -> object:
    return list(snapshots(backend()))


def do_check() -> object:
    return fsck(backend())


@pytest.mark.fault("C15")
@pytest.mark.parametrize("error", [OSError, PermissionError, TimeoutError, FileExistsError, ValueError])
@pytest.mark.parametrize("method", ["pipe_file", "cat_file", "ls"])
@pytest.mark.parametrize("operation", [do_open, do_list, do_check])
def test_no_error_of_a_store_tells_a_secret(
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[BaseException | None], str],
    operation: Callable[[], object],
    method: str,
    error: type[Exception],
) -> None:
    job = Job(backend())
    job.save({"a": 1}).result()
    monkeypatch.setattr(Talkative, "error", error)
    Talkative.failing = {method}
    raised: BaseException | None = None
    try:
        operation()
    except MalflowError as failure:
        raised = failure
    assert (raised is None) == (method == "pipe_file" and operation is not do_open)
    assert_no_secret(told(raised))


@pytest.mark.parametrize("method", ["pipe_file", "cat_file", "ls", "rm_file"])
def test_no_snapshot_that_fails_tells_a_secret(told: Callable[[BaseException | None], str], method: str) -> None:
    job = Job(backend(retain=1))
    for n in range(4):
        job.save({n: n}).result()
    Talkative.failing = {method}
    failures = [job.save({n: -n}).exception() for n in range(2)] if method != "ls" else [_error_of(job)]
    for error in failures:
        assert_no_secret(told(error))
    assert "login as" in told(failures[0]) or method == "cat_file"


def _error_of(job: Job) -> BaseException | None:
    try:
        return job.save({"a": 1}).exception()
    except SnapshotError as error:
        return error


def test_no_secret_is_stored(told: Callable[[BaseException | None], str]) -> None:
    job = Job(backend())
    for n in range(3):
        job.save({n: n}).result()
    stored = b"".join(file.getvalue() for file in Talkative.store.values())
    assert len(stored) > 1000
    for secret in SECRETS:
        assert secret.encode() not in stored
    assert_no_secret("".join(Talkative.store))
    assert_no_secret(told(None))


def test_a_whole_run_that_fails_tells_no_secret(told: Callable[[BaseException | None], str]) -> None:
    def fail(_key: Any, value: int, total: int) -> tuple[int, int]:
        Talkative.failing = {"pipe_file"}
        return value, total + value

    def build(provider: StreamProvider) -> object:
        stream = provider.new_stream().source("numbers", StatefulSource(ScriptedSource([1, 2])))
        keyed = stream.key_distribute("all", lambda _: "all").stateful_map("sum", fail, default=int)
        return keyed.sink("seen", StatelessSink(VecSink()))

    with pytest.raises(SnapshotError) as raised:
        SingleThreadRuntime(build, backend()).execute()
    assert "could not be confirmed as written" in str(raised.value)
    assert_no_secret(told(raised.value))


OPTIONS = {"key": "an-access-key", "secret": PASSWORD, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}


def test_the_text_of_a_backend_tells_no_secret() -> None:
    made = FsspecBackend("s3://bucket/place", storage_options=OPTIONS, signing_key=SIGNING_KEY)
    assert repr(made) == "FsspecBackend('s3://bucket/place', job='default')"
    with_user = FsspecBackend(f"ftp://me:{PASSWORD}@host/place", signing_key=SIGNING_KEY)
    assert_no_secret(f"{made!r} {made} {with_user!r} {with_user}")


def test_pickled_backend_carries_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FsspecBackend("s3://bucket/place", storage_options=OPTIONS, signing_key=SIGNING_KEY, retain=3)
    data = pickle.dumps(made)
    for secret in SECRETS:
        assert secret.encode() not in data
    assert b"endpoint_url" in data
    monkeypatch.setenv(KEY_VARIABLE, SIGNING_KEY)
    arrived = pickle.loads(data)
    assert repr(arrived) == repr(made)
    assert arrived._signer.verify(b"x", made._signer.sign(b"x"))  # type: ignore[union-attr]


def test_a_backend_with_a_file_system_of_its_own_is_not_pickled() -> None:
    with pytest.raises(
        GraphError, match=r"can't be pickled: filesystem= may hold secrets; pass a URL instead"
    ) as raised:
        pickle.dumps(backend())
    assert_no_secret(str(raised.value))


def test_a_refused_argument_tells_no_secret() -> None:
    for attempt in (
        lambda: FsspecBackend(f"s3://me:{PASSWORD}@bucket/x", storage_options=OPTIONS),
        lambda: FsspecBackend("s3://bucket/x", signing_key="canary-short"),
        lambda: Job(FsspecBackend(f"simplecache::ftp://me:{PASSWORD}@host/x", signing_key=SIGNING_KEY)),
        lambda: Job(FsspecBackend("/nowhere", storage_options={"password": PASSWORD})),
    ):
        with pytest.raises(GraphError) as raised:
            attempt()
        assert "canary-" not in f"{raised.value} {raised.value!r}"
