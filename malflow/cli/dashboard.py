"""The Grafana dashboard of a project: charts of a run's metrics."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from malflow.monitor.metrics import METRICS

__all__ = ["PANELS", "Panel", "dashboard", "metrics_of"]

_WIDTH: Final = 12
"""The width of a chart: half of Grafana's grid of 24 columns, so two stand side by side."""

_HEIGHT: Final = 8
"""The height of a chart in rows of Grafana's grid: low enough for several pairs on a screen. Half of it flattens the
curves, double shows half as many charts."""

_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_HISTOGRAM: Final = re.compile("_(bucket|sum|count)$")


class Panel(NamedTuple):
    """A chart.

    Attributes:
        title: its title.
        unit: the unit of its axis, as Grafana names it.
        series: each expression with the legend of its series; ``$job`` is the job.
    """

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]


def _rate(metric: str, legend: str, label: str = "operator") -> tuple[str, str]:
    return f'sum by ({label}) (rate({metric}{{job="$job"}}[1m]))', legend


def _quantile(share: str, metric: str) -> str:
    return f'histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{job="$job"}}[5m])))'


_OPERATOR: Final = "{{operator}}"

PANELS: Final = (
    Panel("Records in", "ops", (_rate("malflow_records_in_total", _OPERATOR),)),
    Panel("Records out", "ops", (_rate("malflow_records_out_total", _OPERATOR),)),
    Panel("Busy workers", "short", (_rate("malflow_busy_seconds_total", _OPERATOR),)),
    Panel(
        "Polls that found more than they could take",
        "percentunit",
        (
            (
                f"{_rate('malflow_saturated_polls_total', '', 'source')[0]}"
                f" / {_rate('malflow_polls_total', '', 'source')[0]}",
                "{{source}}",
            ),
        ),
    ),
    Panel(
        "Duration of ticks",
        "s",
        ((_quantile("0.5", "malflow_tick_seconds"), "median"), (_quantile("0.99", "malflow_tick_seconds"), "99 %")),
    ),
    Panel("Lag of sources", "short", (('sum by (source) (malflow_source_lag{job="$job"})', "{{source}}"),)),
    Panel("Silence of sources", "s", (('max by (source) (malflow_source_silence_seconds{job="$job"})', "{{source}}"),)),
    Panel(
        "Lag of event time",
        "s",
        (('max by (operator) (malflow_event_time_lag_seconds{job="$job"})', _OPERATOR),),
    ),
    Panel(
        "Late and failed records",
        "ops",
        (
            _rate("malflow_late_records_total", "late at {{operator}}"),
            _rate("malflow_operator_errors_total", "failed in {{operator}}"),
        ),
    ),
    Panel("Dead letters", "short", (('sum by (operator) (malflow_letters{job="$job"})', _OPERATOR),)),
    Panel("Keys of states", "short", (('sum by (operator) (malflow_state_keys{job="$job"})', _OPERATOR),)),
    Panel(
        "Age of the snapshot",
        "s",
        (
            ('malflow_snapshot_age_seconds{job="$job"}', "of the snapshot"),
            ('malflow_unsaved_seconds{job="$job"}', "of unsaved records"),
        ),
    ),
    Panel("Size of the snapshot", "bytes", (('malflow_snapshot_bytes{job="$job"}', "bytes"),)),
    Panel(
        "Snapshots, failures, restarts",
        "short",
        (
            ('increase(malflow_snapshots_total{job="$job"}[5m])', "snapshots"),
            ('increase(malflow_snapshot_failures_total{job="$job"}[5m])', "failed snapshots"),
            ('increase(malflow_restarts_total{job="$job"}[5m])', "restarts"),
        ),
    ),
)
"""The charts, two in a row."""


def dashboard(name: str) -> str:
    """Return the dashboard of a project as JSON.

    Args:
        name: the name of the project; it shows the project's job first.
    """
    content: dict[str, Any] = {
        "uid": f"malflow-{name}"[:40],
        "title": f"malflow: {name}",
        "tags": ["malflow"],
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_jobs(name)]},
        "panels": [_panel_document(number, it) for number, it in enumerate(PANELS)],
    }
    return f"{json.dumps(content, indent=2)}\n"


def metrics_of(expression: str) -> set[str]:
    """Return the names of the metrics in an expression; names of a histogram's series lose their endings.

    >>> sorted(metrics_of('rate(malflow_tick_seconds_count{job="a"}[5m]) > 0 or malflow_up == 0'))
    ['malflow_tick_seconds', 'malflow_up']
    """
    histograms = {it.name for it in METRICS if it.kind == "histogram"}
    names = re.findall(r"\bmalflow_\w+", expression)
    return {_HISTOGRAM.sub("", it) if _HISTOGRAM.sub("", it) in histograms else it for it in names}


def _jobs(name: str) -> dict[str, Any]:
    """Return the variable that chooses the job."""
    return {
        "name": "job",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(malflow_up, job)",
        "refresh": 2,
        "current": {"text": name, "value": name},
    }


def _panel_document(number: int, panel: Panel) -> dict[str, Any]:
    names = set[str]().union(*(metrics_of(expression) for expression, _ in panel.series))
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": " ".join(it.help for it in METRICS if it.name in names),
        "datasource": _SOURCE,
        "gridPos": {"x": _WIDTH * (number % 2), "y": _HEIGHT * (number // 2), "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.series)
        ],
    }
