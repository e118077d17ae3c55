"""Why nothing comes out of an operator: the first cause that applies, from two readings of a run.

The search begins at the operator. If it has given records between the readings, they flow. If it has received records
and given none, the cause is its own, or that of its time: see `malflow.runtime.why.times`. If it has received none, the
search continues at its inputs, up to the operator where records stop, or the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from malflow.diagnostics import describe, location
from malflow.engine.plan import Program
from malflow.errors import GraphError
from malflow.nodes import EpochsNode, Port, SinkNode, SourceNode, StatefulNode
from malflow.operators.stateless import Filter, FilterMap
from malflow.runtime.progress.progress import Progress, SinkProgress
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.why.answer import Cause, Fact, Found, Why
from malflow.runtime.why.flow import Flow, Reading
from malflow.runtime.why.sources import backlog, long_tick, silent_source, uneven_parts
from malflow.runtime.why.times import all_late, gets_epochs, heeding, heeds_epochs, no_epochs, one_input, waiting
from malflow.states.kinds import StateKind
from malflow.words import did_you_mean, one_line, plural, quoted, short_repr

__all__ = [
    "Reading",
    "ask_why",
    "check_operator",
    "flows",
    "why",
]

_SOON = 2.0
"""Seconds to the next snapshot that nobody needs to be told of."""

_OFTEN_MEANT: frozenset[Cause] = frozenset({"filter", "pattern", "no_output"})
"""Causes that are no fault of a run whose other sinks get records, such as one with a sink for alarms."""


def check_operator(program: Program, operator: str | None) -> None:
    """Check that a program has an operator."""
    names = [vertex.node.name for vertex in program.vertices]
    if operator is None or operator in names:
        return
    hint = did_you_mean(operator, names)
    raise GraphError(f"the dataflow has no operator {short_repr(operator)}{hint}", location=location())


def flows(program: Program, before: Reading, after: Reading, operator: str | None) -> bool:
    """Whether records have come out of an operator, or of all sinks, between two readings."""
    flow = Flow(program, before, after)
    return all(map(flow.recent_output, _asked(flow, operator)))


def why(program: Program, before: Reading, after: Reading, operator: str | None = None) -> Why:
    """Return why nothing comes out of an operator, or of the run.

    Args:
        program: the program.
        before: a reading of the run.
        after: a later one, with an explanation of the run's time.
        operator: the name of an operator of the program; None to report the sink with a fault.
    """
    flow = Flow(program, before, after)
    found = _of_run(flow)
    if found is None:
        answers = [_Search(flow, vertex).found() for vertex in _asked(flow, operator)]
        found = _worst(answers) if operator is None else answers[0]
    failure = after.progress.snapshot_failure
    note = (
        f" The last snapshot failed: {one_line(failure.error)}."
        if failure and one_line(failure.error) not in found.text
        else ""
    )
    return Why(operator, found.cause, found.text + note, found.stops_at, found.facts)


def _asked(flow: Flow, operator: str | None) -> list[int]:
    if operator is None:
        return flow.leaves()
    vertex = flow.vertex(operator)
    return [] if vertex is None else [vertex]


def _worst(answers: list[Found]) -> Found:
    """Return the answer for the whole run: the first fault, or that records flow."""
    if not answers:
        return Found("no_output", None, "the dataflow has no operators.", {})
    flowing = [it for it in answers if it.cause in ("flows", "uneven_parts")]
    faults = [it for it in answers if it.is_fault and not (flowing and it.cause in _OFTEN_MEANT)]
    return [*faults, *flowing, *answers][0]


def _of_run(flow: Flow) -> Found | None:
    """Return the cause that lies in the run as a whole, if any."""
    progress, before = flow.after.progress, flow.before.progress
    match progress.status:
        case "starting" | "restarting" | "failed":
            text = {
                "starting": "the run is starting: its workers open, or its state is restored.",
                "restarting": f"the run restarts from its last snapshot; {progress.restarts:,} restarts so far.",
                "failed": "the run has failed; await_termination() raises its error.",
            }[progress.status]
            return Found(progress.status, None, text, {"restarts": progress.restarts})
        case "blocked" if before.status == "blocked":
            return _blocked(flow)
        case _:
            pass
    if not flow.after.is_answered and not flow.has_ended:
        return long_tick(flow)
    return None


def _blocked(flow: Flow) -> Found:
    progress = flow.after.progress
    full = [(name, it) for name, it in progress.sinks.items() if it.uncommitted >= it.limit]
    name, sink = full[0] if full else ("", SinkProgress(0, 0, 0, 0))
    text = (
        f"the run has stopped reading: sink {quoted(name)} has {plural(sink.uncommitted, 'transaction')} that no "
        f"durable snapshot has committed, and its limit (max_pending) is {sink.limit:,}. {_failure_of(flow)}"
    )
    return Found("blocked", name, text, _sink_facts(flow, sink))


def _failure_of(flow: Flow) -> str:
    failure = flow.after.progress.snapshot_failure
    if failure is None:
        return "Snapshots are written too slowly: use a faster store, or a longer interval."
    return f"The last snapshot failed: {one_line(failure.error)}. The run continues once a snapshot can be written."


def _sink_facts(flow: Flow, sink: SinkProgress) -> dict[str, Fact]:
    failure = flow.after.progress.snapshot_failure
    return {
        "waiting": sink.waiting,
        "kept": sink.kept,
        "uncommitted": sink.uncommitted,
        "limit": sink.limit,
        "interval": flow.after.progress.snapshot_interval,
        "failure": None if failure is None else one_line(failure.error),
    }


class _Search:
    """The search for one operator.

    Args:
        flow: the way of records.
        asked: the operator.
    """

    def __init__(self, flow: Flow, asked: int) -> None:
        self._flow = flow
        self._asked = asked

    def found(self) -> Found:
        """Return the first cause that applies."""
        flow, asked = self._flow, self._asked
        found = self._sink()
        if found is not None:
            return found
        count, name = flow.output(asked), flow.name(asked)
        recent = flow.recent_output(asked)
        facts: dict[str, Fact] = {"records": count, "recent": recent, "seconds": round(flow.passed.total_seconds(), 3)}
        if flow.has_ended and count:
            text = f"the run has ended; operator {quoted(name)} has given {plural(count, 'record')}."
            return Found("ended", None, text, facts)
        if recent:
            text = (
                f"records flow: operator {quoted(name)} has given {recent:,} in {flow.passed.total_seconds():.1f} s, "
                f"{count:,} in all."
            )
            text += self._note() + backlog(flow)
            found = uneven_parts(flow)
            if found is None:
                return Found("flows", None, text, facts)
            return found._replace(text=f"{text} {found.text}", facts={**facts, **found.facts})
        if flow.taken(asked) and (flow.recently_taken(asked) or not count):
            return self._own(asked)
        return self._without_input(asked)

    def _note(self) -> str:
        """Return a remark on an operator that gives records but gets no epochs."""
        flow, asked = self._flow, self._asked
        if not heeds_epochs(flow, asked) or gets_epochs(flow, asked):
            return ""
        return f" But {no_epochs(flow, asked).text}"

    # Upstream

    def _without_input(self, vertex: int) -> Found:
        """Return why a vertex has received nothing of late."""
        flow, row = self._flow, self._flow.row(vertex)
        node = flow.node(vertex)
        if isinstance(node, SourceNode):
            return silent_source(flow, vertex)
        if row is not None:
            return waiting(flow, vertex, row, self._without_input)
        inputs = flow.program.vertices[vertex].inputs
        if isinstance(node, StatefulNode) and len(inputs) > 1:
            return self._one_input(vertex) or self._through(inputs[0])
        reasons = [self._through(port) for port in inputs]
        faults = [it for it in reasons if it.is_fault]
        return [*faults, *reasons][0]

    def _through(self, port: Port) -> Found:
        """Return why nothing has come through a port of late."""
        flow, vertex = self._flow, port.vertex
        taken, given = flow.taken(vertex), flow.given(port)
        is_recent = bool(flow.recently_taken(vertex))
        if not taken or (given and not is_recent):
            return self._without_input(vertex)
        if port.output and flow.recent_output(vertex):
            return self._other_output(port)
        if port.output or (flow.output(vertex) and not isinstance(flow.node(vertex), EpochsNode)):
            others = flow.output(vertex) - given
            if not given and (others or port.output):
                return self._other_output(port)
        return self._own(vertex)

    def _other_output(self, port: Port) -> Found:
        flow, name = self._flow, self._flow.name(port.vertex)
        taken, given = flow.taken(port.vertex), flow.output(port.vertex)
        none = f"none of the last {flow.recent_output(port.vertex):,}" if flow.given(port) else "none of them"
        late = " (the late records)" if isinstance(flow.node(port.vertex), EpochsNode) else ""
        text = (
            f"operator {quoted(name)} has received {plural(taken, 'record')} and given {given:,}, {none} through "
            f"its output {port.output}{late}, which is read here."
        )
        return Found("other_output", name, text, {"taken": taken, "given": given, "output": port.output})

    # One operator

    def _own(self, vertex: int) -> Found:
        """Return why an operator that has received records has given none."""
        flow, node, row = self._flow, self._flow.node(vertex), self._flow.row(vertex)
        found = self._letters(vertex)
        if found is not None:
            return found
        if isinstance(node, EpochsNode):
            return all_late(flow, vertex)
        if isinstance(node, StatefulNode) and node.kind is StateKind.MATCH:
            return self._pattern(vertex)
        if isinstance(node, StatefulNode) and len(flow.program.vertices[vertex].inputs) > 1:
            found = self._one_input(vertex)
            if found is not None:
                return found
        if row is not None:
            return waiting(flow, vertex, row, self._without_input)
        found = heeding(flow, vertex, self._without_input) if heeds_epochs(flow, vertex) else None
        return found or self._dropped(vertex)

    def _letters(self, vertex: int) -> Found | None:
        flow, name, taken = self._flow, self._flow.name(vertex), self._flow.taken(vertex)
        failed, recent = flow.count(vertex, "failed"), flow.recent_count(vertex, "failed")
        if not failed or (failed < taken and not (recent and recent >= flow.recently_taken(vertex))):
            return None
        skipped, letters = flow.count(vertex, "skipped"), flow.count(vertex, "letters")
        text = (
            f"the function of operator {quoted(name)}{self._callback(vertex)} has failed at {failed:,} of "
            f"{plural(taken, 'record')}, and on_error= lets the run continue: {skipped:,} were skipped, {letters:,} "
            f"became dead letters.{self._commonest(vertex)} Look at the errors in the letters; pass on_error='fail' to "
            "end the run at the first one, with its record."
        )
        facts: dict[str, Fact] = {"taken": taken, "failed": failed, "skipped": skipped, "letters": letters}
        return Found("letters", name, text, facts)

    def _commonest(self, vertex: int) -> str:
        """Return the commonest error of an operator as a sentence; empty without a known one."""
        operator = self._flow.after.progress.operators.get(self._flow.name(vertex))
        if operator is None or not operator.errors:
            return ""
        kind = max(operator.errors, key=operator.errors.__getitem__)
        example = "" if operator.example is None else f"; the last one was {one_line(operator.example)}"
        return f" The commonest error is {one_line(kind)}, {plural(operator.errors[kind], 'time')}{example}."

    def _pattern(self, vertex: int) -> Found:
        flow, name, row = self._flow, self._flow.name(vertex), self._flow.row(vertex)
        counts = flow.after.progress.patterns.get(name, {})
        taken, starts = flow.taken(vertex), counts.get("starts", 0)
        if row is not None and row.what == "records" and not starts and row.open >= taken:
            return waiting(flow, vertex, row, self._without_input)
        if not starts:
            outcome = "no event has started a match: its first step accepts none of them"
        else:
            ways = {
                "timeouts": "timed out",
                "broken": "were broken by an event",
                "dropped": "were dropped at the limit",
            }
            parts = [f"{counts[it]:,} {words}" for it, words in ways.items() if counts.get(it)]
            parts += [f"{counts.get('partials', 0):,} are open"]
            outcome = f"{plural(starts, 'match')} were started, of which {', '.join(parts)}"
        done = counts.get("matches", 0)
        text = (
            f"no match of pattern {quoted(name)} was completed{' of late' if done else ''}: of "
            f"{plural(taken, 'event')}, {outcome}. Compare its steps, its order of time and within= with the events; "
            "Pattern.explain(events) shows for a list of them where a match ends."
        )
        return Found("pattern", name, text, {"taken": taken, **counts})

    def _one_input(self, vertex: int) -> Found | None:
        """Return the input of a join that has had no record, or has none of late while others do."""
        flow, inputs = self._flow, self._flow.program.vertices[vertex].inputs
        silent = [port for port in inputs if not flow.given(port)]
        if not silent or len(silent) == len(inputs):
            silent = [port for port in inputs if not flow.recently_given(port)]
            if not silent or len(silent) == len(inputs):
                return None
        found = self._through(silent[0])
        if found.cause in ("silent_source", "unfinished_source", "ended"):
            return one_input(flow, vertex, silent[0], found)
        return found

    def _dropped(self, vertex: int) -> Found:
        flow, name, node = self._flow, self._flow.name(vertex), self._flow.node(vertex)
        taken, given = flow.taken(vertex), flow.output(vertex)
        facts: dict[str, Fact] = {"taken": taken, "given": given, "recently_taken": flow.recently_taken(vertex)}
        if isinstance(node, StatefulNode) and node.kind is StateKind.COUNT_WINDOW:
            text = (
                f"operator {quoted(name)}{self._callback(vertex)} has received {plural(taken, 'record')}, and no "
                f"window of a key has got full{' of late' if given else ''} ({node.definition}): it waits for more "
                "records."
            )
            return Found("waits", name, text, facts)
        passed = f"passed {given:,} of {plural(taken, 'record')}" if given else f"dropped all {plural(taken, 'record')}"
        if _kind_of(node) in (Filter, FilterMap):
            late = f", none of the last {flow.recently_taken(vertex):,}" if given else ""
            text = (
                f"filter {quoted(name)}{self._callback(vertex)} has {passed}{late}. Check its condition against a "
                "record, such as by .inspect() before it."
            )
            return Found("filter", name, text, facts)
        of_join = (
            " Both inputs have records: check that their keys are equal, and their times near enough."
            if len(flow.program.vertices[vertex].inputs) > 1
            else " Look at its input, such as by .inspect() before it."
        )
        text = (
            f"operator {quoted(name)}{self._callback(vertex)} has received {plural(taken, 'record')} and given "
            f"{given:,}{', none of late' if given else ''}.{of_join}"
        )
        return Found("no_output", name, text, facts)

    def _callback(self, vertex: int) -> str:
        """Return the user's function of an operator, or the line that adds it."""
        logic = getattr(self._flow.node(vertex), "logic", None)
        callback = logic.keywords.get("callback") if isinstance(logic, partial) else None
        where = self._flow.program.vertices[vertex].location
        if callback is not None:
            with suppress(Exception):  # a broken __getattr__ of the user's object
                return f" by {describe(callback)}"
        return f" ({where})" if where else ""

    # Sinks that commit with snapshots

    def _sink(self) -> Found | None:
        """Return why the records of a sink that commits with snapshots can't be read yet."""
        flow, name, progress = self._flow, self._flow.name(self._asked), self._flow.after.progress
        sink = progress.sinks.get(name)
        if sink is None or not isinstance(flow.node(self._asked), SinkNode) or not (sink.waiting or sink.uncommitted):
            return None
        facts = _sink_facts(flow, sink)
        held = f"sink {quoted(name)} holds {plural(sink.waiting, 'record')}, which can be read after the next snapshot"
        if progress.snapshot_failure is not None:
            return Found("snapshots_fail", name, f"{held}. {_failure_of(flow)}", facts)
        if flow.has_ended:
            return None
        interval = progress.snapshot_interval
        if interval is None:
            text = f"{held}, but the run takes none by itself: pass snapshots=timedelta(...), or call snapshot()."
            return Found("sink_waits", name, text, facts)
        began = progress.started or flow.before.progress.at
        left = interval - (progress.at - began).total_seconds()
        if sink.kept or left < _SOON:
            return None
        text = f"{held}, in {left:.0f} s: the interval is {interval:g} s (snapshots=)."
        return Found("sink_waits", name, text, facts)


def _kind_of(node: Any) -> Any:
    """Return the class of an operator; None if its node makes it in another way."""
    logic = getattr(node, "logic", None)
    return logic.func if isinstance(logic, partial) else logic


_TICKS = 3
"""Ticks between two readings. Fewer: one odd tick decides the answer; more: slow runs reach the time limit instead."""

_SECONDS = 0.5
"""The usual time between two readings. Less: rates are less certain; more: the answer takes longer."""

_MOST_SECONDS = 2.0
"""The readings are half a second and three ticks apart, at most two seconds; less if records flow."""

_TURN = 0.01
"""Seconds between two looks at the progress. Less: more processor time; more: the answer comes later."""


def ask_why(requests: RunRequests, read: Callable[[], Progress], operator: str | None, timeout: float) -> Why:
    """Return why nothing comes out of an operator, or of the run.

    Args:
        requests: the requests to the run.
        read: returns the progress of the run.
        operator: the name of the operator; None for the whole run.
        timeout: the maximum number of seconds to wait for the end of a tick.

    Raises:
        GraphError: if there is no such operator, or user code of the dataflow asks.
    """
    requests.own.check_may_wait("why() waits for the end of the tick", "call it from another thread")
    program = requests.program
    if program is None:
        return Why(operator, "starting", "nothing has run yet: call start(), or execute() in another thread.")
    check_operator(program, operator)
    began = time.monotonic()
    is_answered = _explain(requests, timeout)
    progress = read()
    before = Reading(progress, requests.time_table(progress))
    if is_answered and not requests.is_over:
        left = timeout - (time.monotonic() - began)
        _wait(lambda: requests.is_over, lambda: Reading(read(), before.table), program, before, operator, left)
        is_answered = _explain(requests, max(_SECONDS, timeout - (time.monotonic() - began)))
    progress = read()
    return why(program, before, Reading(progress, requests.time_table(progress), is_answered), operator)


def _wait(
    is_over: Callable[[], bool],
    read: Callable[[], Reading],
    program: Program,
    before: Reading,
    operator: str | None,
    timeout: float,
) -> None:
    """Wait until a second reading tells something new."""
    began = time.monotonic()
    while not is_over() and (passed := time.monotonic() - began) < min(timeout, _MOST_SECONDS):
        now = read()
        is_late = passed >= _SECONDS
        if is_late and now.progress.status == "blocked":
            return
        ticks = now.progress.tick - before.progress.tick
        if ticks >= _TICKS and (is_late or flows(program, before, now, operator)):
            return
        time.sleep(_TURN)


def _explain(requests: RunRequests, timeout: float) -> bool:
    """Request an explanation of the run's time, and wait; return whether the tick ended in time."""
    try:
        requests.ask_explanation(timeout)
    except TimeoutError:
        return False
    return True
