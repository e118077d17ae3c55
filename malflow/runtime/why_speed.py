"""Where a run spends its time: in a long tick, or while its input waits."""

from __future__ import annotations

from malflow.nodes import SourceNode
from malflow.runtime.why_answer import Fact, Found
from malflow.runtime.why_flow import Flow
from malflow.words import one_line, plural, quoted

__all__ = ["backlog", "long_tick"]

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


def _busiest(busy: dict[str, float]) -> tuple[str | None, float]:
    """Return the operator that takes most of the time, and its share; None if none takes half of it."""
    whole = sum(busy.values())
    if whole <= 0:
        return None, 0.0
    name = max(busy, key=busy.__getitem__)
    share = busy[name] / whole
    return (name, round(share, 3)) if share >= _MOST_TIME else (None, 0.0)
