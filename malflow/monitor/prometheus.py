"""The metrics of a run for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from malflow.monitor.meters import SECONDS, Buckets
from malflow.monitor.metrics import COMMON, METRICS, Metric, Reading

__all__ = ["ReadingCollector", "exposition"]

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class ReadingCollector(Collector):
    """Collects the current metrics of a run.

    Args:
        read: returns the facts about the run; None before there is one.
    """

    def __init__(self, read: Callable[[], Reading | None]) -> None:
        self._read = read

    def collect(self) -> Iterator[_Family]:
        """Yield each metric with its series."""
        reading = self._read()
        if reading is not None:
            for metric in METRICS:
                yield _family(metric, reading)


def exposition(reading: Reading | None, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a run as text, and its media type.

    Args:
        reading: the facts about the run; None before there is one.
        accept: the ``Accept`` header of the request; it chooses the format.
    """
    registry = CollectorRegistry()
    registry.register(ReadingCollector(lambda: reading))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


def _family(metric: Metric, reading: Reading) -> _Family:
    labels = (*COMMON, *metric.labels)
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: _Family = kinds[metric.kind](metric.name, metric.help, labels=labels)
    common = (reading.facts.job, reading.facts.runtime)
    for values, value in metric.read(reading):
        _add(family, (*common, *values), value)
    return family


def _add(family: _Family, labels: Sequence[str], value: float | Buckets) -> None:
    if isinstance(value, Buckets):
        assert isinstance(family, HistogramMetricFamily)  # noqa: S101 - by its kind
        bounds = [*map(str, SECONDS), "+Inf"]
        family.add_metric(labels, [*zip(bounds, accumulate(value.counts), strict=True)], value.sum)
        return
    assert not isinstance(family, HistogramMetricFamily)  # noqa: S101 - by its kind
    family.add_metric(labels, value)
