"""Why a source emits nothing, and where a run spends its time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from malflow.engine.parts.balance import uneven
from malflow.message import NoKey
from malflow.nodes import Port, SourceNode
from malflow.runtime.why.answer import Fact, Found
from malflow.runtime.why.flow import Flow
from malflow.words import one_line, plural, quoted, value_text

__all__ = [
    "NEVER_ENDS",
    "ago",
    "backlog",
    "long_tick",
    "silent_source",
    "uneven_parts",
]

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


_MOST_POLLS = 0.9
"""The share of polls that give all that they ask for, above which input waits."""

_LEAST_POLLS = 3
"""Polls from which a share is meaningful. Fewer: chance decides; more: slow runs get no answer."""

_MOST_TIME = 0.5
"""Half of the time: only one operator can have it. More: fewer operators are blamed."""


def long_tick(flow: Flow) -> Found:
    """Return why a tick has not ended: the operator that works now or, with workers in other processes, the busiest."""
    progress, seconds = flow.after.progress, flow.passed.total_seconds()
    facts: dict[str, Fact] = {"tick": progress.tick + 1, "seconds": round(seconds, 3)}
    name, share = _busiest({it: operator.busy for it, operator in progress.operators.items()})
    running, waits = (name, None) if progress.running is None else progress.running
    opened = progress.counts.get(running, {}).get("opened", 0) if running is not None else 0
    facts |= {"operator": running, "share": share if running == name else None}
    begins = f"a tick has run for {seconds:.1f} s and has not ended, so nothing can come out"
    if running is not None and (waits is not None or (progress.running is None and opened)):
        reason = waits or f"its breaker has opened {plural(opened, 'time')}"
        text = (
            f"{begins}: the run is paused by a breaker. Operator {quoted(running)} waits: {one_line(reason)}. It "
            "continues by itself once a call succeeds; look at the service that it calls, or pass then='fail' to its "
            "Breaker."
        )
        return Found("breaker", running, text, facts)
    if progress.running is not None:
        where = f"operator {quoted(progress.running.operator)} is at work"
    elif running is not None:
        where = f"operator {quoted(running)} took {share:.0%} of the time of earlier ticks"
    else:
        where = "a function, a source or a sink takes long"
    text = f"{begins}: {where}. If ticks are often that long, limit the records of a poll, or use more workers."
    return Found("long_tick", running, text, facts)


def backlog(flow: Flow) -> str:
    """Return a remark on waiting input and the operator that takes most of the time; empty if no input waits."""
    before, after = flow.before.progress.operators, flow.after.progress.operators
    for vertex in flow.program.vertices:
        name = vertex.node.name
        if not isinstance(vertex.node, SourceNode) or name not in before:
            continue
        polls = after[name].polls - before[name].polls
        full = after[name].saturated_polls - before[name].saturated_polls
        if polls >= _LEAST_POLLS and full >= _MOST_POLLS * polls:
            busiest, share = _busiest({it: now.busy - before[it].busy for it, now in after.items() if it in before})
            where = "" if busiest is None else f"; operator {quoted(busiest)} takes {share:.0%} of the time"
            asked = f"gave all that it was asked for in {full / polls:.0%} of its polls"
            return f" More input waits: source {quoted(name)} {asked}{where}."
    return ""


_MUCH = 1.5
"""How much more than the mean a worker reads that has uneven parts. Less: uneven keys are taken for uneven parts."""


def uneven_parts(flow: Flow) -> Found | None:
    """Return that one worker has more to read than the others, which wait for it; None if that is not so."""
    progress = flow.after.progress
    workers = [it for it in progress.workers if it.busy is not None and it.rate is not None]
    if len(workers) < len(progress.workers) or not workers:
        return None
    found = uneven([it.busy or 0.0 for it in workers], [it.lane for it in workers])
    if found is None:
        return None
    (first, *more), (idle, *_) = ([it for it in workers if it.lane == lane] for lane in found)
    names = ", ".join(str(it.worker) for it in (first, *more))
    busiest = {it.worker for it in (first, *more)}
    rate, mean = sum(it.rate or 0.0 for it in (first, *more)), sum(it.rate or 0.0 for it in workers) / len(workers)
    rows = [
        (it.rate or 0.0, name, part)
        for name, parts in progress.parts.items()
        for part, it in parts.items()
        if it.worker in busiest and not it.is_finished
    ]
    if not rows or rate < _MUCH * mean * len(busiest):
        return None
    rows.sort(key=lambda row: -row[0])
    parts = [f"{value_text(part)} of {quoted(name)} ({each:,.0f} records/s)" for each, name, part in rows]
    more_parts = f" and {len(parts) - _SHOWN_PARTS:,} more" if len(parts) > _SHOWN_PARTS else ""
    busy, idle_share = sum(it.busy or 0.0 for it in (first, *more)), idle.busy or 0.0
    text = (
        f"But parts are uneven: each tick waits for worker {names}, which is busy {min(1.0, busy):.0%} of the time, "
        f"and worker {idle.worker} only {idle_share:.0%}. It reads {', '.join(parts[:_SHOWN_PARTS])}{more_parts}. "
        "A part moves to an idle worker by itself where that helps and its state is small (move_parts=); otherwise "
        "call .key_distribute() before slow functions, or divide the input into more parts."
    )
    facts: dict[str, Fact] = {
        "worker": first.worker,
        "busy": round(busy, 3),
        "idle_worker": idle.worker,
        "idle": round(idle_share, 3),
        "parts": parts[:_SHOWN_PARTS],
    }
    return Found("uneven_parts", rows[0][1], text, facts)


def _busiest(busy: dict[str, float]) -> tuple[str | None, float]:
    """Return the operator that takes most of the time, and its share; None if none takes half of it."""
    whole = sum(busy.values())
    if whole <= 0:
        return None, 0.0
    name = max(busy, key=busy.__getitem__)
    share = busy[name] / whole
    return (name, round(share, 3)) if share >= _MOST_TIME else (None, 0.0)
