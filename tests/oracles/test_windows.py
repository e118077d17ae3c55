"""Windows agree with Apache Flink, apart from the listed differences."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, Timed
from malflow.windows import Timing, counting, session, sliding, tumbling

FOLDER = Path(__file__).parent
CASES = {case["name"]: case for case in map(json.loads, (FOLDER / "windows.jsonl").read_text().splitlines())}
PAGE = (FOLDER / "DIFFERENCES.md").read_text().partition("\n## SQL\n")[0]
END_OF_TIME = 2**63 - 1

WINDOWS: dict[str, Any] = {
    "tumbling": lambda it: tumbling(it["size"], offset=it.get("offset")),
    "sliding": lambda it: sliding(it["size"], it["slide"]),
    "session": lambda it: session(it["gap"]),
    "count": lambda it: counting(it["size"], it.get("slide")),
}


def is_offered(case: dict[str, Any]) -> bool:
    """Whether malflow has the windows of a case."""
    spec = case["spec"]
    given = spec["window"].keys() | spec.keys() - {"kind", "window", "allowed_lateness"}
    trigger = spec.get("trigger", {}).get("type", "event_time")
    known = {"type", "size", "offset", "slide", "gap", "trigger"}
    is_early = trigger == "continuous" and spec["window"]["type"] == "tumbling"
    return spec["window"]["type"] in WINDOWS and given <= known and (trigger == "event_time" or is_early)


def items_of(case: dict[str, Any]) -> list[Any]:
    """Return the records and watermarks of a case as records."""
    given = [it for it in case["input"] if it.get("watermark") != END_OF_TIME]
    return [Timed(it, it["ts"] if "ts" in it else it["watermark"]) for it in given]


def run(case: dict[str, Any]) -> list[str]:
    """Return the results of malflow as texts: closed windows, the others with their timing, and late records."""
    results, revised, too_late = VecSink[Any, Any, Any](), VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()
    spec = case["spec"]
    windows = WINDOWS[spec["window"]["type"]](spec["window"])
    is_count = spec["window"]["type"] == "count"

    def keyed(stream: Any, name: str) -> Any:
        records = stream.filter(f"{name} records", lambda it: "watermark" not in it)
        return records.key_distribute(name, lambda msg: msg.value["key"]).map(
            f"{name} id", lambda it: it["value"]["id"]
        )

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", StatefulSource(ScriptedSource(items_of(case))))
        on_time, late = stream.generate_epochs("epochs", lambda msg, epoch: msg.value.get("watermark"))
        if is_count:
            both = keyed(on_time.union(late), "key")
            both.window(windows).aggregate("windows", agg.collect()).sink("results", results)
            return
        windowed = keyed(on_time, "key").window(windows, early=spec.get("trigger", {}).get("interval"))
        until = spec.get("allowed_lateness", 0) if spec["window"]["type"] == "tumbling" else 0
        streams = windowed.allow_late(keyed(late, "late"), until).aggregate("windows", agg.collect())
        for name, it, sink in zip("abc", streams, (results, revised, too_late), strict=True):
            it.sink(name, sink)

    SingleThreadRuntime(build).execute()
    found = [text_of(it.key, it.value, is_count) for it in (*results, *revised)]
    return sorted(filter(None, found)) + sorted(f"late {it}" for it in too_late.values)


def text_of(key: Any, result: Any, is_count: bool) -> str:
    """Return a result as a text; Flink gives none for records that are left over when the input ends."""
    if is_count and result.timing is Timing.END:
        return ""
    bounds = "" if is_count else f" [{result.start}, {result.end})"
    timing = f" {result.timing.name.lower()}" if result.timing in (Timing.EARLY, Timing.LATE) else ""
    return f"{key}{bounds}{timing} {' '.join(sorted(result.value))}"


def outputs_of_flink(case: dict[str, Any]) -> list[str]:
    """Return the outputs of Flink as texts."""
    outputs = case["expected"]["flink"]["outputs"]
    late = sorted(f"late {it['late']}" for it in outputs if "late" in it)
    return sorted(text_of_flink(it) for it in outputs if "late" not in it) + late


def text_of_flink(output: dict[str, Any]) -> str:
    """Return an output of Flink as a text."""
    bounds = f" [{output['start']}, {output['end']})" if "start" in output else ""
    return f"{output['key']}{bounds} {' '.join(sorted(output['ids']))}"


def outputs_of(case: dict[str, Any]) -> list[str]:
    """Return the outputs of Flink, or else of Siddhi, as texts."""
    if "flink" in case["expected"]:
        return outputs_of_flink(case)
    outputs = case["expected"]["siddhi"]["outputs"]
    if case["spec"]["window"]["type"] != "session":
        return [
            " ".join([it["data"]["key"], *(f"{k}={v}" for k, v in it["data"].items() if k != "key")]) for it in outputs
        ]
    sessions: dict[int, list[str]] = {}  # a session's records come together, after the one that closes it
    for it in outputs:
        sessions.setdefault(it["after"], []).append(it["data"]["id"])
    return sorted(f"k {' '.join(sorted(ids))}" for ids in sessions.values())


def results_of(case: dict[str, Any]) -> list[str]:
    """Return malflow's results as texts; without bounds where Siddhi gives none."""
    if not is_offered(case):
        return ["not offered"]
    found = run(case)
    return found if "flink" in case["expected"] else sorted(re.sub(r" \[.*?\)", "", it) for it in found)


def table() -> dict[str, list[str]]:
    """Return the rows of the table of differences by the case."""
    rows = re.findall(r"^\| `(window-[a-z0-9-]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def differs(case: dict[str, Any]) -> bool:
    """Whether malflow's results of a case are not those of the other engine."""
    return results_of(case) != outputs_of(case)


def test_the_page_lists_the_differences_and_nothing_else() -> None:
    assert sorted(table()) == sorted(name for name, case in CASES.items() if differs(case))


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_other_engine_or_of_the_page(name: str) -> None:
    case, row = CASES[name], table().get(name)
    ours, theirs = results_of(case), outputs_of(case)
    if row is None:
        assert ours == theirs
        return
    assert row[:2] == ["; ".join(theirs), "; ".join(ours)]
    assert row[2]
