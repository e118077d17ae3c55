"""Log lines that no value can break out of."""

from __future__ import annotations

import io
import json
import logging

from malflow import SingleThreadRuntime, StreamProvider
from malflow.events import DiscoveryFailed, SnapshotFailed
from malflow.monitor import JsonFormatter, RepeatFilter, TextFormatter
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

HOSTILE = "a\nERROR forged\r\x1b[2J\u202e\u2028"


def logged(formatter: logging.Formatter) -> str:
    """Return the log of a run, of a warning with a hostile value, and of an exception with one."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(formatter)
    log = logging.getLogger("malflow")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:

        def build_dataflow(provider: StreamProvider) -> None:
            provider.new_stream().source("numbers", SingleIteratorSource([1])).sink("out", VecSink())

        SingleThreadRuntime(build_dataflow).execute()
        logging.getLogger("malflow.test").warning("the value %s", HOSTILE, extra={"operator": "map", "worker": 3})
        try:
            int(HOSTILE)
        except ValueError as error:
            error.add_note(HOSTILE)
            logging.getLogger("malflow.test").exception("failed")
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    return written.getvalue()


def test_json_lines() -> None:
    text = logged(JsonFormatter())
    assert text.isascii()
    documents = [json.loads(line) for line in text.split("\n") if line]
    starts, ends, input_ended, value, error = (
        next(it for it in documents if words in it["message"])
        for words in ("starts without state", "has ended after tick", "the input has ended", HOSTILE, "failed")
    )
    assert starts["job"] == "default"
    assert starts["level"] == "info"
    assert starts["time"].endswith("Z")
    assert ends["tick"] >= 1
    assert input_ended["logger"] == "malflow.runtime"
    assert (value["operator"], value["worker"], "job" in value) == ("map", 3, False)
    assert HOSTILE.split("\n", maxsplit=1)[0] in error["error"]


def test_text_lines() -> None:
    text = logged(TextFormatter("%(levelname)s %(message)s"))
    assert not set(text) & set("\r\x1b\u202e\u2028")
    lines = text.split("\n")
    assert "WARNING the value a\\nERROR forged\\r\\x1b[2J\\u202e\\u2028" in lines
    assert [line for line in lines if line.endswith("ERROR forged")] == ["    ERROR forged"], (
        "in the traceback, indented"
    )
    assert [line for line in lines if line.startswith("ERROR")] == ["ERROR failed"]


def test_a_warning_that_repeats_is_written_once_a_minute() -> None:
    now = [0.0]
    repeats = RepeatFilter(clock=lambda: now[0])
    failed, other = SnapshotFailed(1, OSError(), 1.0), DiscoveryFailed(1, "lines", OSError())

    def written(at: float, text: str, level: int = logging.WARNING, event: object = None) -> str | None:
        now[0] = at
        record = logging.LogRecord("malflow.test", level, "", 0, "%s", (text,), None)
        if event is not None:
            record.event = event
        return record.getMessage() if repeats.filter(record) else None

    assert written(0, "failed, retry in 1 s", event=failed) == "failed, retry in 1 s"
    assert written(1, "failed, retry in 2 s", event=failed) is None
    assert written(2, "not listed", event=other) == "not listed"
    assert written(59, "failed, retry in 4 s", event=failed) is None
    assert written(60, "failed, retry in 8 s", event=failed) == "failed, retry in 8 s (and 2 like it before)"
    assert written(119, "failed, retry in 9 s", event=failed) is None
    assert [written(120, "text", level) for level in (logging.INFO, logging.ERROR)] * 2 == ["text"] * 4
    assert written(180, "failed", event=failed) == "failed (and 1 like it before)"
