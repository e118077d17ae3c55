"""The documents: their keys are pinned, and whatever users name or send is text in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.engine.parts.reads import PartProgress, WorkerProgress
from malflow.errors import OperatorError
from malflow.events import Event, InputEnded, PartsDiscovered, RescaleRefused, Run, RunFinished, SnapshotCommitted
from malflow.monitor.documents import (
    RunFacts,
    as_json,
    error_document,
    event_document,
    history_document,
    progress_document,
    time_document,
    why_document,
)
from malflow.monitor.recent_past import History, Rates
from malflow.operators.waiting import Running
from malflow.runtime.progress.progress import (
    OperatorProgress,
    Progress,
    SinkProgress,
    SnapshotFailure,
    SnapshotInfo,
    Spread,
)
from malflow.runtime.progress.time_table import TimeRow, TimeTable
from malflow.runtime.why.answer import Why
from malflow.sinks import VecSink
from malflow.store.redaction import safe_repr
from malflow.testing import ScriptedSource, Timed
from malflow.windows import tumbling
from malflow.words import iso

UNREAD = {"worker": None, "records": None, "per_second": None, "is_finished": False}
FACTS = RunFacts("0123abcd", "orders", "single", 17)
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOSTILE = ["<img onerror=x>", "</script>", "\"'&", "a\x1b[2Jb", "a\nb\r", "\u202egnp.exe", "\ud800", "x" * 10_000]


class Unfriendly:
    """Can't be shown."""

    def __repr__(self) -> str:
        raise ValueError("no text")


def test_keys_of_progress() -> None:
    progress = Progress(
        tick=7,
        parallelism=2,
        records={"lines": 5},
        polled=5,
        snapshot=3,
        restarts=1,
        late={"epochs": 2},
        lateness={"epochs": timedelta(seconds=3)},
        unfinished=("lines",),
        lag={"lines": 12},
        lag_by_part={"lines": {("a", 1): 4, "postgres://me:hush@host": 8, None: None}},
        parts={
            "lines": {
                None: PartProgress(0, 3, None, is_finished=True),
                "fast": PartProgress(0, 9, 4.5),
                ("a", 1): PartProgress(1, 5, 2.5),
            }
        },
        workers=(WorkerProgress(0, 1, 4.5, 0.5), WorkerProgress(1, 1, None, lane=1)),
        status="running",
        started=NOON,
        at=NOON + timedelta(seconds=1),
        seconds=0.25,
        operators={
            "lines": OperatorProgress(
                5,
                (5,),
                kind="source",
                busy=1.5,
                batches=3,
                largest=4,
                polls=6,
                saturated_polls=2,
                rows_made=3,
                demotions=1,
                workers_taken=Spread(4, 2.5, (4, 1)),
                workers_busy=Spread(1.0, 0.75, (1.0, 0.5)),
            ),
            "epochs": OperatorProgress(
                5,
                (3, 2),
                keys=9,
                failed=3,
                skipped=1,
                letters=2,
                retries=7,
                calls=8,
                errors={"ValueError": 3},
                example="ValueError: at postgres://me:hush@host",
            ),
        },
        last_snapshot=SnapshotInfo(3, 6, NOON, 9, 100, 0.1, 0.2),
        snapshot_failure=SnapshotFailure(6, "OSError: at s3://me:hush@bucket", NOON),
        snapshot_interval=10.0,
        running=Running("epochs", "its breaker is open"),
        sinks={"out": SinkProgress(5, 2, 1, 4)},
    )
    rates = Rates(2.5, {"lines": (2.5, [2.5])}, {"lines": 0.5})
    found = json.loads(as_json(progress_document(FACTS, progress, rates)))
    assert found == {
        "malflow": 1,
        "kind": "progress",
        "run": "0123abcd",
        "job": "orders",
        "runtime": "single",
        "pid": 17,
        "status": "running",
        "tick": 7,
        "parallelism": 2,
        "polled": 5,
        "seconds": 0.25,
        "restarts": 1,
        "started": "2026-03-28T12:00:00.000000Z",
        "at": "2026-03-28T12:00:01.000000Z",
        "polled_per_second": 2.5,
        "snapshot": {
            "id": 3,
            "tick": 6,
            "at": "2026-03-28T12:00:00.000000Z",
            "keys": 9,
            "bytes": 100,
            "capture_seconds": 0.1,
            "write_seconds": 0.2,
        },
        "snapshot_failure": {"tick": 6, "error": "OSError: at s3://***@bucket", "at": "2026-03-28T12:00:00.000000Z"},
        "snapshot_interval": 10.0,
        "unfinished": ["lines"],
        "parts": [
            {"source": "lines", "part": "'postgres://***@host'", "lag": 8, **UNREAD},
            {"source": "lines", "part": "('a', 1)", "lag": 4, **UNREAD, "worker": 1, "records": 5, "per_second": 2.5},
            {"source": "lines", "part": "'fast'", "lag": None, **UNREAD, "worker": 0, "records": 9, "per_second": 4.5},
            {"source": "lines", "part": "None", "lag": None, **UNREAD, "worker": 0, "records": 3, "is_finished": True},
        ],
        "workers": [
            {"worker": 0, "parts": 1, "per_second": 4.5, "busy": 0.5, "lane": 0},
            {"worker": 1, "parts": 1, "per_second": None, "busy": None, "lane": 1},
        ],
        "operators": [
            {
                "name": "lines",
                "is": "source",
                "taken": 5,
                "given": [5],
                "taken_per_second": 2.5,
                "given_per_second": [2.5],
                "lag": 12,
                "share": None,
                "keys": None,
                "largest_state": None,
                "late": None,
                "lateness": None,
                "counts": {},
                "failed": None,
                "skipped": None,
                "letters": None,
                "retries": None,
                "errors": {},
                "example": None,
                "busy": 1.5,
                "busy_share": 0.5,
                "batches": 3,
                "largest": 4,
                "calls": 0,
                "polls": 6,
                "saturated_polls": 2,
                "rows_made": 3,
                "demotions": 1,
                "workers": {
                    "taken": {"greatest": 4, "mean": 2.5, "by_worker": [4, 1]},
                    "busy": {"greatest": 1.0, "mean": 0.75, "by_worker": [1.0, 0.5]},
                },
            },
            {
                "name": "epochs",
                "is": "operator",
                "taken": 5,
                "given": [3, 2],
                "taken_per_second": None,
                "given_per_second": None,
                "lag": None,
                "share": None,
                "keys": 9,
                "largest_state": None,
                "late": 2,
                "lateness": "datetime.timedelta(seconds=3)",
                "counts": {},
                "failed": 3,
                "skipped": 1,
                "letters": 2,
                "retries": 7,
                "errors": {"ValueError": 3},
                "example": "ValueError: at postgres://***@host",
                "busy": 0.0,
                "busy_share": None,
                "batches": 0,
                "largest": 0,
                "calls": 8,
                "polls": 0,
                "saturated_polls": 0,
                "rows_made": 0,
                "demotions": 0,
                "workers": {
                    "taken": {"greatest": 0, "mean": 0, "by_worker": []},
                    "busy": {"greatest": 0, "mean": 0, "by_worker": []},
                },
            },
        ],
        "sinks": [{"name": "out", "kept": 5, "waiting": 2, "uncommitted": 1, "limit": 4}],
        "running": {"operator": "epochs", "waits": "its breaker is open"},
        "hot": [],
    }


def test_keys_of_history_and_why() -> None:
    history = History()
    for second in range(2):
        operators = {"lines": OperatorProgress(5 * second, (5 * second,), kind="source", busy=second / 2)}
        history.add(Progress(second, 1, {}, 0, None, 0, operators=operators, at=NOON), float(second))
    assert history_document(FACTS, history) == {
        "malflow": 1,
        "kind": "history",
        "run": "0123abcd",
        "job": "orders",
        "at": [iso(NOON), iso(NOON)],
        "ticks": [0, 1],
        "operators": [{"name": "lines", "taken": [0, 5], "given": [[0, 5]], "busy": [0.0, 0.5]}],
    }
    times = {"epochs": NOON.replace(tzinfo=None) - timedelta(seconds=5), "numbers": 7}
    row = TimeRow("hours", 1, "windows", 2, NOON, None, "epochs", "lines", "a.txt", None, timedelta(seconds=90))
    found = time_document(FACTS, TimeTable(NOON, (row,), {"epochs": 2}, {"epochs": 3}, {}, times))
    assert "hours" in found.pop("text")
    assert found == {
        "malflow": 1,
        "kind": "time",
        "run": "0123abcd",
        "job": "orders",
        "at": "2026-03-28T12:00:00.000000Z",
        "rows": [
            {
                "operator": "hours",
                "worker": 1,
                "open": 2,
                "what": "windows",
                "frontier": "datetime.datetime(2026, 3, 28, 12, 0, tzinfo=datetime.timezone.utc)",
                "behind": 0.0,
                "until": None,
                "generator": "epochs",
                "source": "lines",
                "part": "'a.txt'",
                "epoch": None,
                "silence": 90.0,
                "advances": False,
            }
        ],
        "epochs": [
            {"operator": "epochs", "epoch": "datetime.datetime(2026, 3, 28, 11, 59, 55)", "behind": 5.0},
            {"operator": "numbers", "epoch": "7", "behind": None},
        ],
        "late": [{"operator": "epochs", "late": 2, "lateness": "3"}],
    }
    why = Why("hours", "silent_part", "part 'a\x1b'\nis silent", "lines", {"part": "'a\x1b'", "silence": 90.0})
    assert why_document(FACTS, why) == {
        "malflow": 1,
        "kind": "why",
        "run": "0123abcd",
        "job": "orders",
        "operator": "hours",
        "cause": "silent_part",
        "text": "part 'a\\x1b'\nis silent",
        "stops_at": "lines",
        "is_fault": True,
        "facts": {"part": "'a\\x1b'", "silence": 90.0},
    }


def test_keys_of_events_and_errors() -> None:
    error = OperatorError("operator 'm' failed", operator="m", record=("k", 1, 2), callback="flow.py:3")
    facts = {
        "kind": "OperatorError",
        "message": "operator 'm' failed",
        "operator": "m",
        "key": "'k'",
        "location": "flow.py:3",
    }
    assert error_document(error) == facts
    assert event_document(4, NOON, RescaleRefused(7, 3, error)) == {
        "number": 4,
        "at": "2026-03-28T12:00:00.000000Z",
        "event": "rescale_refused",
        "tick": 7,
        "parallelism": 3,
        "error": facts,
    }
    number, text, unfriendly = event_document(1, NOON, PartsDiscovered(7, "lines", [1, "a", Unfriendly()]))["parts"]
    assert (number, text, "Unfriendly" in unfriendly) == ("1", "'a'", True)
    assert event_document(1, NOON, InputEnded(7, "keep", False, {"hours": "3 windows"}))["held"] == {
        "hours": "3 windows"
    }
    finished = RunFinished(7, 1, {"m": 3}, {}, {"epochs": float("nan")}, {}, None, 0, None)
    assert event_document(1, NOON, finished)["lateness"] == {"epochs": "nan"}
    assert event_document(1, NOON, SnapshotCommitted(3, 7, 100, 0.5))["bytes"] == 100


def test_errors_are_short_and_without_secrets() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert len(error_document(ValueError("x" * 1_000_000))["message"]) < 5000
    assert (
        error_document(ValueError("at postgres://me:hush@host/x"))["message"] == "ValueError: at postgres://***@host/x"
    )
    assert "Broken" in error_document(Broken())["message"]


@given(st.sampled_from(HOSTILE) | st.text(), st.sampled_from(HOSTILE) | st.text() | st.integers() | st.floats())
def test_names_and_values_are_text_on_one_line(name: str, value: Any) -> None:
    progress = Progress(
        1,
        1,
        {name: 1},
        0,
        None,
        0,
        operators={name: OperatorProgress(1, (1,))},
        lag_by_part={name: {value: 1}},
        late={name: 1},
        lateness={name: value},
        counts={name: {name: 1}},
    )
    line = as_json(progress_document(FACTS, progress, Rates()))
    assert line.count(b"\n") == 1
    assert line.isascii()
    found = json.loads(line)
    assert [it["name"] for it in found["operators"]] == [name]
    assert found["parts"][0]["part"] == safe_repr(value)
    assert len(line) < 30_000 + 12 * 4 * len(name)


def test_documents_of_a_run_whose_names_are_hostile() -> None:
    runs: list[Run] = []

    class Takes:
        def on_start(self, run: Run, /) -> None:
            runs.append(run)

        def on_event(self, event: Event, /) -> None:
            json.loads(as_json(event_document(1, NOON, event)))

    one, two, three = HOSTILE[0], HOSTILE[2], "{{hours}}"

    def build_dataflow(provider: StreamProvider) -> None:
        source = ScriptedSource({HOSTILE[3]: [Timed(1, 1), Timed(2, 9), Timed(3, 2)]})
        timed = provider.new_stream().source(one, source).generate_epochs(two, limit_out_of_orderness(1)).on_time
        timed.key_distribute("key", lambda msg: msg.key).window(tumbling(5)).aggregate(three, agg.count()).sink(
            "out", VecSink()
        )

    SingleThreadRuntime(build_dataflow, listeners=[Takes()]).execute()
    [run] = runs
    found = json.loads(as_json(progress_document(FACTS, run.progress, Rates())))
    assert {one, two, three} <= {it["name"] for it in found["operators"]}
    assert json.loads(as_json(time_document(FACTS, run.explain_time())))["late"][0]["operator"] == two
