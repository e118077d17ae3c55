"""``malflow new``: make a folder with a dataflow, its test, and the files to deploy it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import output_options
from malflow.cli.output.output import Output
from malflow.monitor.metrics import METRICS
from malflow.version import __version__

__all__ = [
    "PANELS",
    "TEMPLATES",
    "Panel",
    "Template",
    "checked_name",
    "dashboard",
    "metrics_of",
    "new",
    "project_files",
]

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


_ENDING = ".template"
_HIDDEN = ("gitignore", "dockerignore", "env")
"""Files whose names begin with a dot in a project; in the package, git would obey files with such names."""

_NAME = re.compile("[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
_LONGEST = 50
"""The longest name of a project. Kubernetes allows 63 characters for a label; the rest is for ends such as `-state` and
`-orders`."""

_MARK = re.compile("@([a-z_]+)@")
_CONDITION = re.compile("@(if [a-z]+|else|end)@")


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of project.

    Attributes:
        folders: the folders of ``scaffold`` with its files.
        extras: the extras of malflow that its image installs, separated by commas.
        headline: what its job does.
        ends: what ends its run.
    """

    folders: tuple[str, ...]
    extras: str
    headline: str
    ends: str = "Ctrl-C stops it; the same command resumes"


TEMPLATES: Mapping[str, Template] = {
    "minimal": Template(
        ("common", "monitoring", "words"),
        "serve",
        "Counts words, forever; needs nothing but malflow.",
    ),
    "files": Template(
        ("common", "files"),
        "",
        "Sums up orders by town and day: reads the CSV files in `orders/`, writes JSON lines to `totals/`.",
        "reads what is new, and ends",
    ),
    "kafka": Template(
        ("common", "monitoring", "kafka"),
        "kafka,serve",
        "Sums up orders by town, from one Kafka topic to another, exactly once.",
    ),
    "spark": Template(
        ("common", "monitoring", "words"),
        "serve,spark",
        "Counts words on Spark, forever; `malflow run flow.py --on single` needs no Java, and has the same state.",
    ),
}
"""The kinds of projects, by name."""


def checked_name(name: str) -> str:
    """Return the name if a job, an image and a Kubernetes object can have it.

    Raises:
        CommandError: if they can't.

    >>> checked_name("word-count")
    'word-count'
    """
    if _NAME.fullmatch(name):
        return name
    likely = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:_LONGEST].rstrip("-")
    hint = f", such as {likely}" if _NAME.fullmatch(likely) else ""
    raise CommandError(
        f"'{name}' can't be the name of a project, its job, its image and its Kubernetes objects: use at most "
        f"{_LONGEST} letters a to z, digits and hyphens, beginning with a letter and not ending with a hyphen{hint}; "
        "--name chooses another name",
        Exit.USAGE,
    )


def project_files(name: str, kind: str) -> dict[str, str]:
    """Return the texts of a project's files, by their paths in it.

    Args:
        name: its name, accepted by `checked_name`.
        kind: the name of its template.
    """
    template = TEMPLATES[kind]
    values = {
        "name": name,
        "version": __version__.partition("+")[0],
        "extras": template.extras,
        "headline": template.headline,
        "ends": template.ends,
        "signing_key": secrets.token_hex(32),
        "token": secrets.token_urlsafe(32),
        "password": secrets.token_urlsafe(12),
    }
    scaffold = files("malflow.cli") / "scaffold"
    found = {
        path: _filled(text, kind, values)
        for folder in template.folders
        for path, text in _texts(scaffold / folder, "monitoring/" if folder == "monitoring" else "")
    }
    if "monitoring" in template.folders:
        found["monitoring/dashboard.json"] = dashboard(name)
    return dict(sorted(found.items()))


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the path in a project and the text of each template in a folder."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _texts(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_ENDING):
            name = entry.name.removesuffix(_ENDING)
            yield f"{prefix}{'.' if name in _HIDDEN else ''}{name}", entry.read_text(encoding="utf-8")


def _filled(text: str, kind: str, values: Mapping[str, str]) -> str:
    """Return the text of a template with its values, and only the lines that its conditions choose."""
    lines, chosen = list[str](), [True]
    for line in text.splitlines():
        condition = _CONDITION.fullmatch(line)
        if condition is None:
            if all(chosen):
                lines.append(_MARK.sub(lambda mark: values[mark[1]], line))
        elif condition[1] == "else":
            chosen[-1] = not chosen[-1]
        elif condition[1] == "end":
            chosen.pop()
        else:
            chosen.append(condition[1] == f"if {kind}")
    return "\n".join(lines).rstrip() + "\n"


@click.command(short_help="Make a new project.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--template", "kind", type=click.Choice([*TEMPLATES]), default="minimal", help="The kind of the first dataflow."
)
@click.option("--name", help="The name of the job; by default, the folder's.")
@output_options
def new(folder: Path, kind: str, name: str | None, output: Output) -> None:
    """Make a project in a new or empty folder.

    It has a dataflow that runs and resumes, a test that crashes it forty times, settings, an image that runs as an
    unprivileged user, a compose file, a manifest for Kubernetes, alerts, and a dashboard.
    """
    name = checked_name(name if name is not None else folder.absolute().name)
    texts = project_files(name, kind)
    _write(folder, texts)
    if output.json:
        output.document("project", {"name": name, "folder": str(folder), "template": kind, "files": [*texts]})
        return
    place = "" if folder.absolute() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    output.say(f"made {name}: flow.py, its test, its settings, and what runs it elsewhere; README.md lists them")
    output.say(f"run it: {place}malflow run flow.py")


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files; only their owner can read those with secrets.

    Raises:
        CommandError: if the folder is not empty, or can't be written.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise CommandError(f"'{folder}' is not empty; name an empty folder, or one that does not exist", Exit.USAGE)
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if place.name == ".env" else 0o666
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
                file.write(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"can't make a project in '{folder}': {reason}", Exit.USAGE) from error
