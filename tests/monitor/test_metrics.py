"""The metrics: one table defines them for Prometheus, OpenTelemetry and the documentation."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from malflow import SingleThreadRuntime, StreamProvider
from malflow.engine.parts.reads import PartProgress, WorkerProgress
from malflow.errors import GraphError
from malflow.events import SnapshotFailed, TickFinished
from malflow.monitor import Monitor
from malflow.monitor.meters import SECONDS, Distribution, Meters, Times, is_alive, is_ready
from malflow.monitor.metrics import COMMON, METRICS, Reading
from malflow.monitor.opentelemetry import Telemetry, instrument_name
from malflow.monitor.prometheus import exposition
from malflow.runtime.progress.progress import OperatorProgress, Progress, SnapshotInfo
from malflow.runtime.progress.time_table import TimeTable
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until
from tests.monitor.watching import numbers

pytestmark = pytest.mark.slow

START = datetime(2026, 3, 28, tzinfo=UTC)
HOSTILE = "<img src=x>\"'\\{}"


def odd_only(number: int) -> int:
    """Return an odd number."""
    if number % 2 == 0:
        raise ValueError(number)
    return number


def busy(provider: StreamProvider) -> None:
    """Count numbers, with late records, dead letters, epochs, and a name with markup."""
    script = [it for number in range(1, 30_000) for it in (number if number % 5 else 1, PAUSE)]
    counting = provider.new_stream().source("numbers", ScriptedSource(script))
    stamped = counting.assign_timestamps("stamp", lambda msg: START + timedelta(seconds=msg.value))
    timed = stamped.generate_epochs("time", lambda msg, _last: msg.timestamp)
    odd = timed.on_time.map("odd", odd_only, on_error="dead_letter").key_distribute("digit", lambda msg: msg.value % 10)
    odd.stateful_map("count", lambda _key, _value, state: (state + 1, state + 1), default=int).sink(HOSTILE, VecSink())


@contextmanager
def watched(tmp_path: Path, **options: Any) -> Iterator[tuple[Monitor, Any]]:
    """Watch a run within the context, and stop it at the end."""
    monitor = Monitor(**options)
    backend = FsspecBackend(str(tmp_path))
    handle = SingleThreadRuntime(busy, backend, snapshots=timedelta(hours=1), listeners=[monitor]).start()
    try:
        wait_until(lambda: monitor.watch is not None and handle.progress.records.get("count", 0) > 10, 20)
        yield monitor, handle
    finally:
        handle.stop()
        handle.await_termination(120)


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the samples of an exposition by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for it in family.samples:
            found.setdefault(it.name, {})[tuple(sorted(it.labels.items()))] = it.value
    return found


def exposed(monitor: Monitor) -> str:
    """Return the metrics of a monitored run as text."""
    assert monitor.watch is not None
    monitor.watch.reading()
    wait_until(lambda: monitor.watch is not None and monitor.watch.reading().times is not None)
    return exposition(monitor.watch.reading(), "")[0].decode()


def of(found: Mapping[str, Mapping[Any, float]], name: str, **labels: str) -> float:
    """Return the value of a series."""
    return found[name][tuple(sorted({"job": "default", "runtime": "single", **labels}.items()))]


def test_a_run_is_scraped(place: Path, tmp_path: Path) -> None:
    del place
    with watched(tmp_path) as (monitor, handle):
        handle.snapshot().result(60)
        text = exposed(monitor)
        found, progress = parsed(text), handle.progress
    assert 0 < of(found, "malflow_records_in_total", operator="numbers") <= progress.records["numbers"]
    assert of(found, "malflow_records_out_total", operator="odd", port="0") > 0
    assert of(found, "malflow_records_in_total", operator=HOSTILE) > 0
    assert of(found, "malflow_dead_letters_total", operator="odd") > 0
    assert of(found, "malflow_letters", operator="odd") > 0
    assert of(found, "malflow_late_records_total", operator="time") > 0
    assert of(found, "malflow_event_time_lag_seconds", operator="time") > 1e6
    assert of(found, "malflow_epoch_age_seconds", operator="time") >= 0
    assert of(found, "malflow_source_silence_seconds", source="numbers") < 60
    assert 0 <= of(found, "malflow_part_silence_seconds", source="numbers", part="NoKey") < 60
    assert of(found, "malflow_state_keys", operator="count") == 4
    assert 0 <= of(found, "malflow_snapshot_age_seconds") < 60
    assert of(found, "malflow_snapshot_bytes") > 0
    assert of(found, "malflow_snapshots_total") == 1
    assert of(found, "malflow_snapshot_seconds_count", phase="write") == 1
    assert of(found, "malflow_snapshot_interval_seconds") == 3600
    ticks = of(found, "malflow_tick_seconds_count")
    assert 0 < ticks == of(found, "malflow_tick_seconds_bucket", le="+Inf") <= progress.tick
    assert of(found, "malflow_up") == 1
    assert "nan" not in text.lower()


@pytest.mark.skipif(shutil.which("promtool") is None and "CI" not in os.environ, reason="there is no promtool")
def test_promtool_finds_nothing_to_say(place: Path, tmp_path: Path) -> None:
    del place
    with watched(tmp_path) as (monitor, _):
        text = exposed(monitor)
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_end_of_a_run_is_in_its_metrics(place: Path, tmp_path: Path) -> None:
    del place
    with watched(tmp_path) as (monitor, _):
        assert of(parsed(exposed(monitor)), "malflow_up") == 1
    assert of(parsed(exposed(monitor)), "malflow_up") == 0


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes, str | None]]]]:
    """Run a server within the context that receives OTLP requests.

    Yields:
        Its URL, and the requests: path, body and authorization.
    """
    received: list[tuple[str, bytes, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append((self.path, body, self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, args=(0.02,), daemon=True
    )  # a command would wait for another kind
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_is_sent_by_otlp(place: Path, tmp_path: Path) -> None:
    del place
    with collector() as (url, received):
        telemetry = Telemetry(url, headers={"Authorization": "Bearer hush"}, every=timedelta(seconds=0.5))
        with watched(tmp_path, telemetry=telemetry) as (monitor, handle):
            handle.snapshot().result(60)
            handle.rescale(2).result(60)
            wait_until(lambda: monitor.watch is not None and monitor.watch.reading().times is not None)
            read = parsed(exposed(monitor))
        wait_until(lambda: not [it for it in threading.enumerate() if it.name == "malflow-monitor"])
    assert {it for _, _, it in received} == {"Bearer hush"}
    sent: dict[str, Any] = {}
    for path, body, _ in received:
        if path == "/v1/metrics":
            request = ExportMetricsServiceRequest.FromString(body)
            metrics = request.resource_metrics[0].scope_metrics[0].metrics
            sent |= {it.name: it for it in metrics}
    exposed_too = {it for it in METRICS if any(name.startswith(it.name) for name in read)}
    assert {instrument_name(it) for it in exposed_too} <= set(sent)
    taken = {it.attributes[2].value.string_value: it.as_int for it in sent["malflow.records_in"].sum.data_points}
    assert taken["numbers"] >= of(read, "malflow_records_in_total", operator="numbers") > 0
    ticks = sent["malflow.tick_seconds"].histogram.data_points[0]
    assert ticks.count == sum(ticks.bucket_counts) > 0
    assert [*ticks.explicit_bounds] == [*SECONDS]
    assert 0 < ticks.min <= ticks.max
    spans = [
        span.name
        for path, body, _ in received
        if path == "/v1/traces"
        for span in ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
    ]
    assert sorted(spans) == ["rescale", "snapshot", "snapshot"]


def test_a_collector_that_is_down_does_not_end_a_run(place: Path, tmp_path: Path) -> None:
    del place
    with watched(tmp_path, telemetry=Telemetry("http://127.0.0.1:9", every=timedelta(seconds=0.2))) as (_, handle):
        before = handle.progress.tick
        wait_until(lambda: handle.progress.tick > before + 20)
    wait_until(lambda: not [it for it in threading.enumerate() if it.name == "malflow-monitor"])


def test_wrong_endpoints_are_refused() -> None:
    with pytest.raises(GraphError, match="must be a URL"):
        Telemetry("localhost:4318")
    with pytest.raises(GraphError, match="above zero"):
        Telemetry("http://localhost:4318", every=timedelta(0))


def test_every_metric_has_a_name_of_its_own_and_a_sentence() -> None:
    names = [it.name for it in METRICS]
    assert len(names) == len({*names}) == len({instrument_name(it) for it in METRICS})
    for it in METRICS:
        assert it.name.startswith("malflow_")
        assert it.help[0].isupper()
        assert it.help.endswith(".")
        assert it.name.endswith("_total") == (it.kind == "counter")
        assert ("seconds" in it.name) == (it.unit == "s")
        assert not set(COMMON).intersection(it.labels)


@given(st.lists(st.floats(0, 1e6)))
def test_a_distribution_counts_each_duration_once(values: list[float]) -> None:
    made = Distribution()
    for it in values:
        made.add(it)
    bounds = [0.0, *SECONDS, float("inf")]
    expected = [sum((low < it <= high) or (it == 0.0 == low) for it in values) for low, high in pairwise(bounds)]
    assert made.buckets.counts == tuple(expected)
    assert made.buckets.sum == pytest.approx(sum(values))
    assert (made.buckets.least, made.buckets.most) == (min(values, default=0.0), max(values, default=0.0))


def progress(**fields: Any) -> Progress:
    """Return the progress of a run with one source."""
    given = {"tick": 1, "parallelism": 1, "records": {}, "polled": 0, "snapshot": None, "restarts": 0}
    return Progress(**{**given, "status": "running", "snapshot_interval": 10.0, **fields})


def taken(count: int, snapshot: int | None = None) -> Progress:
    """Return the progress of a run whose source has emitted that many records."""
    return progress(snapshot=snapshot, operators={"s": OperatorProgress(count, (count,), kind="source")})


@pytest.mark.parametrize(
    ("status", "alive", "ready"),
    [
        ("starting", True, False),
        ("running", True, True),
        ("resting", True, True),
        ("blocked", True, False),
        ("stopping", True, False),
        ("restarting", True, False),
        ("ended", True, False),
        ("failed", False, False),
    ],
)
def test_health_by_status(status: str, alive: bool, ready: bool) -> None:
    now = progress(status=status)
    assert (is_alive(now, Meters()), is_ready(now, Meters())) == (alive, ready)


def test_a_tick_that_hangs_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    meters, clock = Meters(), [1e6]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    meters.note_tick(TickFinished(1, 1, 0, 0.1))
    clock[0] += 59
    assert is_alive(progress(), meters)
    clock[0] += 2
    assert not is_alive(progress(), meters)
    assert not is_ready(progress(), meters)
    assert is_alive(progress(status="resting"), meters)


def test_records_that_no_snapshot_contains_are_no_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    meters, clock = Meters(), [1e6]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    meters.sample(taken(0), clock[0])
    clock[0] += 1000  # nothing to keep: no snapshot is missing
    meters.tick_at = clock[0]
    meters.sample(taken(0), clock[0])
    assert is_ready(taken(0), meters)
    meters.sample(taken(1), clock[0])
    clock[0] += 29
    meters.tick_at = clock[0]
    assert is_ready(taken(1), meters)
    clock[0] += 2
    meters.tick_at = clock[0]
    assert not is_ready(taken(1), meters)
    meters.sample(taken(1, snapshot=1), clock[0])
    assert is_ready(taken(1, snapshot=1), meters)
    assert is_ready(progress(snapshot_interval=None), meters)


def test_unknown_values_are_left_out() -> None:
    facts: Any = type("Facts", (), {"job": "j", "runtime": "single"})
    text = exposition(Reading(facts, progress(snapshot_interval=None), Meters(), 0.0), "")[0].decode()
    assert "malflow_snapshot_age_seconds{" not in text
    assert "malflow_unsaved_seconds{" not in text
    old = SnapshotInfo(3, 1, None)
    text = exposition(Reading(facts, progress(last_snapshot=old), Meters(), 0.0), "")[0].decode()
    assert "malflow_snapshot_age_seconds{" not in text
    assert 'malflow_unsaved_seconds{job="j",runtime="single"} 0.0' in text


def test_failed_snapshots_are_counted() -> None:
    meters = Meters()
    meters.note(SnapshotFailed(1, ValueError(), 1.0), progress)
    assert (meters.failures, meters.snapshots) == (1, 0)


def test_of_many_parts_those_with_most_lag_are_told() -> None:
    facts: Any = type("Facts", (), {"job": "j", "runtime": "single"})
    lags = {"s": {f"part-{it}": it for it in range(1000)} | {"unknown": None}}
    found = parsed(exposition(Reading(facts, progress(lag_by_part=lags), Meters(), 0.0), "")[0].decode())
    assert sorted(found["malflow_source_lag"].values()) == [*range(744, 1000)]


def test_parts_have_series_with_their_workers() -> None:
    facts: Any = type("Facts", (), {"job": "j", "runtime": "single"})
    parts = {"s": {it: PartProgress(it % 2, it) for it in range(300)}}
    workers = (WorkerProgress(0, 150, None), WorkerProgress(1, 150, None))
    reading = Reading(facts, progress(parts=parts, workers=workers), Meters(), 0.0)
    found = parsed(exposition(reading, "")[0].decode())
    assert sorted(found["malflow_part_records_total"].values()) == [*range(44, 300)]
    assert [*found["malflow_worker_parts"].values()] == [150, 150]


def test_no_reader_waits_for_the_event_time() -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def explain(_: float) -> TimeTable:
        asked.set()
        may_answer.wait(60)
        return TimeTable(epochs={"time": 7})

    times = Times(explain)
    assert times.latest() == (None, {})
    assert asked.wait(60)
    assert times.latest() == (None, {})
    may_answer.set()
    wait_until(lambda: times.latest()[0] is not None)
    assert [*times.latest()[1]] == ["time"]


def test_a_monitored_run_without_readers_is_asked_nothing(place: Path) -> None:
    del place
    before = {*threading.enumerate()}
    handle = SingleThreadRuntime(numbers(), listeners=[Monitor()]).start()
    wait_until(lambda: handle.progress.tick > 10)
    more = {it.name for it in {*threading.enumerate()} - before}
    assert more <= {"malflow-run", "malflow-monitor", "malflow-control"}
    handle.stop()
    assert handle.await_termination(60)
