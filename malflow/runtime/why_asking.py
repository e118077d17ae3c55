"""Asks a run why nothing comes out: two readings of it, some ticks apart."""

from __future__ import annotations

import time
from collections.abc import Callable

from malflow.engine.plan import Program
from malflow.runtime.progress import Progress
from malflow.runtime.requests import RunRequests
from malflow.runtime.why import Reading, check_operator, flows, why
from malflow.runtime.why_answer import Why

__all__ = ["ask_why"]

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
