"""One screen of the progress of a run, as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from malflow.cli.terminal import aligned, one_line
from malflow.cli.texts import age, bytes_text, duration

__all__ = ["line_of", "screen_of"]

_COLUMNS = ["operator", ">in/s", ">out/s", ">in", ">out", ">keys", ">late", ">lag"]


def line_of(progress: Mapping[str, Any]) -> str:
    """Return the state of a run in a line."""
    workers = f"{progress['runtime']} x{progress['parallelism']}"
    parts = [
        f"{progress['job']}  {workers}  {progress['status']}{_lasting(progress)}",
        f"tick {progress['tick']:,} ({duration(progress['seconds'])})",
        "" if progress["polled_per_second"] is None else f"{progress['polled_per_second']:,.0f} records/s",
        _snapshot(progress["snapshot"]),
        f"{progress['restarts']} restarts" if progress["restarts"] else "",
    ]
    return one_line("   ".join(part for part in parts if part))


def screen_of(progress: Mapping[str, Any]) -> list[str]:
    """Return the state of a run, with a line for each operator."""
    rows = [
        [
            it["name"],
            _number(it["taken_per_second"]),
            _number(_total(it["given_per_second"])),
            _number(it["taken"]),
            _number(_total(it["given"])),
            _number(it["keys"]),
            _number(it["late"]),
            _number(it["lag"]),
        ]
        for it in progress["operators"]
    ]
    table = aligned(_COLUMNS, [[one_line(cell) for cell in row] for row in rows])
    waits = ", ".join(progress["unfinished"])
    return [
        line_of(progress),
        "",
        *table,
        *([one_line(f"waits for {waits}")] if progress["status"] == "resting" and waits else []),
    ]


def _lasting(progress: Mapping[str, Any]) -> str:
    started, at = progress["started"], progress["at"]
    if started is None:
        return ""
    passed = datetime.fromisoformat(at) - datetime.fromisoformat(started)
    return f" {duration(max(0.0, passed.total_seconds()))}"


def _snapshot(snapshot: Mapping[str, Any] | None) -> str:
    if snapshot is None:
        return ""
    at = None if snapshot["at"] is None else datetime.fromisoformat(snapshot["at"])
    size = "" if snapshot["bytes"] is None else f", {bytes_text(snapshot['bytes'])}"
    return f"snapshot {snapshot['id']}, {age(at, datetime.now(UTC))}{size}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _total(values: list[float] | None) -> float | None:
    return sum(values) if values else None
