"""The screen of a run, as a function of its documents: it fits the terminal, and users' names are shown as text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.cli.output.screens import About, screen_of
from malflow.drawing.text import width
from malflow.engine.parts.reads import PartProgress, WorkerProgress
from malflow.monitor.documents import RunFacts, progress_document, time_document, why_document
from malflow.monitor.recent_past import Rates
from malflow.runtime.progress.progress import OperatorProgress, Progress
from malflow.runtime.progress.time_table import TimeTable
from malflow.runtime.why.answer import Why

pytestmark = pytest.mark.slow

FACTS = RunFacts("0123abcd", "orders", "single", 17)
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
PROGRESS = Progress(
    *(48_213, 4, {"lines": 9}, 5, None, 0),
    late={"count": 12},
    operators={
        "lines": OperatorProgress(9, (9,), kind="source"),
        "split": OperatorProgress(9, (40,), failed=3),
        "count": OperatorProgress(40, (40,), keys=1203),
    },
    status="running",
    started=NOON,
    at=NOON + timedelta(minutes=3),
)
RATES = Rates(
    183_204.0,
    {"lines": (183_204.0, [183_204.0]), "split": (183_204.0, [731_002.0]), "count": (731_002.0, [731_002.0])},
    {"lines": 0.001, "split": 0.34, "count": 0.41},
)
WHY = Why("count", "silent_part", "part 'c.txt' of 'lines' gave its last record 9 min ago.", "lines")
TIMES = TimeTable(NOON, (), {}, epochs={"count": NOON - timedelta(minutes=9), "split": 7})


def document(progress: Progress = PROGRESS, rates: Rates = RATES) -> dict[str, Any]:
    return progress_document(FACTS, progress, rates)


def test_screen_with_all_that_is_known() -> None:
    about = About([1, 2, 4], why_document(FACTS, WHY), time_document(FACTS, TIMES), keys="q: quit   w: why")
    head, rates, _, *table, empty, cause, keys = screen_of(document(), about)
    assert head.startswith("orders  single x4  running 3 min   tick 48,213")
    assert rates == "▂▄█"
    assert table == [
        "operator     in/s    out/s  busy            keys  epoch         late  failed  lag",
        "lines ◄   183,204  183,204  ▏                  -  -                -       -    -",
        "split     183,204  731,002  ██▊       34%      -  7                -       3    -",
        "count     731,002  731,002  ███▎      41%  1,203  9 min behind    12       -    -",
    ]
    assert (empty, keys) == ("", about.keys)
    assert cause == "! part 'c.txt' of 'lines' gave its last record 9 min ago.  (w: why)"


def test_rows_that_an_operator_makes_and_its_demotions() -> None:
    split = replace(PROGRESS.operators["split"], rows_made=12_000, demotions=1)
    made = replace(PROGRESS, operators={**PROGRESS.operators, "split": split})
    lines = [line for line in screen_of(document(made)) if line.startswith(("operator", "split", "count"))]
    assert [re.split("  +", line)[-2:] for line in lines] == [["rows made", "demoted"], ["12,000", "1"], ["-", "-"]]


def test_workers_with_their_parts() -> None:
    parts = {"lines": {"a.csv": PartProgress(0, 9, 5.0), "b.csv": PartProgress(1, 9000, 2000.0), "c": PartProgress(0)}}
    workers = (
        WorkerProgress(0, 2, 5.0),
        WorkerProgress(1, 1, 2000.0),
        *(WorkerProgress(at, 0, 0.0) for at in range(2, 10)),
    )
    lines = screen_of(document(replace(PROGRESS, parts=parts, workers=workers)))
    assert lines[-11:-8] == [
        "reads     parts   in/s  the fastest",
        "worker 1      1  2,000  'b.csv' of lines, 2,000/s",
        "worker 0      2      5  'a.csv' of lines, 5/s",
    ]
    assert lines[-2:] == ["and 2 more workers", ""]


def test_busy_shares_are_those_of_one_worker_where_several_work_at_once() -> None:
    spread = progress_document(replace(FACTS, runtime="processes"), PROGRESS, RATES)
    assert [it["busy_share"] for it in spread["operators"]] == pytest.approx([0.001 / 4, 0.34 / 4, 0.41 / 4])


def test_a_cause_that_is_no_fault_is_told_only_when_asked() -> None:
    why = why_document(FACTS, Why("count", "flows", "records flow.", None))
    assert not any("flow" in line for line in screen_of(document(), About(why=why)))
    assert screen_of(document(), About(why=why, is_open=True))[-1] == "records flow."


@given(
    st.lists(st.text(min_size=1, max_size=60), unique=True, max_size=40),
    st.integers(40, 150),
    st.integers(8, 60),
    st.text(max_size=300),
    st.booleans(),
)
def test_hostile_names_and_narrow_terminals(
    names: list[str], columns: int, lines: int, text: str, is_open: bool
) -> None:
    operators = {name: OperatorProgress(10**9, (10**9,), keys=7) for name in names}
    why = why_document(FACTS, Why(None, "filter", text, names[0] if names else None))
    about = About([1.0] * 60, why, None, is_open, keys="q: quit", width=columns, height=lines)
    screen = screen_of(document(replace(PROGRESS, operators=operators, late={}), Rates()), about)
    assert all(line.isprintable() for line in screen)
    assert screen[-1] == "q: quit"
    if not is_open:
        assert len(screen) <= max(lines, 9)
    assert all(width(line) <= columns for line in screen)
