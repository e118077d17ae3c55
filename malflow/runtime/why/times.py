"""Why an operator waits for an epoch (watermark), gets none, or finds all records late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from malflow.engine.parts.pool import on_demand_sources
from malflow.engine.plan import epochs_along
from malflow.message import NoKey
from malflow.nodes import EpochsNode, Port, SourceNode
from malflow.operators.contract import StatefulLogic, StatelessLogic, overridden
from malflow.operators.epochs.part_epochs import UNREAD
from malflow.operators.stateless import InspectFrontier
from malflow.operators.waiting import Waiting
from malflow.runtime.progress.time_table import TimeRow
from malflow.runtime.why.answer import Fact, Found
from malflow.runtime.why.flow import (
    Flow,
    ahead_of_clock,
    at_line,
    bound_of,
    is_in_thousands,
    is_past,
    minus,
    misfit,
    newest_epoch,
    per_second_of,
    plus,
    unit_of,
)
from malflow.runtime.why.sources import NEVER_ENDS, ago, silent_source
from malflow.words import plural, quoted, value_text

__all__ = [
    "all_late",
    "gets_epochs",
    "heeding",
    "heeds_epochs",
    "no_epochs",
    "one_input",
    "takes_late_only",
    "waiting",
]


def gets_epochs(flow: Flow, vertex: int) -> bool:
    """Whether a generator of epochs is upstream of a vertex."""
    return bool(epochs_along(flow.program)[vertex])


def heeds_epochs(flow: Flow, vertex: int) -> bool:
    """Whether the user's code of an operator is called with epochs."""
    made = getattr(flow.node(vertex), "logic", None)
    if not isinstance(made, partial):
        return False
    logic = made.keywords.get("logic")
    bases = StatefulLogic, StatelessLogic
    return made.func is InspectFrontier or (
        logic is not None and all(overridden(logic, "on_epoch", base) is not None for base in bases)
    )


def no_epochs(flow: Flow, vertex: int, held: str = "is called with epochs") -> Found:
    """Return why an operator gets no epochs.

    Args:
        flow: the way of records.
        vertex: the operator.
        held: the results that wait for them, as a sentence without its subject.
    """
    name, above = flow.name(vertex), set(flow.upstream(vertex))
    source = next((flow.name(at) for at in flow.upstream(vertex) if isinstance(flow.node(at), SourceNode)), "")
    facts: dict[str, Fact] = {"source": source, "taken": flow.taken(vertex)}
    others = [at for at in _generators(flow) if at not in above and above.intersection(flow.upstream(at))]
    if others:
        other = quoted(flow.name(others[0]))
        text = (
            f"operator {quoted(name)} {held}, but gets none: it reads the stream from before operator {other}, which "
            f"generates them. Call it on the stream that {other} returns: streams are values, and each method returns "
            "a new one."
        )
        return Found("reads_before", name, text, facts | {"generator": flow.name(others[0])})
    text = (
        f"operator {quoted(name)} {held}, but gets none: nothing generates them after source {quoted(source)}. Call "
        ".event_time() or .generate_epochs() on the stream before it; without them, it gets one epoch, at the end of "
        "the input."
    )
    return Found("no_epochs", name, text, facts)


def _generators(flow: Flow) -> Iterable[int]:
    return (at for at in range(len(flow.program.vertices)) if isinstance(flow.node(at), EpochsNode))


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


_LONG_AGO = datetime.min.replace(tzinfo=UTC)

_SOON = timedelta(minutes=1)
"""A result that is due within this time by the clock does not count as missing."""

Trace = Callable[[int], Found]
"""Returns why a vertex has given nothing of late."""


def waiting(flow: Flow, vertex: int, row: TimeRow, trace: Trace) -> Found:
    """Return why an operator with open results waits.

    Args:
        flow: the way of records.
        vertex: the operator.
        row: its row in the table.
        trace: finds why an operator upstream gets nothing.
    """
    generator = None if row.generator is None else _generator(flow, vertex, row.generator)
    if generator is None:
        return no_epochs(flow, vertex, f"has {_open(row)} until epochs release them")
    return _standing(flow, vertex, row, generator, trace) or _next(flow, vertex, row)


def heeding(flow: Flow, vertex: int, trace: Trace) -> Found | None:
    """Return why an operator whose functions are called with epochs gets none; None if time advances."""
    generator = next((at for at in flow.upstream(vertex) if _is_generator(flow, at)), None)
    if generator is None:
        return no_epochs(flow, vertex)
    name, node = flow.name(generator), flow.node(generator)
    source = next((flow.name(at) for at in flow.upstream(generator) if isinstance(flow.node(at), SourceNode)), None)
    heard = flow.after.table.heard.get(str(source), {})
    has_parts = isinstance(node, EpochsNode) and node.source is not None
    part = min(heard, key=lambda it: heard[it] or _LONG_AGO) if has_parts and heard else None
    epoch = flow.after.table.epochs.get(name)
    row = TimeRow(flow.name(vertex), 0, "on_epoch calls", 1, epoch, None, name, source, part, epoch)
    return _standing(flow, vertex, row, generator, trace)


def _standing(flow: Flow, vertex: int, row: TimeRow, generator: int, trace: Trace) -> Found | None:
    """Return why time stands still at an operator; None if it advances."""
    if takes_late_only(flow, generator):
        return all_late(flow, generator)
    return _wrong_bound(flow, vertex, row, generator) or _held_back(flow, vertex, row, generator, trace)


# The generator of epochs


def _generator(flow: Flow, vertex: int, name: str) -> int | None:
    """Return the generator of epochs upstream of a vertex."""
    return next((at for at in flow.upstream(vertex) if _is_generator(flow, at) and flow.name(at) == name), None)


def _is_generator(flow: Flow, vertex: int) -> bool:
    return isinstance(flow.node(vertex), EpochsNode)


# Bounds and units


def _wrong_bound(flow: Flow, vertex: int, row: TimeRow, generator: int) -> Found | None:
    """Return a fault of the bound for records out of order, if an operator has never given anything."""
    bound = bound_of(flow, generator)
    newest, missing = plus(row.epoch, bound), minus(row.until, row.epoch)
    if bound is None or newest is None or missing is None or flow.output(vertex):
        return None
    name, line = flow.name(generator), at_line(flow, generator)
    facts: dict[str, Fact] = {
        "generator": row.generator,
        "bound": value_text(bound),
        "newest": value_text(newest),
        "until": value_text(row.until),
        "open": row.open,
        "line": flow.program.vertices[generator].location,
    }
    held = f"operator {quoted(row.operator)} has {_open(row)} and waits for {value_text(row.until)}"
    if isinstance(newest, datetime) and (newest.year, newest.month) == (1970, 1):
        text = (
            f"{held}; the newest timestamp is {value_text(newest)}, in January 1970. Seconds were read as "
            "milliseconds: divide by another number where the timestamps are made."
        )
        return Found("units", name, text, facts)
    is_over = is_past(newest, row.until)
    if is_in_thousands(bound) and per_second_of(newest) and is_past(minus(newest, bound / 1000), row.until):
        text = (
            f"{held}; the newest timestamp, {value_text(newest)}, is past that, but its bound is "
            f"{value_text(bound)}{line}. The timestamps fit {unit_of(per_second_of(newest))}; if the bound does not, "
            f"write {bound // 1000}."
        )
        return Found("units", name, text, facts | {"bound_if_thousandth": bound // 1000})
    if not is_over or _comes_soon(flow, vertex, row, missing):
        return None
    text = (
        f"{held}; the newest timestamp, {value_text(newest)}, is past that, but operator {quoted(name)} issues epochs "
        f"that are {value_text(bound)} earlier{line}. A record at {value_text(plus(row.until, bound))} or later is "
        "needed, and the input may not cover that much time: pass a smaller out_of_orderness= or bound."
    )
    return Found("bound", name, text, facts | {"needed": value_text(plus(row.until, bound))})


def _comes_soon(flow: Flow, vertex: int, row: TimeRow, missing: Any) -> bool:
    """Whether time advances fast enough for a result within a minute."""
    earlier = flow.row_before(vertex)
    moved = None if earlier is None or earlier.generator != row.generator else minus(row.epoch, earlier.epoch)
    try:
        return moved is not None and moved > moved - moved and bool(flow.passed * (missing / moved) <= _SOON)
    except Exception:  # noqa: BLE001 - differences of the user's types may have no ratio
        return False


# What holds time back


def _held_back(flow: Flow, vertex: int, row: TimeRow, generator: int, trace: Trace) -> Found | None:
    """Return the input that holds the time of an operator back; None if time advances."""
    unfinished = flow.after.progress.unfinished
    sources = [at for at in flow.upstream(generator) if isinstance(flow.node(at), SourceNode)]
    waited = [at for at in sources if flow.name(at) in ((row.source,) if row.source else unfinished)]
    if not waited:
        return None
    source = waited[0]
    is_silent = not flow.recently_given(Port(source))
    found = _unread_part(flow, row) or _silent_part(flow, row, is_silent=is_silent)
    if found is not None:
        return found
    if is_silent:
        return _of_join(flow, vertex, generator, silent_source(flow, source))
    if not flow.recently_taken(generator):
        return _of_join(flow, vertex, generator, trace(generator))
    found = _dropped_part(flow, vertex, row, generator)
    if found is not None or row.epoch is not None:
        return found
    text = (
        f"operator {quoted(row.operator)} has {_open(row)}, but gets no epochs: the generator of operator "
        f"{quoted(str(row.generator))}{at_line(flow, generator)} has returned none for "
        f"{plural(flow.taken(generator), 'record')}. It must return a time, such as "
        "limit_out_of_orderness(bound) does."
    )
    return Found("no_epochs", flow.name(generator), text, {"generator": row.generator, "taken": flow.taken(generator)})


def _unread_part(flow: Flow, row: TimeRow) -> Found | None:
    """Return the source with parts that wait for a worker, where one of them holds the stream back."""
    if row.source not in on_demand_sources(flow.program):
        return None
    if row.part is not UNREAD and flow.after.table.heard.get(str(row.source), {}).get(row.part) is not None:
        return None
    text = (
        f"operator {quoted(row.operator)} has {_open(row)}{_until(row)}: parts of source {quoted(str(row.source))} "
        "have not been begun, as workers read them one after the other, and hold the time back until then. "
        "part_assignment='static' reads all of them side by side."
    )
    return Found("waits", row.source, text, {"source": row.source, "generator": row.generator})


def _silent_part(flow: Flow, row: TimeRow, *, is_silent: bool) -> Found | None:
    """Return the part that holds its stream back while others are read."""
    heard = flow.after.table.heard.get(str(row.source), {})
    others = [at for part, at in heard.items() if part != row.part and at is not None]
    if row.part is None or row.part is NoKey or not others or row.part not in heard:
        return None
    last, newest = heard[row.part], max(others)
    least = timedelta(seconds=2) if is_silent else flow.passed / 2
    if last is not None and newest - last < least:
        return None
    silence = "has emitted nothing since the start" if last is None else f"gave its last record {ago(flow, last)} ago"
    time = "no epoch yet" if row.epoch is None else f"its epoch is {value_text(row.epoch)}"
    rest = len(heard) - 1
    cure = f"To continue without it, pass idle_after= to operator {quoted(str(row.generator))}"
    if row.advances:
        cure = f"Time continues without it after the idle_after= of operator {quoted(str(row.generator))}"
    text = (
        f"operator {quoted(row.operator)} has {_open(row)}{_until(row)}: part {value_text(row.part)} of source "
        f"{quoted(str(row.source))} {silence} ({time}), and holds the stream back; "
        f"{'the other part was' if rest == 1 else f'of the other {rest:,} parts, one was'} read "
        f"{ago(flow, newest)} ago. {cure}."
    )
    facts: dict[str, Fact] = {
        "source": row.source,
        "part": value_text(row.part),
        "silent_for": ago(flow, last),
        "other_parts": rest,
        "generator": row.generator,
        "epoch": None if row.epoch is None else value_text(row.epoch),
        "until": None if row.until is None else value_text(row.until),
    }
    return Found("silent_part", row.source, text, facts)


def _dropped_part(flow: Flow, vertex: int, row: TimeRow, generator: int) -> Found | None:
    """Return the part that is read, but whose records do not reach the generator, since an operator drops them."""
    earlier = flow.row_before(vertex)
    stands = earlier is not None and (earlier.part, earlier.epoch) == (row.part, row.epoch)
    if row.part is None or row.part is NoKey or not stands:
        return None
    between = [at for at in flow.upstream(generator) if at != generator and flow.program.vertices[at].inputs]
    dropping = [flow.name(at) for at in between if flow.recent_output(at) < flow.recently_taken(at)]
    if not dropping:
        return None
    time = "no epoch yet" if row.epoch is None else f"its epoch stays at {value_text(row.epoch)}"
    text = (
        f"operator {quoted(row.operator)} has {_open(row)}{_until(row)}: part {value_text(row.part)} of source "
        f"{quoted(str(row.source))} is read, but holds the stream back ({time}), since its records do not reach "
        f"operator {quoted(str(row.generator))}: operator {quoted(dropping[0])} drops some. Generate epochs before it."
    )
    facts: dict[str, Fact] = {"source": row.source, "part": value_text(row.part), "generator": row.generator}
    return Found("silent_part", dropping[0], text, facts | {"dropped_by": dropping[0]})


def _of_join(flow: Flow, vertex: int, generator: int, found: Found) -> Found:
    """Return the fault of one input of a join or a union, if others have records."""
    if found.cause not in ("silent_source", "unfinished_source", "ended"):
        return found
    for at in flow.upstream(vertex):
        inputs = flow.program.vertices[at].inputs
        silent = [port for port in inputs if flow.is_upstream(generator, port.vertex)]
        others = [port for port in inputs if port not in silent and flow.given(port)]
        if silent and others and (any(map(flow.recently_given, others)) or not any(map(flow.given, silent))):
            return one_input(flow, at, silent[0], found)
    return found


def one_input(flow: Flow, vertex: int, silent: Port, found: Found) -> Found:
    """Return that one input of an operator gets nothing, for a reason upstream that was found."""
    name, inputs = flow.name(vertex), flow.program.vertices[vertex].inputs
    edge = inputs.index(silent)
    others = sum(flow.given(port) for port in inputs if port != silent)
    text = (
        f"operator {quoted(name)} waits for its input {edge + 1}, from operator {quoted(flow.name(silent.vertex))}, "
        f"while {plural(others, 'record')} came from elsewhere: {found.text}"
    )
    facts = {**found.facts, "join": name, "input": edge + 1, "other_records": others}
    return Found("silent_input", found.stops_at, text, facts)


# The next result


def _next(flow: Flow, vertex: int, row: TimeRow) -> Found:
    """Return when the next result is due."""
    missing = minus(row.until, row.frontier)
    facts: dict[str, Fact] = {
        "open": row.open,
        "what": row.what,
        "time": None if row.frontier is None else value_text(row.frontier),
        "until": None if row.until is None else value_text(row.until),
        "distance": None if missing is None else value_text(missing),
        "generator": row.generator,
    }
    time = "it has had no epoch yet" if row.frontier is None else f"its time is {value_text(row.frontier)}"
    far = "" if missing is None else f", {value_text(missing)} before the next result"
    given = f" It has given {plural(flow.output(vertex), 'record')} so far." if flow.output(vertex) else ""
    held_by = (
        f" Source {quoted(row.source)} determines its time."
        if row.source
        else f" {NEVER_ENDS[0].upper()}{NEVER_ENDS[1:]}."
    )
    text = f"operator {quoted(row.operator)} has {_open(row)}{_until(row)}; {time}{far}.{given}{held_by}"
    return Found("waits", flow.name(vertex), text, facts)


def _open(row: TimeRow) -> str:
    return f"{Waiting(row.what, row.open)} open"


def _until(row: TimeRow) -> str:
    return "" if row.until is None else f" and waits for {value_text(row.until)}"
