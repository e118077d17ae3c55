"""Serves the requests of other threads about dead letters, each in one tick."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from malflow.engine.dead_letters import total
from malflow.engine.plan import Program
from malflow.engine.questions import kept_letters
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.errors import GraphError, QueryError
from malflow.failures import Replay, Replayed
from malflow.runtime.requests.answers import Answer

__all__ = ["ReplayRequest", "ReplayService", "checked_replay"]

_OVER = "the dead letters of operator '{}' were not touched: the run ended before"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request about the dead letters of an operator, and its answer: a `Replayed`."""

    replay: Replay
    answer: Answer[Replayed]

    def fail(self, cause: BaseException | None) -> None:
        """Set the error of a request that was not served.

        Args:
            cause: the error that ended the run, if any.
        """
        error = QueryError(_OVER.format(self.replay.operator), operator=self.replay.operator)
        error.__cause__ = cause
        with suppress(InvalidStateError):
            self.answer.set_exception(error)


class ReplayService:
    """Puts the requests into ticks, one for each operator and tick, and answers them.

    Args:
        queue: the requests.
        sinks: the sinks in this process; they keep letters of their own.
    """

    def __init__(self, queue: list[ReplayRequest], sinks: RunSinks) -> None:
        self._sinks = sinks
        self._queue = queue
        self._asked: list[ReplayRequest] = []
        self._here: dict[int, Replayed] = {}

    def serve_here(self) -> None:
        """Serve the requests with the letters that the sinks of this process keep; the workers' follow with a tick.

        Raises:
            OperatorError: if a record fails and the policy is to fail.
        """
        for request in self._queue:
            if id(request) not in self._here and not request.answer.done():
                self._here[id(request)] = self._sinks.replay(request.replay)

    def take(self) -> tuple[Replay, ...]:
        """Return the requests for the next tick; those that `serve_here` has not seen wait."""
        for request in self._queue.copy():
            if request.answer.done():  # cancelled
                self._queue.remove(request)
            elif id(request) not in self._here and self._sinks.letters_of(request.replay.operator):
                continue
            elif all(it.replay.operator != request.replay.operator for it in self._asked):
                self._asked.append(request)
                self._queue.remove(request)
        return tuple(it.replay for it in self._asked)

    def answer(self, reports: Sequence[Report]) -> None:
        """Answer the requests of a tick that was made."""
        asked, self._asked = self._asked, []
        for request in asked:
            name = request.replay.operator
            here = self._here.pop(id(request), Replayed())
            done = total([here, *(it.replayed[name] for it in reports if name in it.replayed)])
            with suppress(InvalidStateError):
                request.answer.set_result(done)

    def give_back(self) -> None:
        """Return the requests of a tick that failed to the queue. A restart can then serve them."""
        self._queue[:0] = self._asked
        self._asked = []
        self._here.clear()

    def close(self, error: BaseException | None) -> None:
        """Fail the requests of a tick that was not made.

        Args:
            error: the error that ended the run, if any.
        """
        asked, self._asked = self._asked, []
        for request in asked:
            request.fail(error)


def checked_replay(program: Program, operator: str, ids: Sequence[str] | None, *, discards: bool) -> Replay:
    """Return a request about the dead letters of an operator."""
    kept_letters(program, operator)
    if ids is not None and (isinstance(ids, str) or not all(isinstance(it, str) for it in ids)):
        raise GraphError(f"ids takes a list of the ids of dead letters, or None for all; got {ids!r:.200}")
    source = program.sources.get(operator)
    if source is not None and not discards and not hasattr(source.source.impl, "read_again"):
        raise GraphError(
            f"'{operator}' is a source without read_again(), which would read raw records again; discard its letters",
            operator=operator,
        )
    return Replay(operator, None if ids is None else tuple(ids), discards)
