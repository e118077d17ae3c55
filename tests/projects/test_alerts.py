"""Alerts and dashboard: their metrics exist, and they work in a real Prometheus that scrapes real runs."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from malflow.cli.commands.new import project_files
from malflow.monitor.metrics import METRICS
from tests.kit.waiting import wait_until
from tests.projects.faulty_runs import FAULTS, FaultyRuns
from tests.servers.prometheus import Prometheus

NAMES = {it.name for it in METRICS}
ALERTS = {alert for _, alert in FAULTS}


def rules(job: str) -> dict[str, Any]:
    """Return the group of rules of a project."""
    [group] = yaml.safe_load(project_files(job, "minimal")["monitoring/alerts.yml"])["groups"]
    assert isinstance(group, dict)
    return group


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(project_files("hello", "minimal")["monitoring/dashboard.json"])["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression of the dashboard with its legend."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def metrics_of(expression: str) -> set[str]:
    """Return the names of the metrics in an expression; names of a histogram's series lose their endings."""
    histograms = {it.name for it in METRICS if it.kind == "histogram"}
    names = re.findall(r"\bmalflow_\w+", expression)
    stems = {it: re.sub("_(bucket|sum|count)$", "", it) for it in names}
    return {stem if stem in histograms else name for name, stem in stems.items()}


def quick(text: str) -> str:
    """Return a rule with seconds in place of minutes."""
    times = ((r"\[[25]m\]", "[10s]"), (r"\[30m\]", "[2m]"), ("offset 5m", "offset 3s"), ("> (300|120)", "> 10"))
    for slow, fast in times:
        text = re.sub(slow, fast, text)
    assert not re.search(r"\d+m\]|offset \d+m", text.replace("[2m]", ""))
    return text


@pytest.mark.fault("R7")
def test_metrics_of_alerts_and_dashboard_exist() -> None:
    known = {it["expr"]: metrics_of(it["expr"]) for it in rules("hello")["rules"]}
    known |= {expression: metrics_of(expression) for expression, _ in expressions()}
    for expression, names in known.items():
        assert names, expression
        assert names <= NAMES, expression


def test_labels_of_the_dashboard_exist() -> None:
    for expression, legend in expressions():
        labels = {label for it in METRICS if it.name in metrics_of(expression) for label in (*it.labels, "job", "le")}
        grouped = re.findall(r"by \((.*?)\)", expression)
        assert {*re.findall(r"{{(\w+)}}", legend), *(it for text in grouped for it in text.split(", "))} <= labels


def test_alerts_are_six_and_say_what_they_are_about() -> None:
    found = rules("hello")["rules"]
    assert {it["alert"] for it in found} == ALERTS
    assert len(found) == 6
    for rule in found:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {*rule["annotations"]} == {"summary", "description"}
        assert 'job="hello"' in rule["expr"]


def test_charts_of_the_dashboard_lie_beside_each_other() -> None:
    places = [it["gridPos"] for it in panels()]
    taken = [
        (x, y) for it in places for x in range(it["x"], it["x"] + it["w"]) for y in range(it["y"], it["y"] + it["h"])
    ]
    assert len(taken) == len({*taken})
    assert max(x for x, _ in taken) == 23


def test_charts_of_the_dashboard_are_explained_as_their_metrics_are() -> None:
    for panel in panels():
        names = set[str]().union(*(metrics_of(it["expr"]) for it in panel["targets"]))
        assert panel["description"] == " ".join(it.help for it in METRICS if it.name in names)


SERIES = (
    ("malflow_unsaved_seconds", "5+0x90", "0+60x90"),
    ("malflow_tick_seconds_count", "0+600x90", "600+0x90"),
    ("malflow_up", "1+0x90", "1+0x90"),
    ("malflow_source_silence_seconds{source='s'}", "0+0x90", "0+60x90"),
    ("malflow_source_lag{source='s'}", "5000+0x90", "5000+100x90"),
    ("malflow_records_in_total{operator='o'}", "0+1000x90", "0+1000x90"),
    ("malflow_late_records_total{operator='o'}", "0+5x90", "0+50x90"),
    ("malflow_operator_errors_total{operator='o'}", "0+5x90", "0+50x90"),
    ("malflow_restarts_total", "0+0x90", "0+1x90"),
)
"""Metrics with a value for each minute, for a healthy job and a sick one."""

FIRING = {
    "2m": set[str](),
    "4m": {"MalflowRestarts", "MalflowNoProgress"},
    "8m": ALERTS - {"MalflowLagGrows"},
    "60m": ALERTS,
}
"""The alerts of the sick job that have fired by a given time."""


@pytest.mark.slow
@pytest.mark.usefixtures("own_prometheus")
@pytest.mark.fault("R6")
def test_alerts_after_minutes(tmp_path: Path) -> None:
    jobs = ("healthy", "sick")
    for job in jobs:
        (tmp_path / f"{job}.yml").write_text(project_files(job, "minimal")["monitoring/alerts.yml"])
    checked = promtool("check", "rules", *(str(tmp_path / f"{job}.yml") for job in jobs))
    assert checked.count("6 rules found") == 2
    series = [
        {"series": _of_job(name, job), "values": values[number]}
        for number, job in enumerate(jobs)
        for name, *values in SERIES
    ]
    firing = [
        {
            "expr": 'group by (job, alertname) (ALERTS{alertstate="firing"})',
            "eval_time": time,
            "exp_samples": [{"labels": f'{{job="sick", alertname="{it}"}}', "value": 1} for it in sorted(alerts)],
        }
        for time, alerts in FIRING.items()
    ]
    content = {
        "rule_files": [f"{job}.yml" for job in jobs],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": firing}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
    promtool("test", "rules", str(tmp_path / "test.yml"))


def _of_job(name: str, job: str) -> str:
    metric, brace, labels = name.replace("'", '"').partition("{")
    return f'{metric}{{job="{job}"{"," if brace else "}"}{labels}'


def promtool(*arguments: str) -> str:
    done = subprocess.run([which("promtool") or "", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.fault("R6")
@pytest.mark.nightly
def test_alerts_and_charts_of_real_runs(tmp_path: Path, own_prometheus: Callable[[], Prometheus]) -> None:
    server, runs = own_prometheus(), FaultyRuns(tmp_path)
    jobs = ("healthy", *sorted({job for job, _ in FAULTS}))
    groups = [rules(job) for job in jobs]
    for rule in (it for group in groups for it in group["rules"]):
        rule["expr"] = quick(rule["expr"])
        rule.pop("for", None)
    try:
        runs.start_healthy()
        runs.start_faulty()
        wait_until(lambda: len(runs.targets) == len(jobs) - 1)
        server.scrape(*runs.targets.values())
        wait_until(lambda: len(server.query("malflow_up")) == len(runs.targets))
        server.use_rules(yaml.safe_dump({"groups": groups}))
        fired, deadline = set[tuple[str, str]](), time.monotonic() + 120
        while FAULTS - fired:
            assert time.monotonic() < deadline, FAULTS - fired
            time.sleep(0.5)
            fired |= server.firing()
        assert not {it for it in fired if it[0] == "healthy"}
        for expression, _ in expressions():
            assert server.query(expression.replace('job="$job"', 'job=~".+"')), expression
    finally:
        runs.stop()
