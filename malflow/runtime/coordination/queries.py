"""Answers the questions to the states of a run, between two ticks or with the next one."""

from __future__ import annotations

from collections.abc import Sequence

from malflow.engine.questions import MOST_KEYS, Outcome, addressed
from malflow.engine.sinks import RunSinks
from malflow.engine.ticks import Ticks
from malflow.errors import MalflowError
from malflow.runtime.host import Host
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.requests.queries import Query

__all__ = ["QueryService"]

_MOST_TRIES = 2
"""Attempts at the run that a question may end with: it may itself be the reason."""


class QueryService:
    """Puts the questions of other threads to the host.

    Args:
        host: answers at once, or with the next tick.
        ticks: the ticks of the run.
        requests: has the questions.
        sinks: the sinks in this process; they keep dead letters as well.
    """

    def __init__(self, host: Host, ticks: Ticks, requests: RunRequests, sinks: RunSinks) -> None:
        self._sinks = sinks
        self._host = host
        self._ticks = ticks
        self._requests = requests
        self._asked: list[Query] = []
        self._tick = 0

    def serve(self) -> None:
        """Answer questions with the states after the last tick, or let the next tick answer them.

        Those beyond `MOST_KEYS` keys wait for one more tick.
        """
        waiting = self._requests.queries
        size = sum(it.question.size for it in self._asked)
        while waiting and (not self._asked or size + waiting[0].question.size <= MOST_KEYS):
            query = waiting[0]
            size += query.question.size
            self._asked.append(query)  # before it leaves the queue, in case a signal arrives in between
            waiting.popleft()
            if query.answer.done():  # cancelled
                self._asked.pop()
                continue
            try:
                query.question = addressed(query.kept, query.question, self._host.parallelism)
            except MalflowError as error:
                self._asked.pop()
                query.give(error, self._ticks.number)
        if self._asked:  # with those that were asked before, since no tick has begun
            self._tick = self._ticks.number
            self._give(self._host.ask([it.question for it in self._asked]))

    def read(self) -> None:
        """Answer the questions that the tick was asked."""
        if self._asked:
            self._give(self._host.answers())

    def give_back(self) -> None:
        """Return the questions that were not answered to the queue. A restart can then answer them."""
        asked, self._asked = self._asked, []
        for query in reversed(asked):
            query.tries += 1
            if query.tries == _MOST_TRIES:
                query.fail(f"the run failed {_MOST_TRIES} times while it was asked", None)
            else:
                self._requests.queries.appendleft(query)

    def close(self, error: BaseException | None) -> None:
        """Fail the questions that were not answered.

        Args:
            error: the error that ended the run, if any.
        """
        asked, self._asked = self._asked, []
        for query in asked:
            query.fail("the run ended before", error)

    def _give(self, outcomes: Sequence[Outcome] | None) -> None:
        if outcomes is None:
            return
        for query, outcome in zip(self._asked, outcomes, strict=True):
            query.give(self._with_sinks(query, outcome), self._tick)
        self._asked = []

    def _with_sinks(self, query: Query, outcome: Outcome) -> Outcome:
        """Return the findings of the workers, with the dead letters of a sink that this process keeps."""
        if not query.question.letters or isinstance(outcome, MalflowError):
            return outcome
        return [*outcome, self._sinks.letters_of(query.kept.node.name)]
