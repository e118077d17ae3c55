"""The metrics and spans of a run for OpenTelemetry, sent by OTLP over HTTP.

Counters and gauges are observable instruments, which are read when they are sent. The monitor keeps distributions; they
are added when metrics are sent. Spans are made from events afterwards, so nothing is traced while records flow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from malflow.checks import checked_duration
from malflow.durations import Duration
from malflow.errors import GraphError, not_imported
from malflow.events import Event, Rescaled, Restarted, RunStarted, SnapshotCommitted, SnapshotFailed, TickFinished
from malflow.monitor.meters import SECONDS, Buckets
from malflow.monitor.metrics import COMMON, METRICS, Metric, Reading
from malflow.version import __version__

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        MetricExportResult,
        MetricsData,
        PeriodicExportingMetricReader,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.metrics.export import Metric as SentMetric
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Status, StatusCode, Tracer
except ImportError as missing:
    raise not_imported("sending metrics by OTLP needs opentelemetry", "otel", missing) from missing

if TYPE_CHECKING:
    from malflow.monitor.watch import Watch

__all__ = ["Telemetry", "instrument_name"]

_SEND_SECONDS: Final = 5.0
"""The most seconds to send to a collector. Half of it loses exports to slow ones, double holds up the next export at a
dead one."""

_LAST_SECONDS: Final = 2.0
"""The most seconds for the last export at the end of a run. Half of it may lose the last counts, double delays the end
of the process if the collector is gone."""

_YOUNG: Final = 0.5
"""The lifetime of a reading in seconds, since it serves all instruments: an export calls each in turn. Much less reads
the run once per instrument, much more sends old counts."""

_SLOW_SECONDS: Final = 1.0
"""The least seconds of a slow tick, since shorter ones hardly delay anybody. Half of it makes more spans, double misses
noticeable pauses."""

_SLOW_FACTOR: Final = 3
"""A tick is slow if it takes a second or more, and at least this many times as long as the mean."""
_MOST_SPANS: Final = 60
"""The most spans to wait, one of them made a second: a minute of them. Older ones are dropped; double keeps more of a
burst and sends them later."""


class Telemetry:
    """Sends the metrics of a run, and spans of its snapshots, restores, rescales, restarts and slow ticks.

    Args:
        endpoint: the base URL of a collector, such as ``http://localhost:4318``.
        headers: the headers of its requests, such as an authorization.
        every: the interval at which the metrics are sent.
        traces: whether to send spans; at most one per second is made.

    Raises:
        GraphError: if an argument is not valid.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        every: Duration = timedelta(seconds=15),
        traces: bool = True,
    ) -> None:
        if not isinstance(endpoint, str) or not endpoint.startswith(("http://", "https://")):
            raise GraphError("the endpoint of OTLP must be a URL such as http://localhost:4318")
        self._endpoint = endpoint.rstrip("/")
        self._headers = dict(headers or {})
        self._every = checked_duration("Telemetry", "every", every)
        self._traces = traces

    def begin(self, watch: Watch) -> _Sending:
        """Begin to send the metrics and spans of a run."""
        return _Sending(watch, self._endpoint, self._headers, self._every, traces=self._traces)

    def __repr__(self) -> str:
        return f"Telemetry(every={self._every})"


class _Sending:
    """Sends the metrics and spans of one run."""

    def __init__(self, watch: Watch, endpoint: str, headers: dict[str, str], every: timedelta, *, traces: bool) -> None:
        self._watch = watch
        self._reading: tuple[float, Reading] | None = None
        resource = Resource.create(
            {"service.name": "malflow", "service.version": __version__, "service.instance.id": watch.id}
        )
        exporter = _Exporter(
            self._distributions,
            endpoint=f"{endpoint}/v1/metrics",
            headers=headers,
            timeout=_SEND_SECONDS,
        )
        reader = PeriodicExportingMetricReader(exporter, every.total_seconds() * 1000)
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        _make_instruments(self._meters.get_meter("malflow", __version__), self._read)
        self._spans: _Spans | None = None
        if traces:
            sent = OTLPSpanExporter(f"{endpoint}/v1/traces", headers=headers, timeout=_SEND_SECONDS)
            self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._tracers.add_span_processor(BatchSpanProcessor(sent))
            self._spans = _Spans(self._tracers.get_tracer("malflow", __version__), watch)

    def note(self, event: Event) -> None:
        """Note an event, from which a span may be made."""
        if self._spans is not None:
            self._spans.note(event)

    def turn(self) -> None:
        """Make a span, if there is one to make; called once a second."""
        if self._spans is not None:
            self._spans.make_one()

    def close(self) -> None:
        """Send the rest, but give up after a moment."""
        if self._spans is not None:
            self._spans.make_all()
            with suppress(Exception):
                self._tracers.force_flush(int(_LAST_SECONDS * 1000))
            self._tracers.shutdown()
        self._meters.shutdown(_LAST_SECONDS * 1000)

    def _read(self) -> Reading:
        """Return the facts that all instruments share in one export."""
        now = time.monotonic()
        if self._reading is None or now - self._reading[0] > _YOUNG:
            self._reading = now, self._watch.reading()
        return self._reading[1]

    def _distributions(self) -> Iterator[SentMetric]:
        """Yield the distributions in the form for export; there is no observable instrument for them."""
        reading, now = self._read(), time.time_ns()
        for metric in METRICS:
            if metric.kind == "histogram":
                points = [
                    _point(_attributes(metric, reading, labels), value, self._watch.begun_ns, now)
                    for labels, value in metric.read(reading)
                    if isinstance(value, Buckets)
                ]
                data = Histogram(points, AggregationTemporality.CUMULATIVE)
                yield SentMetric(instrument_name(metric), metric.help, metric.unit, data)


class _Exporter(OTLPMetricExporter):
    """Sends metrics, and distributions with them.

    Args:
        distributions: returns the distributions.
        options: the exporter's own options.
    """

    def __init__(self, distributions: Callable[[], Iterator[SentMetric]], **options: Any) -> None:
        super().__init__(**options)
        self._distributions = distributions

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send metrics."""
        more = [*self._distributions()]
        whole = [
            ResourceMetrics(
                it.resource,
                [ScopeMetrics(of.scope, [*of.metrics, *more], of.schema_url) for of in it.scope_metrics[:1]],
                it.schema_url,
            )
            for it in metrics_data.resource_metrics
        ]
        return super().export(MetricsData(whole), timeout_millis, **kwargs)


class _Spans:
    """Makes spans from events, at most one per call of `make_one`."""

    def __init__(self, tracer: Tracer, watch: Watch) -> None:
        self._tracer = tracer
        self._watch = watch
        self._pending: deque[tuple[str, int, int, dict[str, Any], str | None]] = deque(maxlen=_MOST_SPANS)
        self._slowest: tuple[float, int, int] | None = None
        self._since = watch.begun_ns
        self._last_tick = watch.begun_ns

    def note(self, event: Event) -> None:
        """Note an event; the run waits for this."""
        now = time.time_ns()
        match event:
            case TickFinished(tick=tick, seconds=seconds):
                self._last_tick = now
                if seconds >= _SLOW_SECONDS and (self._slowest is None or seconds > self._slowest[0]):
                    self._slowest = seconds, now, tick
            case SnapshotCommitted(snapshot=snapshot, seconds=seconds, bytes=size):
                took = int((seconds or 0.0) * 1e9)
                self._add("snapshot", now - took, now, {"snapshot": snapshot, "bytes": size or 0})
            case SnapshotFailed(tick=tick, error=error):
                self._add("snapshot", now, now, {"tick": tick}, type(error).__name__)
            case RunStarted(snapshot=snapshot, restarts=restarts):
                if restarts:
                    self._add("restart", self._since, now, {"restarts": restarts})
                elif snapshot is not None:
                    self._add("restore", self._since, now, {"snapshot": snapshot})
            case Restarted():
                self._since = now
            case Rescaled(previous=previous, parallelism=parallelism):
                self._add("rescale", self._last_tick, now, {"previous": previous, "parallelism": parallelism})
            case _:
                pass

    def make_one(self) -> None:
        """Make the oldest span that waits or, if none does, one for the slowest tick since the last call."""
        slowest, self._slowest = self._slowest, None
        if self._pending:
            self._make(*self._pending.popleft())
        elif slowest is not None and self._is_slow(slowest[0]):
            seconds, end, tick = slowest
            self._make("slow tick", end - int(seconds * 1e9), end, {"tick": tick}, None)

    def make_all(self) -> None:
        """Make all spans that wait."""
        while self._pending:
            self._make(*self._pending.popleft())

    def _is_slow(self, seconds: float) -> bool:
        ticks = self._watch.meters.ticks.buckets
        return seconds >= _SLOW_FACTOR * ticks.sum / max(1, sum(ticks.counts))

    def _add(self, name: str, start: int, end: int, facts: dict[str, Any], error: str | None = None) -> None:
        self._pending.append((name, start, end, facts, error))

    def _make(self, name: str, start: int, end: int, facts: dict[str, Any], error: str | None) -> None:
        known = self._watch.facts
        span = self._tracer.start_span(name, start_time=start, attributes={"job": known.job, **facts})
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end)


def instrument_name(metric: Metric) -> str:
    """Return the OpenTelemetry name of a metric: without ``total`` for counters, since collectors add it."""
    return metric.name.removesuffix("_total").replace("malflow_", "malflow.", 1)


def _make_instruments(meter: Meter, read: Callable[[], Reading]) -> None:
    for metric in METRICS:
        make = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge}.get(metric.kind)
        if make is not None:
            make(instrument_name(metric), [_observed(metric, read)], metric.unit, metric.help)


def _observed(metric: Metric, read: Callable[[], Reading]) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(_: CallbackOptions) -> Iterator[Observation]:
        reading = read()
        for labels, value in metric.read(reading):
            if not isinstance(value, Buckets):
                yield Observation(value, _attributes(metric, reading, labels))

    return observe


def _attributes(metric: Metric, reading: Reading, labels: tuple[str, ...]) -> dict[str, str]:
    values = (reading.facts.job, reading.facts.runtime, *labels)
    return dict(zip((*COMMON, *metric.labels), values, strict=True))


def _point(attributes: dict[str, str], value: Buckets, start: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes, start, now, sum(value.counts), value.sum, value.counts, SECONDS, value.least, value.most
    )
