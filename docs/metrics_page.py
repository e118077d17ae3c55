"""Write docs/metrics.md: the metrics, from their table in the code.

`make reference` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from malflow.monitor.meters import SECONDS
from malflow.monitor.metrics import COMMON, METRICS
from malflow.monitor.opentelemetry import instrument_name

PAGE = Path(__file__).parent / "metrics.md"
HEADING = "## All metrics\n"


def render() -> str:
    """Return the text of the page, with the metrics of the code."""
    written = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    return written + HEADING + "\n".join(of_metrics()) + "\n"


def of_metrics() -> Iterator[str]:
    """Yield the lines about the metrics."""
    example = next(it for it in METRICS if it.name.endswith("_total"))
    yield "\nWritten by `make reference` from the code. OpenTelemetry has a dot after `malflow`, no `_total`:"
    yield f"`{example.name}` is `{instrument_name(example)}`."
    common = " and ".join(f"`{it}`" for it in COMMON)
    yield f"Each has the labels {common}, and those named with it.\n"
    for it in METRICS:
        labels = ", ".join(f"`{label}`" for label in it.labels)
        yield f"- `{it.name}` ({it.kind}{labels and f' by {labels}'}): {it.help}"
    bounds = ", ".join(f"{it:g}" for it in SECONDS)
    yield f"\nThe buckets of histograms end at {bounds} seconds."


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
