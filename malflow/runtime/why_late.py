"""Why all records are late at a generator of epochs (watermarks)."""

from __future__ import annotations

from malflow.runtime.why_answer import Fact, Found
from malflow.runtime.why_flow import Flow
from malflow.runtime.why_stamps import ahead_of_clock, at_line, bound_of, misfit, newest_epoch, plus
from malflow.words import quoted, value_text

__all__ = ["all_late", "takes_late_only"]


def all_late(flow: Flow, generator: int) -> Found:
    """Return why a generator of epochs lets no record pass."""
    name, late = flow.name(generator), flow.count(generator, "late")
    by, epoch, bound = flow.after.progress.lateness.get(name), newest_epoch(flow, generator), bound_of(flow, generator)
    facts: dict[str, Fact] = {
        "generator": name,
        "late": late,
        "taken": flow.taken(generator),
        "lateness": None if by is None else value_text(by),
        "epoch": None if epoch is None else value_text(epoch),
        "bound": None if bound is None else value_text(bound),
        "line": flow.program.vertices[generator].location,
    }
    at_most = "" if by is None else f", by up to {value_text(by)}"
    newest = plus(epoch, bound)
    ahead = ahead_of_clock(flow, newest)
    start = f"all records are late at operator {quoted(name)}: {late:,} of {flow.taken(generator):,}{at_most}"
    if ahead is not None:
        text = (
            f"{start}. A record with the timestamp {value_text(newest)}, which is ahead of the clock by {ahead}, has "
            "advanced the time of the stream. Drop such records by .filter() before the epochs are generated, or "
            "correct their timestamps."
        )
        return Found("future_record", name, text, facts | {"newest": value_text(newest)})
    if (reason := misfit(newest, bound, by, at_line(flow, generator))) is not None:
        return Found("units", name, f"{start}. {reason}", facts)
    rule = f"its epoch is {value_text(epoch)}" if epoch is not None else "its epoch comes from upstream"
    if bound is not None:
        rule += f", {value_text(bound)} behind the newest timestamp{at_line(flow, generator)}"
    text = (
        f"{start}; {rule}. Use a larger bound, or generate epochs before streams or parts that are read at different "
        "speeds merge; if one record is far ahead of the others, drop it before. The late records are in the second "
        "stream that generate_epochs returns, and in .late of the result of event_time."
    )
    return Found("all_late", name, text, facts)


def takes_late_only(flow: Flow, generator: int) -> bool:
    """Whether all records are late now, or most of them after one from the future."""
    late, taken = flow.recent_count(generator, "late"), flow.recently_taken(generator)
    if late and late == taken:
        return True
    so_far = flow.count(generator, "late")
    newest = plus(newest_epoch(flow, generator), bound_of(flow, generator))
    return 2 * so_far > flow.taken(generator) and ahead_of_clock(flow, newest) is not None
