"""The documents of the page, which are those of the control socket."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.cli.output.documents import KEYS
from malflow.monitor import Monitor
from malflow.monitor.asks import QUESTIONS
from malflow.serve import Page
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until
from tests.monitor.watching import connected, line_of, numbers
from tests.serve.serving import Served, bearer, served

pytestmark = pytest.mark.slow


def even_fails(number: int) -> int:
    """Return an odd number."""
    if number % 2 == 0:
        raise ValueError(f"{number} is even <b>&'\"")
    return number


def failing(provider: StreamProvider) -> None:
    """Count odd numbers; even ones become letters."""
    counting = provider.new_stream().source("numbers", ScriptedSource([1, PAUSE, 2, PAUSE] * 20_000))
    odd = counting.map("odd", even_fails, on_error="dead_letter").key_distribute("digit", lambda msg: msg.value % 10)
    odd.stateful_map("count", lambda _key, _value, state: (state + 1, state + 1), default=int).sink("out", VecSink())


def test_every_question_has_a_document(run: Served) -> None:
    needed = dict.fromkeys(("state", "sample"), "?operator=count")
    found = {it: run.ask(f"/api/{it}{needed.get(it, '')}") for it in QUESTIONS}
    assert found.pop("sample").document["error"]["kind"] == "NotShown"
    assert {it: reply.status for it, reply in found.items()} == dict.fromkeys(found, 200)


def test_records_are_shown_if_that_is_allowed(place: Path) -> None:
    del place
    with served(numbers()) as run:
        assert run.ask("/api/page").document["samples"] is False
        refused = run.ask("/api/sample?operator=step")
        assert (refused.status, refused.document["error"]["kind"]) == (409, "NotShown")
    with served(numbers(), samples=True) as run:
        assert run.ask("/api/page").document["samples"] is True
        wait_until(lambda: run.ask("/api/sample?operator=step").document["samples"])
        newest = run.ask("/api/sample?operator=step").document["samples"][-1]
        later = run.ask(f"/api/sample?operator=step&after={newest['number']}").document["samples"]
        assert all(it["number"] > newest["number"] for it in later)
        assert run.ask("/api/sample?operator=stepp").status == 404
        assert run.ask("/api/sample").status == 400
        assert run.ask("/api/sample?operator=step", {}).status == 401, "not without the token"


def test_the_socket_has_the_same_documents(place: Path) -> None:
    with served(numbers()) as run:
        run_id = run.ask("/api/page").document["run"]
        for word in ("graph", "events", "time"):
            with connected(place / f"{run_id}.sock") as end:
                end.sendall(json.dumps({"malflow": 1, "do": word}).encode() + b"\n")
                told = line_of(end)
            assert told["kind"] == word
            served_too = run.ask(f"/api/{word}").document
            assert {**told, "at": None} == {**served_too, "at": None}


def test_progress_is_sent_when_something_is_new(place: Path) -> None:
    del place

    with served(numbers()) as run:
        first = run.ask("/api/progress").document
        assert [*first][2:-1] == [*KEYS["progress"]]
        wait_until(lambda: run.handle.progress.tick > first["tick"])
        time.sleep(0.3)
        second = run.ask(f"/api/progress?after={first['number']}")
        assert second.status == 200
        assert second.document["number"] > first["number"]
        run.handle.stop()
        run.handle.await_termination(30)
        time.sleep(0.3)
        wait_until(lambda: run.ask("/api/progress").document["status"] == "ended")
        last = run.ask("/api/progress").document["number"]
        again = run.ask(f"/api/progress?after={last}")
        assert (again.status, again.body) == (304, b"")
        assert run.ask("/api/progress?after=0").status == 200


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/progress?after=-1", 400, "number of a progress"),
        ("/api/progress?after=x", 400, "number of a progress"),
        ("/api/progress?x=1", 400, "no argument 'x'"),
        ("/api/history?last=0", 400, "number of samples"),
        ("/api/events?after=1.5", 400, "number of an event"),
        ("/api/why?operator=cuont", 404, "did you mean 'count'"),
        ("/api/why?timeout=601", 400, "seconds from 0 to 600"),
        ("/api/why?timeout=nan", 400, "seconds from 0 to 600"),
        ("/api/letters?limit=1001", 400, "from 1 to 1,000"),
        ("/api/letters?operator=one", 404, "can have dead letters"),
        ("/api/state", 400, "needs operator"),
        ("/api/state?operator=step", 404, "keeps no state"),
    ],
)
def test_requests_that_are_not_understood_are_told(run: Served, path: str, status: int, words: str) -> None:
    reply = run.ask(path)
    assert (reply.status, reply.document["kind"]) == (status, "error")
    assert words in reply.document["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"x", b"[1]", b"[" * 60_000, b"\xff", b"7" * 5000, b'{"token": 1}'])
def test_bodies_that_are_not_objects_are_told(steered: Served, body: bytes) -> None:
    reply = steered.post("/api/rescale", body)
    assert (reply.status, reply.document["error"]["kind"]) == (400, "BadRequest")


def test_a_state_is_found_by_the_text_of_its_key(run: Served) -> None:
    wait_until(lambda: run.handle.progress.records.get("count", 0) > 3)
    one = run.ask("/api/state?operator=count&key=1").document
    assert [it["key"] for it in one["states"]] == ["1"]
    assert int(one["states"][0]["value"]) > 0
    assert run.ask("/api/state?operator=count&key=9").document["states"] == []
    assert [it["key"] for it in run.ask("/api/state?operator=count").document["states"]] == ["1", "2"]
    assert run.ask("/api/state?operator=count&key=[1]").document["states"] == []


def test_letters_are_listed_replayed_and_removed(place: Path) -> None:
    del place
    with served(failing, control=True) as run:
        wait_until(lambda: run.ask("/api/letters").document["total"] > 3)
        found = run.ask("/api/letters?limit=2").document
        assert [it["id"] for it in found["letters"]] == ["3-0-1", "7-0-1"]
        assert found["letters"][0]["message"] == "2 is even <b>&'\""
        assert b"<b>" in run.ask("/api/letters?limit=2").body
        assert run.post("/api/replay", {"operator": "odd", "ids": ["3-0-1"]}).document["done"] == 1
        letters = run.ask("/api/letters?operator=odd&limit=1000").document["letters"]
        assert [it["attempts"] for it in letters].count(2) == 1
        assert run.post("/api/discard", {"operator": "odd"}).document["done"] >= len(letters)
        assert run.post("/api/replay", {"operator": "one"}).status == 404


def test_a_snapshot_a_rescale_and_a_stop_by_request(place: Path, tmp_path: Path) -> None:
    del place
    with served(numbers(), {"persistence": FsspecBackend(str(tmp_path))}, control=True) as run:
        done = run.post("/api/snapshot").document
        assert (done["kind"], done["do"]) == ("done", "snapshot")
        taken = run.ask("/api/snapshots").document["snapshots"]
        assert [it["snapshot"] for it in taken][-1] == done["snapshot"]
        assert run.post("/api/rescale", {"parallelism": 3}).document["parallelism"] == 3
        assert run.ask("/api/progress").document["parallelism"] == 3
        stopped = run.post("/api/stop")
        assert (stopped.status, stopped.document["kind"]) == (202, "accepted")
        assert run.handle.await_termination(30)
        assert run.post("/api/rescale", {"parallelism": 2}).status == 409


def test_an_act_that_the_run_refuses_is_told(steered: Served) -> None:
    reply = steered.post("/api/snapshot")
    assert (reply.status, reply.document["error"]["kind"]) == (409, "GraphError")
    assert "needs a persistence" in reply.document["error"]["message"]


def test_a_page_without_a_run_says_so() -> None:
    page = Page("127.0.0.1:0", token="x" * 16)
    page.open()
    try:
        empty = Served(None, page)
        token = bearer("x" * 16)
        assert empty.ask("/api/page", token).document["run"] is None
        assert empty.ask("/api/progress", token).document["error"]["kind"] == "NoRun"
        assert empty.ask("/api/why", token).status == 503
        assert (empty.ask("/healthz").status, empty.ask("/readyz").status) == (200, 503)
        assert empty.ask("/metrics", token).status == 200
    finally:
        page.close()


def test_one_page_shows_one_run_after_another(place: Path) -> None:
    del place
    page = Page("127.0.0.1:0", token="x" * 16)
    shown: list[Mapping[str, Any]] = []
    try:
        for numbered in ([1, 2], [1, 2, 3]):
            source = SingleIteratorSource(numbered)
            SingleThreadRuntime(
                lambda provider, source=source: provider.new_stream().source("s", source).sink("out", VecSink()),  # type: ignore[misc] # inferred
                listeners=[Monitor(page)],
            ).execute()
            shown.append(Served(None, page).ask("/api/progress", bearer("x" * 16)).document)
    finally:
        page.close()
    assert [it["status"] for it in shown] == ["ended", "ended"]
    assert [it["operators"][0]["taken"] for it in shown] == [2, 3]
    assert shown[0]["run"] != shown[1]["run"]
    assert shown[0]["number"] < shown[1]["number"]
    assert page.address is None


KINDS = {
    "page": {"control", "samples", "version", "run", "job", "runtime"},
    "progress": {*KEYS["progress"], "number"},
    "graph": {*KEYS["graph"], "run", "job"},
    "drawing": {"run", "job", "text"},
    "history": {"run", "job", "at", "ticks", "operators"},
    "events": {"run", "job", "events"},
    "snapshots": {"run", "job", "snapshots"},
    "why": {*KEYS["why"]},
    "time": {"run", "job", "at", "text", "rows", "late"},
    "letters": {"run", "job", "total", "letters"},
    "states": {"run", "job", "operator", "tick", "states"},
}
"""The keys of the documents besides ``malflow`` and ``kind``: keys may be added, but never change."""


def test_documents_have_their_keys(place: Path) -> None:
    del place
    with served(failing) as run:
        wait_until(lambda: run.ask("/api/letters").document["total"] > 0)
        for kind, keys in KINDS.items():
            path = "state?operator=count" if kind == "states" else kind
            found = run.ask(f"/api/{path}").document
            assert found["kind"] == kind
            assert found.keys() - {"malflow", "kind"} >= keys, kind
        event, *_ = run.ask("/api/events").document["events"]
        assert {"number", "at", "event", "parallelism", "snapshot", "restarts"} <= event.keys()
        letter = run.ask("/api/letters?limit=1").document["letters"][0]
        assert letter.keys() >= {*KEYS["letter"]}


URL = "postgres://me:hush@host/orders"


def fails_with_secrets(record: dict[str, str]) -> dict[str, str]:
    """Return a record, or fail with a secret in the error's text."""
    if record["number"] == "2":
        raise ValueError(f"no connection to {URL}: Authorization: Bearer hush")
    return record


def secretive(provider: StreamProvider) -> None:
    """Keep the last record of each key, with secrets in keys, values, states and errors."""
    records = [{"number": it, "password": "hush", "url": URL} for it in ("1", "2")]
    source = ScriptedSource([it for record in records for it in (record, PAUSE)] * 10_000)
    kept = provider.new_stream().source("records", source).map("fails", fails_with_secrets, on_error="dead_letter")
    by_url = kept.key_distribute("url", lambda msg: msg.value["url"])
    by_url.stateful_map("last", lambda _key, value, _state: (value, value), default=dict).sink("out", VecSink())


def test_no_document_and_no_metric_has_a_secret(place: Path) -> None:
    with served(secretive) as run:
        wait_until(lambda: run.ask("/api/letters").document["total"] > 0)
        wait_until(lambda: run.handle.progress.records.get("out", 0) > 0)
        words = dict.fromkeys(("state", "sample"), "?operator=last")
        texts = {it: run.ask(f"/api/{it}{words.get(it, '')}").body.decode() for it in sorted(QUESTIONS)}
        texts["metrics"] = run.ask("/metrics").body.decode()
        texts["files"] = "".join(it.read_text() for it in place.glob("*.json"))
    assert "no connection to postgres" in texts["letters"]
    assert "postgres" in texts["state"]
    assert not [name for name, text in texts.items() if "hush" in text]


def test_nothing_in_a_request_is_imported(run: Served) -> None:
    before = {*sys.modules}
    for name in ("antigravity", "this:run", "__main__", "os.system"):
        for path in (f"state?operator={name}", f"why?operator={name}", f"state?operator=count&key={name}"):
            assert run.ask(f"/api/{path}").status in (200, 404)
    assert not {"antigravity", "this"} & ({*sys.modules} - before)
