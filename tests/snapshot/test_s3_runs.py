"""Whole runs with snapshots over the S3 protocol on a server that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from malflow import DataMessage, SingleThreadRuntime, StreamProvider
from malflow.errors import CommitUnknown, FencedError, GraphError, SnapshotCorrupt, SnapshotError, StoreError
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.snapshot.persistence import Persistence
from malflow.sources import StatefulSource
from malflow.store.contract import Store
from malflow.store.opening import open_store
from malflow.testing import CRASH, PAUSE, Crash, ScriptedSource
from tests.kit.backends import kept_states
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.jobs import KEY, Clock, steady
from tests.kit.nights import at_night
from tests.kit.s3_servers import S3_SERVERS, s3_options
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

ON_BOTH_SERVERS = pytest.mark.parametrize("s3", S3_SERVERS, indirect=True)
EVERY_TICK = timedelta(microseconds=1)
SCRIPT: Mapping[Any, list[Any]] = {"x": [1, PAUSE, 2, PAUSE, 3, CRASH, 4], "y": [10, 20, PAUSE, 30, PAUSE, 40]}
TOTALS = {"odd": 4, "even": 106}
_PLACES = count(1)


@pytest.fixture(scope="module", params=["moto"])
def s3(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


@pytest.fixture(scope="module")
def client(s3: FaultyS3) -> Store:
    """Open a store whose client the tests share: to make one takes long."""
    return open_store(f"s3://{s3.bucket}/shared", s3.options)


class Place:
    """A place on the server for one job, and the runs on it.

    Attributes:
        clock: what the runs wait by.
    """

    def __init__(self, server: FaultyS3, client: Store) -> None:
        self.server = server
        self.bucket = f"{server.bucket}-{next(_PLACES)}"
        server.filesystem().mkdir(self.bucket)
        self.url = f"s3://{self.bucket}/place"
        self.clock = Clock()
        self._client = client

    def backend(self, **options: Any) -> FsspecBackend:
        """Make a backend with the shared client."""
        backend = FsspecBackend(self.url, storage_options=self.server.options, **{"signing_key": KEY, **options})
        store = copy(self._client)
        store._root = f"{self.bucket}/place/{backend.job}"  # type: ignore[attr-defined]
        backend._store = lambda *, exclusive: store  # type: ignore[method-assign,assignment]
        return steady(backend, self.clock)

    def brief(self, **options: Any) -> FsspecBackend:
        """Make one that tries for two seconds."""
        return self.backend(retry_for=timedelta(seconds=2), **options)

    def run(
        self,
        source: ScriptedSource,
        at: Mapping[int, Callable[[], object]] | None = None,
        *,
        backend: Persistence | None = None,
        snapshots: timedelta | None = None,
        **options: Any,
    ) -> list[int]:
        """Sum the odd and the even values of a source, take a snapshot after each value of its part x, and do
        something before some of these values; return the values in their order.
        """
        seen: VecSink[Any, Any, Any] = VecSink()
        hooks = dict(at or {})

        def on_value(msg: DataMessage[Any, Any, Any], _: Any) -> None:
            if msg.key == "x":
                hooks.pop(msg.value, lambda: None)()
                if snapshots is None:
                    runtime.snapshot()

        def build(provider: StreamProvider) -> object:
            numbers = provider.new_stream().source("numbers", StatefulSource(source)).inspect("on value", on_value)
            keyed = numbers.key_distribute("parity", lambda msg: "even" if msg.value % 2 == 0 else "odd")
            summed = keyed.stateful_map("sum", lambda _, value, total: (value, total + value), default=int)
            return summed.sink("seen", StatelessSink(seen))

        runtime = SingleThreadRuntime(build, backend or self.backend(), snapshots, **options)
        runtime.execute()
        assert not hooks
        return seen.values

    def crash(
        self, source: ScriptedSource, at: Mapping[int, Callable[[], object]] | None = None, **options: Any
    ) -> None:
        """Run until the crash, and drop the run."""
        with pytest.raises(Crash):
            self.run(source, at, **options)

    @property
    def totals(self) -> dict[str, int]:
        """Read the totals from the newest snapshot."""
        return kept_states(self.backend(), "sum")


def paced(*values: Any) -> ScriptedSource:
    """Return a source with each value in a tick of its own."""
    script: list[Any] = []
    for value in values:
        script += [value] if value is CRASH else [value, PAUSE]
    return ScriptedSource({"x": script})


@pytest.fixture
def place(s3: FaultyS3, client: Store) -> Iterator[Place]:
    s3.reset()
    yield Place(s3, client)
    s3.reset()


FAULTS = [
    "error_before",
    "error_after",
    "throttled",
    "409",
    "reset_before",
    "reset_after",
    "412_without_condition",
    "delay",
]


@ON_BOTH_SERVERS
@pytest.mark.fault("C5", "C7", "C11", "C12")
@pytest.mark.parametrize("folder", at_night(["/d/", "/m/"], but=["/m/"]))
def test_totals_are_exact_whatever_happens_to_the_writes_of_snapshots(place: Place, folder: str) -> None:
    server = place.server
    source = paced(*range(1, 9), CRASH, 9)

    def fail(kind: str) -> Callable[[], object]:
        return lambda: server.inject(kind, "PUT", folder, seconds=0.01)

    place.crash(source, {value: fail(kind) for value, kind in enumerate(FAULTS, 1)})
    assert server.fired == len(FAULTS)
    assert place.run(source) == [9]
    assert place.totals == {"odd": 25, "even": 20}
    assert fsck(place.backend()).problems == ()


@pytest.mark.fault("C9")
@pytest.mark.parametrize(
    ("fault", "rest"), at_night([("throttled", [2, 3]), ("error_after", [3])], but=[("error_after", [3])])
)
def test_commit_whose_outcome_stays_unknown_is_settled_by_the_next_run(
    place: Place, fault: str, rest: list[int]
) -> None:
    source, server = paced(1, 2, 3), place.server

    def go_dark() -> None:
        server.inject(fault, "PUT", "/m/", times=10_000)
        server.inject("throttled", "GET", "/m/", nth=1, times=10_000)  # the first is of the run's last manifest

    with pytest.raises(CommitUnknown, match=r"did not confirm whether 'm/0+3\.json' was written"):
        place.run(source, {2: go_dark}, backend=place.brief())
    assert server.fired > 2
    server.reset()
    assert place.run(source) == rest
    assert place.totals == {"odd": 4, "even": 2}


@pytest.mark.fault("C5")
def test_totals_are_exact_whatever_happens_to_the_reads_of_a_restart(place: Place) -> None:
    source, server = ScriptedSource(SCRIPT), place.server
    place.crash(source)
    kinds = ["error_before", "throttled", "reset_before", "truncate", "delay"]
    paths = ["/d/", "/m/", "job.json"]
    for path in paths:
        for nth, kind in enumerate(kinds):
            server.inject(kind, "GET", path, nth=nth, seconds=0.01)
    place.run(source)
    assert server.fired == len(kinds) * len(paths)
    assert place.totals == TOTALS


@pytest.mark.fault("C16")
def test_totals_are_exact_whatever_happens_to_listings(place: Place) -> None:
    source, server = ScriptedSource(SCRIPT), place.server
    kinds = ["error_before", "throttled", "reset_before", "truncate"]

    def fail() -> None:
        for number, kind in enumerate(kinds):
            server.inject(kind, "GET", nth=2 * number, times=2)

    place.crash(source, {2: fail})
    assert server.fired == 2 * len(kinds)
    place.run(source, {4: fail})
    assert server.fired == 4 * len(kinds)
    assert place.totals == TOTALS


@pytest.mark.fault("C17")
def test_deletions_that_fail_are_made_up_for(place: Place) -> None:
    server = place.server
    kinds = ["error_before", "error_after", "reset_before", "throttled", "403"]

    def fail() -> None:
        for nth, kind in enumerate(kinds):
            server.inject(kind, "DELETE", nth=nth)

    place.run(paced(*range(1, 7)), {5: fail}, backend=place.backend(retain=1))
    assert server.fired == len(kinds)
    assert place.totals == {"odd": 9, "even": 12}
    assert fsck(place.backend()).problems == ()
    assert len(server.filesystem().find(f"{place.url}/default/m")) == 3


@ON_BOTH_SERVERS
@pytest.mark.fault("D1")
def test_of_two_runs_on_one_bucket_the_older_is_fenced_and_leaves_nothing(place: Place) -> None:
    with pytest.raises(FencedError, match=r"was claimed by another run, [0-9a-f]{16} at 2026-01-01"):
        place.run(paced(1, 2, 3, 4), {3: lambda: place.run(paced(1, 2, 100, 200))})
    assert place.totals == {"odd": 1, "even": 302}
    assert fsck(place.backend()).problems == ()


@pytest.mark.fault("C6")
def test_store_that_is_down_is_asked_little_and_the_run_catches_up(place: Place) -> None:
    server = place.server
    asked: list[int] = []

    def go_down() -> None:
        server.requests.clear()
        server.inject("throttled", "PUT", "", times=10_000)

    def come_back() -> None:
        asked.append(len(server.requests))
        server.reset()

    assert place.run(paced(*range(1, 8)), {3: go_down, 6: come_back}, backend=place.brief()) == [*range(1, 8)]
    assert asked == [3 * 6], "six tries for each of three snapshots: at once, and after 0.05 s, 0.1 s, ... 0.8 s"
    assert place.totals == {"odd": 16, "even": 12}


@pytest.mark.fault("C6")
def test_store_that_stays_down_ends_the_run_after_the_tolerated_time(place: Place) -> None:
    server = place.server
    source = paced(*range(1, 9))
    backend = place.brief(tolerate_failures_for=timedelta(seconds=3))
    with pytest.raises(SnapshotError, match=r"have been failing for 3 seconds: .*SlowDown") as raised:
        place.run(source, {1: lambda: server.inject("throttled", "PUT", "", times=10_000)}, backend=backend)
    assert isinstance(raised.value.__cause__, StoreError)
    assert server.fired == 3 * 6
    server.reset()
    place.run(source)
    assert place.totals == {"odd": 16, "even": 20}


@pytest.mark.fault("C15")
def test_expired_credentials_are_named_without_a_secret(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "malflow")
    server = place.server
    secret = server.options["secret"]

    def expire() -> None:
        server.inject("expired", "PUT", "", times=10_000, message=f"The token of {secret} has expired.")

    told = r"ExpiredToken: The token of \*\*\* has expired.*; renew the credentials"
    with pytest.raises(StoreError, match=told) as raised:
        place.run(paced(1, 2, 3), {2: expire})
    assert server.fired == 3, "it is asked once a snapshot"
    assert "ExpiredToken" in caplog.text
    assert secret not in caplog.text + str(raised.value) + repr(raised.value)
    server.reset()
    place.run(paced(1, 2, 3))
    assert place.totals == {"odd": 4, "even": 2}


@ON_BOTH_SERVERS
@pytest.mark.fault("G8")
def test_runs_go_on_with_other_numbers_of_workers(place: Place) -> None:
    source = ScriptedSource({"x": [1, PAUSE, 2, CRASH, 3, CRASH, 4], "y": [10, PAUSE, 20], "z": [5, PAUSE, 7]})
    place.crash(source, parallelism=2)
    place.crash(source, parallelism=3)
    place.run(source, parallelism=1)
    assert place.totals == {"odd": 16, "even": 36}
    assert {it.parallelism for it in snapshots(place.backend())} == {1, 2, 3}


def test_the_snapshots_on_a_bucket_can_be_listed_and_gone_back_to(place: Place) -> None:
    place.run(paced(1, 2, 3))
    listed = list(snapshots(place.backend()))
    assert [it.id for it in listed] == [2, 3, 4, 5]
    assert listed[-1].operators["sum"] == 2
    assert all(it.bytes > 0 and it.files >= 1 for it in listed)
    assert kept_states(place.backend(), "sum", listed[0].id) == {"odd": 1}
    place.run(paced(1, 20), restore=listed[0].id)
    assert place.totals == {"odd": 1, "even": 20}


def test_a_damaged_object_on_a_bucket_is_named_and_gone_back_from(place: Place) -> None:
    source = paced(1, 2, CRASH, 3)
    place.crash(source)
    newest = sorted(place.server.filesystem().find(f"{place.url}/default/d"))[-1]
    place.server.filesystem().pipe_file(newest, b"damaged")
    with pytest.raises(SnapshotCorrupt, match=r"is damaged: it has 7 bytes.*recovery='previous'"):
        place.run(source)
    assert place.run(source, recovery="previous") == [2, 3]
    assert place.totals == {"odd": 4, "even": 2}


def test_a_pickle_on_a_bucket_needs_a_key_or_a_word(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALFLOW_SIGNING_KEY", raising=False)
    with pytest.raises(GraphError, match=r"loading a pickle can execute code.*signing_key=.*codec='msgpack'"):
        FsspecBackend(place.url, storage_options=place.server.options)
    FsspecBackend(place.url, storage_options=place.server.options, allow_unsigned_pickle=True)
    FsspecBackend(place.url, storage_options=place.server.options, codec="msgpack")


def test_an_unsigned_snapshot_that_somebody_put_there_is_not_loaded(place: Place) -> None:
    place.run(paced(1), backend=place.backend(signing_key=None, allow_unsigned_pickle=True))
    with pytest.raises(SnapshotCorrupt, match=r"it is not signed, but a signing key is set"):
        place.run(paced(1))


@ON_BOTH_SERVERS
def test_backend_of_url_and_options_alone(place: Place) -> None:
    source, server = paced(*range(1, 6), CRASH, 6), place.server

    def backend() -> FsspecBackend:
        return FsspecBackend(f"{place.url}/", job="plain", storage_options=server.options, signing_key=KEY)

    def let_go() -> None:
        wait_until(lambda: server.fired == 1)
        server.release()

    at = {1: lambda: server.inject("late", "PUT", "/d/"), 5: let_go}
    place.crash(source, at, backend=backend(), snapshots=EVERY_TICK)
    assert server.fired == 1, "records went on flowing while the first snapshot was held up"
    server.reset()
    server.inject("error_after", "PUT", "/m/")
    place.run(source, backend=backend())
    assert server.fired == 1
    assert kept_states(backend(), "sum") == {"odd": 9, "even": 12}
