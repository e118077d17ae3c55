"""The metrics for docs/api.md, from their table in the code."""

from __future__ import annotations

from collections.abc import Iterator

from malflow.monitor.meters import SECONDS
from malflow.monitor.metrics import COMMON, METRICS
from malflow.monitor.opentelemetry import instrument_name

__all__ = ["of_metrics"]


def of_metrics() -> Iterator[str]:
    """Yield the lines about the metrics."""
    example = next(it for it in METRICS if it.name.endswith("_total"))
    yield f"\n## Metrics\n\nOpenTelemetry has a dot after `malflow`, no `_total`: `{example.name}` is"
    yield f"`{instrument_name(example)}`."
    common = " and ".join(f"`{it}`" for it in COMMON)
    yield f"Each has the labels {common}, and those named with it.\n"
    for it in METRICS:
        labels = ", ".join(f"`{label}`" for label in it.labels)
        yield f"- `{it.name}` ({it.kind}{labels and f' by {labels}'}): {it.help}"
    bounds = ", ".join(f"{it:g}" for it in SECONDS)
    yield f"\nThe buckets of histograms end at {bounds} seconds."
