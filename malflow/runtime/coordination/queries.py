"""Serves questions to the states of a run and requests about its dead letters, between two ticks or with the next."""

from __future__ import annotations

from collections.abc import Sequence

from malflow.engine.dead_letters import total
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.state_queries import MOST_KEYS, Outcome, Question, addressed
from malflow.engine.ticks import Ticks
from malflow.errors import MalflowError
from malflow.failures import Replay, Replayed
from malflow.runtime.host import Host
from malflow.runtime.requests.mailbox import Tray
from malflow.runtime.requests.queries import Query, ReplayRequest

__all__ = ["QueryService", "ReplayService"]


class QueryService:
    """Puts the questions of other threads to the host.

    Args:
        host: answers at once, or with the next tick.
        ticks: the ticks of the run.
        queries: the questions.
        sinks: the sinks in this process; they keep dead letters as well.
    """

    def __init__(self, host: Host, ticks: Ticks, queries: Tray[Query], sinks: RunSinks) -> None:
        self._sinks = sinks
        self._host = host
        self._ticks = ticks
        self._queries = queries
        self._questions: list[Question] = []  # of those that were taken, to their workers
        self._tick = 0

    def serve(self) -> None:
        """Answer questions with the states after the last tick, or let the next tick answer them.

        Those beyond `MOST_KEYS` keys wait for one more tick.
        """
        queries, size = self._queries, sum(it.size for it in self._questions)
        while queries.waiting and (not queries.taken or size + queries.waiting[0].question.size <= MOST_KEYS):
            query = queries.waiting[0]
            queries.take(query)
            if (question := self._addressed(query)) is None:
                queries.taken.remove(query)
                continue
            size += question.size
            self._questions.append(question)
        if queries.taken:  # with those that were asked before, since no tick has begun
            self._tick = self._ticks.number
            self._report(self._host.ask(self._questions))

    def read(self) -> None:
        """Answer the questions that the tick was asked."""
        if self._queries.taken:
            self._report(self._host.answers())

    def _addressed(self, query: Query) -> Question | None:
        """Return the question, to the workers that may have its keys; None if it has its answer."""
        if query.answer.done():  # cancelled
            return None
        try:
            return addressed(query.kept, query.question, self._host.parallelism)
        except MalflowError as error:
            query.find(error, self._ticks.number)
            return None

    def _report(self, outcomes: Sequence[Outcome] | None) -> None:
        if outcomes is None:
            return
        for query, outcome in zip(self._queries.taken, outcomes, strict=True):
            query.find(self._with_sinks(query, outcome), self._tick)
        self._queries.taken.clear()
        self._questions = []

    def _with_sinks(self, query: Query, outcome: Outcome) -> Outcome:
        """Return the findings of the workers, with the dead letters of a sink that this process keeps."""
        if not query.question.letters or isinstance(outcome, MalflowError):
            return outcome
        return [*outcome, self._sinks.letters_of(query.kept.node.name)]


class ReplayService:
    """Puts the requests into ticks, one for each operator and tick, and answers them.

    Args:
        requests: the requests.
        sinks: the sinks in this process; they keep letters of their own.
    """

    def __init__(self, requests: Tray[ReplayRequest], sinks: RunSinks) -> None:
        self._sinks = sinks
        self._requests = requests
        self._here: dict[int, Replayed] = {}

    def serve_here(self) -> None:
        """Serve the requests with the letters that the sinks of this process keep; the workers' follow with a tick.

        Raises:
            OperatorError: if a record fails and the policy is to fail.
        """
        for request in self._requests.waiting:
            if id(request) not in self._here and not request.answer.done():
                self._here[id(request)] = self._sinks.replay(request.replay)

    def take(self) -> tuple[Replay, ...]:
        """Return the requests for the next tick; those that `serve_here` has not seen wait."""
        requests = self._requests
        for request in requests.waiting.copy():
            name = request.replay.operator
            if request.answer.done():  # cancelled
                requests.waiting.remove(request)
            elif id(request) not in self._here and self._sinks.letters_of(name):
                continue
            elif all(it.replay.operator != name for it in requests.taken):
                requests.take(request)
        return tuple(it.replay for it in requests.taken)

    def answer(self, reports: Sequence[Report]) -> None:
        """Answer the requests of a tick that was made."""
        for request in self._requests.taken:
            name = request.replay.operator
            here = self._here.pop(id(request), Replayed())
            request.give(total([here, *(it.replayed[name] for it in reports if name in it.replayed)]))
        self._requests.taken.clear()
