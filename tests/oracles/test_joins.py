"""The answers of Flink and Siddhi to questions about joins, and ours.

The cases were run by Flink 2.3.0 and Siddhi 5.1.30. Where ours differs on purpose, the answer is here, and the
reason in DIFFERENCES.md.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, Timed
from malflow.windows import session, sliding, tumbling

ROOT = Path(__file__).parents[2]
CASES = [json.loads(line) for line in (ROOT / "tests" / "oracles" / "joins.jsonl").read_text().splitlines()]

DIFFERENT = {
    "join-interval-late": "l1-r3 l1-r5",
    "join-tumbling-late": "l1-None l2-None",
    "join-tumbling-pairs": "l1-r1 l1-r2 l2-r1 l2-r2",
    "join-siddhi-time-full": "l1-r1 l1-r2 l2-r2 None-r3 l3-r4",
    "join-siddhi-length-1": "l1-None l2-r2 l3-r2",
}
"""Our pairs where they differ from theirs."""


def joined(spec: dict[str, Any], left: Any, right: Any) -> Any:
    """Add the join of a case."""
    match spec:
        case {"type": "interval", "lower": lower, "upper": upper}:
            return left.interval_join("join", right, before=-lower, after=upper)
        case {"type": "last", "time": time, "asks": "left"}:
            return left.interval_join("join", right, before=time - 1, after=0)
        case {"type": "last", "time": time, "how": how}:
            how = "outer" if "outer" in how else "inner"
            return left.interval_join("join", right, before=time - 1, after=time - 1, how=how)
        case {"type": "last", "count": 1}:
            return left.asof_join("join", right)
        case {"type": "window", "window": window, "how": how}:
            groups = left.window(windows_of(window)).cogroup("join", right).map("groups", lambda it: it.value)
            return groups.flat_map("pairs", pairs_of(how))
    raise AssertionError(f"a case of a kind that is not known: {spec}")


def windows_of(spec: dict[str, Any]) -> Any:
    """Return the windows of a case."""
    match spec:
        case {"type": "tumbling", "size": size}:
            return tumbling(size)
        case {"type": "sliding", "size": size, "slide": slide}:
            return sliding(size, slide)
        case {"type": "session", "gap": gap}:
            return session(gap)
    raise AssertionError(f"windows of a kind that is not known: {spec}")


def pairs_of(how: str) -> Any:
    """Return a function that makes pairs of the groups of a window."""

    def pairs(groups: tuple[list[Any], list[Any]]) -> list[Any]:
        lefts, rights = groups
        if how == "cogroup":
            return [(lefts, rights)]
        return [
            (left, right)
            for left in lefts or ([None] if how in ("right", "full") else [])
            for right in rights or ([None] if how in ("left", "full") else [])
        ]

    return pairs


def results_of(case: dict[str, Any]) -> list[Any]:
    """Return the messages of a case's join, whose epochs are the watermarks in its input."""
    script = [Timed(item, item.get("ts", item.get("watermark", 0) + 1)) for item in case["input"]]
    sink: VecSink[Any, Any, Any] = VecSink()

    def side(stream: Any, name: str) -> Any:
        mine = stream.filter(name, lambda item: item.get("stream") == name)
        return mine.key_distribute(f"key {name}", lambda msg: msg.value["key"]).map(
            f"id {name}", lambda item: item["id"]
        )

    def build(provider: Any) -> None:
        items = provider.new_stream().source("items", StatefulSource(ScriptedSource(script)))
        on_time, late = items.generate_epochs("epochs", lambda msg, _epoch: msg.value.get("watermark"))
        late.sink("late", VecSink())
        joined(case["spec"], side(on_time, "left"), side(on_time, "right")).sink("results", sink)

    SingleThreadRuntime(build).execute()
    return list(sink)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answers_of_other_engines(case: dict[str, Any]) -> None:
    found = results_of(case)
    expected = Counter(repr((it["key"], it["left"], it["right"])) for it in case["expected"] if "late" not in it)
    ours = Counter(repr((it.key, *it.value)) for it in found)
    if case["name"] not in DIFFERENT:
        assert ours == expected
        timed = {(it["left"], it["right"]): it["ts"] for it in case["expected"] if "ts" in it}
        assert not timed or {it.value: it.timestamp for it in found} == timed
        return
    assert ours != expected
    assert Counter("-".join(map(str, it.value)) for it in found) == Counter(DIFFERENT[case["name"]].split())


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_differences_are_on_the_page(name: str) -> None:
    assert f"`{name}`" in (Path(__file__).parent / "DIFFERENCES.md").read_text()
