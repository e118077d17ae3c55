"""Patterns agree with Flink or Siddhi, apart from the listed differences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, Timed
from tests.oracles.pattern_specs import Unsaid, pattern_of
from tests.patterns.reference import Meaning
from tests.patterns.specs import built

FOLDER = Path(__file__).parent
CASES = {case["name"]: case for case in map(json.loads, (FOLDER / "patterns.jsonl").read_text().splitlines())}
PAGE = (FOLDER / "DIFFERENCES.md").read_text()
END_OF_TIME = 2**63 - 1
REFUSED = "refused"


def items_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records and watermarks of a case; the end of the input is its last one."""
    return [it for it in case["input"] if it.get("watermark") != END_OF_TIME]


def outputs_of(case: dict[str, Any]) -> list[str]:
    """Return the results of malflow as texts."""
    try:
        spec, after = pattern_of(case)
    except Unsaid as unsaid:
        return [f"not offered: {unsaid}"]
    matches, timeouts, too_late = VecSink[Any, Any, Any](), VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        items = [Timed(it, it["ts"] if "ts" in it else it["watermark"]) for it in items_of(case)]
        stream = provider.new_stream().source("items", StatefulSource(ScriptedSource(items)))
        on_time, late = stream.generate_epochs("epochs", lambda msg, _epoch: msg.value.get("watermark"))
        late.filter("late records", lambda it: "watermark" not in it).sink("late", too_late)
        records = on_time.filter("records", lambda it: "watermark" not in it)
        keyed = records.key_distribute("key", lambda msg: msg.value["key"]).map("value", lambda it: it["value"])
        found = keyed.match("match", built(spec), after=after)
        found.matches.sink("matches", matches)
        found.timeouts.sink("timeouts", timeouts)

    try:
        SingleThreadRuntime(build).execute()
    except GraphError:
        return [REFUSED]
    texts = [text_of_match(it.key, it.value.events, it.timestamp) for it in matches]
    if case["spec"].get("timeouts"):
        texts += [text_of_match(it.key, it.value.events, it.timestamp, "timeout ") for it in timeouts]
    return sorted(texts) + sorted(f"late {it['value']['id']}" for it in too_late.values)


def text_of_match(key: Any, events: Iterable[Any], time: Any, prefix: str = "") -> str:
    """Return a match, of events with step, value and timestamp, as a text."""
    ids: dict[str, list[str]] = {}
    for step, value, _ in events:
        ids.setdefault(step, []).append(value["id"])
    return text_of(key, ids, time, prefix)


def text_of(key: Any, ids: dict[str, list[str]], time: Any, prefix: str = "") -> str:
    """Return a match as a text: the records of each step, and its time."""
    steps = " ".join(f"{step}={','.join(found)}" for step, found in sorted(ids.items()))
    return f"{prefix}{'' if key == 'k' else f'{key} '}{steps} @{time}"


def outputs_of_flink(case: dict[str, Any]) -> list[str]:
    """Return the outputs of Flink as texts."""
    expected = case["expected"]["flink"]
    if "error" in expected:
        return [REFUSED]
    found = expected["outputs"]
    matches = sorted(text_of(it["key"], it["match"], time_of(it)) for it in found if "match" in it)
    timeouts = sorted(text_of(it["key"], it["timeout"], time_of(it), "timeout ") for it in found if "timeout" in it)
    return sorted(matches + timeouts) + sorted(f"late {it['late']}" for it in found if "late" in it)


def time_of(output: dict[str, Any]) -> Any:
    return "end" if output["ts"] == END_OF_TIME else output["ts"]


def outputs_of_siddhi(case: dict[str, Any]) -> list[str]:
    """Return the outputs of Siddhi as texts; its names of columns are those of steps, with numbers in loops."""
    texts = []
    for it in case["expected"]["siddhi"]["outputs"]:
        ids: dict[str, list[str]] = {}
        for column, record in it["data"].items():
            if record is not None and column != "key":
                ids.setdefault(column.rstrip("0123456789"), []).append(record)
        texts.append(text_of(it["data"]["key"], ids, it["ts"]))
    return sorted(texts)


ENGINES = {"flink": outputs_of_flink, "siddhi": outputs_of_siddhi}


def theirs(case: dict[str, Any]) -> dict[str, list[str]]:
    """Return the outputs of each engine that ran a case."""
    return {name: ENGINES[name](case) for name in case["expected"]}


def shown(outputs: list[str]) -> str:
    return "; ".join(outputs) or "-"


def shown_theirs(case: dict[str, Any]) -> str:
    """Return the cell of the table with the engines' outputs."""
    return " / ".join(f"{name.title()}: {shown(outputs)}" for name, outputs in theirs(case).items())


def table() -> dict[str, list[str]]:
    """Return the rows of the table of differences by the case."""
    rows = re.findall(r"^\| `(pattern-[a-z0-9_-]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def differs(case: dict[str, Any]) -> bool:
    """Whether malflow's results are those of no other engine."""
    return outputs_of(case) not in theirs(case).values()


def test_the_page_lists_the_differences_and_nothing_else() -> None:
    assert sorted(table()) == sorted(name for name, case in CASES.items() if differs(case))


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_another_engine_or_of_the_page(name: str) -> None:
    case, row = CASES[name], table().get(name)
    ours = outputs_of(case)
    if row is None:
        assert ours in theirs(case).values()
        return
    assert row[:2] == [shown_theirs(case), shown(ours)]
    assert row[2]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference(name: str) -> None:
    case = CASES[name]
    try:
        spec, after = pattern_of(case)
    except Unsaid:
        pytest.skip("the pattern can't be said")
    ours = outputs_of(case)
    if ours == [REFUSED]:
        pytest.skip("the pattern is refused")
    assert [it for it in ours if not it.startswith("late ")] == sorted(texts_of_reference(case, spec, after))


def texts_of_reference(case: dict[str, Any], spec: Any, after: str) -> list[str]:
    """Return the matches and timeouts of the reference as texts."""
    texts: list[str] = []
    for key, events in on_time(case).items():
        meaning = Meaning(spec, sorted(events, key=lambda it: it[0]))

        def text(told: Any, prefix: str = "", key: Any = key, meaning: Meaning = meaning) -> str:
            choice, time = told
            chosen = [(name, meaning.events[at][1], None) for at, name in choice]
            return text_of_match(key, chosen, time, prefix)

        texts += map(text, meaning.matches(after))
        if case["spec"].get("timeouts"):
            texts += [text(it, "timeout ") for it in meaning.timeouts(after)]
    return texts


def on_time(case: dict[str, Any]) -> dict[Any, list[tuple[Any, Any]]]:
    """Return times and values of the records that are ahead of the watermark, by key."""
    watermark: Any = None
    found: dict[Any, list[tuple[Any, Any]]] = {}
    for it in items_of(case):
        if "watermark" in it:
            watermark = it["watermark"]
        elif watermark is None or it["ts"] > watermark:
            found.setdefault(it["key"], []).append((it["ts"], it["value"]))
    return found
