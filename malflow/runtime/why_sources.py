"""Why a source gives nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from malflow.message import NoKey
from malflow.nodes import Port
from malflow.runtime.why_answer import Fact, Found
from malflow.runtime.why_flow import Flow
from malflow.words import plural, quoted, value_text

__all__ = ["NEVER_ENDS", "ago", "silent_source"]

_SHOWN_PARTS = 5
"""Parts that an answer names: as many as fit in a line; the others are counted."""

_SPANS = ((10, "s", 1, 1), (120, "s", 1, 0), (7200, "min", 60, 0), (172_800, "h", 3600, 0))
"""The limit in seconds, the unit, its seconds, and the digits with which a span of time is shown."""

NEVER_ENDS = (
    "to let time continue without input, pass idle_after= to its generate_epochs or event_time; if it has no more "
    "records, is_finished() of its readers must return True, or call stop()"
)


def silent_source(flow: Flow, vertex: int) -> Found:
    """Return why a source has emitted nothing of late."""
    name = flow.name(vertex)
    source, count = quoted(name), flow.given(Port(vertex))
    progress, parts = flow.after.progress, flow.after.table.heard.get(name, {})
    facts: dict[str, Fact] = {"source": name, "records": count, "lag": progress.lag.get(name)}
    if name not in progress.unfinished or flow.has_ended:
        facts["parts"] = None
        return Found("ended", name, f"source {source} has ended, after {plural(count, 'record')}.", facts)
    since = _since(flow, name)
    facts["silent_for"] = ago(flow, since)
    last = f", the last of them {ago(flow, since)} ago" if since else ""
    given = f"it has emitted {plural(count, 'record')}{last}" if count else "it has emitted no record since the start"
    if not parts and flow.after.table.now is not None:
        text = (
            f"source {source} has read all of its parts to the end and looks for new ones, so the run does not end: "
            f"{given}. To end the run after the last part, create the source without discovery, or call stop(); "
            "to let time continue without input, pass idle_after= to its generate_epochs or event_time."
        )
        return Found("unfinished_source", name, text, facts)
    facts["parts"] = _names(parts)
    if count and progress.lag.get(name) == 0:
        text = (
            f"source {source} has been read to its end, with no input left (lag 0), but it is not finished, so the run "
            f"waits for more: {given}. What is open stays open; {NEVER_ENDS}."
        )
        return Found("unfinished_source", name, text, facts)
    waits = progress.lag.get(name)
    behind = f" {waits:,} of its input wait (its lag): its readers may be stuck." if waits else ""
    text = f"source {source}{_of_parts(parts)} is silent: {given}.{behind} Check that it has input; {NEVER_ENDS}."
    return Found("silent_source", name, text, facts)


def _since(flow: Flow, name: str) -> datetime | None:
    """Return when any part of a source was last heard; None if that is unknown."""
    known = [at for at in flow.after.table.heard.get(name, {}).values() if at is not None]
    return max(known, default=None)


def ago(flow: Flow, at: datetime | None) -> str | None:
    """Return how long ago a time of the run's clock is, as text."""
    now = flow.after.table.now
    if at is None or now is None:
        return None
    seconds = (now - at).total_seconds()
    for limit, unit, each, digits in _SPANS:
        if seconds < limit:
            return f"{seconds / each:.{digits}f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def _names(parts: dict[Any, Any]) -> list[str]:
    named = sorted(value_text(part) for part in parts if part is not NoKey)  # in whatever order workers report them
    more = len(named) - _SHOWN_PARTS
    return named if more <= 0 else [*named[:_SHOWN_PARTS], f"{more:,} more"]


def _of_parts(parts: dict[Any, Any]) -> str:
    names = _names(parts)
    return "" if len(parts) == 1 or not names else f" ({len(parts):,} unfinished parts: {', '.join(names)})"
