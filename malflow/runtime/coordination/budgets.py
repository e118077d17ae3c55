"""The events of failed records, and the budgets of operators: a run whose share of failures is too large ends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from malflow.checks import checked_duration
from malflow.engine.plan import Program, key_of_count
from malflow.engine.reports import Report
from malflow.errors import OperatorError
from malflow.events import BudgetExceeded, Event, LettersTaken
from malflow.failures import Budget, Failures
from malflow.operators.failures.guard import FAILED, LETTERS
from malflow.words import plural

__all__ = ["Budgets"]


class _Tick(NamedTuple):
    at: datetime
    taken: int
    failed: int
    failures: Sequence[Failures]


class Budgets:
    """Reports dead letters, and adds up the failures of each operator with a budget over its window.

    Args:
        program: the program.
        notify: passes an event to the listeners.
    """

    def __init__(self, program: Program, notify: Callable[[Event], object]) -> None:
        self._notify = notify
        self._letters = {
            vertex.node.name: key_of_count(vertex.node.name, LETTERS)
            for vertex in program.vertices
            if program.policy(vertex.node) is not None
        }
        policies = {vertex.node.name: program.policy(vertex.node) for vertex in program.vertices}
        self._budgets: Mapping[str, Budget] = {
            name: it.budget for name, it in policies.items() if it is not None and it.budget is not None
        }
        self._sources = program.sources.keys()
        self._ticks: Mapping[str, deque[_Tick]] = {name: deque() for name in self._budgets}

    def note(self, tick: int, now: datetime, reports: Sequence[Report]) -> None:
        """Add the reports of a tick.

        Args:
            tick: the number of the tick.
            now: its start.
            reports: the reports of all workers.

        Raises:
            OperatorError: if more records of an operator have failed than its budget allows.
        """
        for name, key in self._letters.items():
            if count := sum(it.counts.get(key, 0) for it in reports):
                self._notify(LettersTaken(tick, name, count))
        for name, budget in self._budgets.items():
            window = checked_duration("Budget", "window", budget.window)
            taken = sum(it.counts.get(name, 0) for it in reports)
            failed = sum(it.counts.get(key_of_count(name, FAILED), 0) for it in reports)
            if name in self._sources:
                taken += failed  # a source counts only the records that it emits
            ticks = self._ticks[name]
            if taken or failed:
                ticks.append(_Tick(now, taken, failed, [it.failures[name] for it in reports if name in it.failures]))
            while ticks and now - ticks[0].at >= window:
                ticks.popleft()
            whole, bad = sum(it.taken for it in ticks), sum(it.failed for it in ticks)
            if whole >= budget.least and bad > budget.share * whole:
                failures = [*chain.from_iterable(it.failures for it in ticks)]
                errors: Counter[str] = Counter()
                for found in failures:
                    errors.update(found.errors)
                self._notify(BudgetExceeded(tick, name, bad, whole, budget.share, dict(errors)))
                raise _spent(name, budget, whole, bad, errors, failures)


def _spent(
    name: str, budget: Budget, taken: int, failed: int, errors: Counter[str], failures: Sequence[Failures]
) -> OperatorError:
    commonest = ", ".join(f"{error} {plural(count, 'time')}" for error, count in errors.most_common(1))
    examples = [*dict.fromkeys(chain.from_iterable(it.examples for it in failures))][:3]
    return OperatorError(
        f"operator '{name}' failed at {failed:,} of the last {taken:,} records, more than the {budget.share:.1%} of "
        f"its budget: {commonest}; such as {'; '.join(examples)}; mend the function or the input and start again, from "
        "the last snapshot",
        operator=name,
    )
