"""Questions of other threads to the states of a run, and requests about its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from malflow.engine.plan import Program
from malflow.engine.state_queries import Found, KeptState, Outcome, Question, kept_letters
from malflow.errors import GraphError, MalflowError, QueryError
from malflow.failures import Replay, Replayed
from malflow.runtime.requests.answers import Answer, OwnThreads, Request

__all__ = ["Query", "ReplayRequest", "StateAnswer", "checked_replay"]

A = TypeVar("A")

_MOST_TRIES = 2
"""Attempts at the run that a question may end with: it may itself be the reason."""


class StateAnswer(Answer[A]):
    """The answer to a question about a state: a future of copies, all from after the same tick.

    Attributes:
        tick: the number of the tick after which the state was read; None until then.
    """

    def __init__(self, own: OwnThreads) -> None:
        super().__init__(own)
        self.tick: int | None = None


@dataclass(frozen=True, eq=False)
class Query(Request[Any]):
    """A question with its answer.

    Attributes:
        question: the question.
        kept: the state that it is about.
        read: returns the result from the findings of the workers, in their order.
        tries: how many attempts at the run have ended without an answer.
        answer: the future of the result.
    """

    question: Question
    kept: KeptState
    read: Callable[[Sequence[Found]], Any]
    tries: int = 0
    answer: StateAnswer[Any] = field(kw_only=True)

    def find(self, outcome: Outcome, tick: int) -> None:
        """Set the result or the error, unless it was cancelled.

        Args:
            outcome: the findings of the workers, or an error.
            tick: the tick after which they were made.
        """
        if isinstance(outcome, MalflowError):
            self.fail(outcome)
            return
        try:
            result = self.read(outcome)
        except MalflowError as error:
            self.fail(error)
            return
        self.answer.tick = tick
        self.give(result)

    def end(self, error: BaseException | None) -> None:
        """Fail: the run has ended."""
        self._refuse("the run ended before", error)

    def again(self) -> Self:
        """Return it with one more try; after too many it fails."""
        tries = self.tries + 1
        if tries == _MOST_TRIES:
            self._refuse(f"the run failed {_MOST_TRIES} times while it was asked", None)
        return replace(self, tries=tries)

    @property
    def refusal(self) -> QueryError:
        """The error after the end of the run."""
        return QueryError("the run has ended; read_state() reads its last snapshot")

    def _refuse(self, reason: str, cause: BaseException | None) -> None:
        error = QueryError(f"operator '{self.kept.node.name}' was not asked: {reason}", operator=self.kept.node.name)
        error.__cause__ = cause
        self.fail(error)


@dataclass(frozen=True, eq=False)
class ReplayRequest(Request[Replayed]):
    """A request about the dead letters of an operator."""

    replay: Replay

    def end(self, error: BaseException | None) -> None:
        """Fail: the run has ended."""
        name = self.replay.operator
        ended = QueryError(
            f"the dead letters of operator '{name}' were not touched: the run ended before", operator=name
        )
        ended.__cause__ = error
        self.fail(ended)

    @property
    def refusal(self) -> QueryError:
        """The error after the end of the run."""
        return QueryError("the run has ended, and its dead letters stay; start it again to replay them")


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
