"""Questions of other threads to the states of a run, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.engine.questions import Found, KeptState, Outcome, Question
from malflow.errors import MalflowError, QueryError
from malflow.runtime.requests.answers import Answer, OwnThreads

__all__ = ["Query", "StateAnswer"]

A = TypeVar("A")


class StateAnswer(Answer[A]):
    """The answer to a question about a state: a future of copies, all from after the same tick.

    Attributes:
        tick: the number of the tick after which the state was read; None until then.
    """

    def __init__(self, own: OwnThreads) -> None:
        super().__init__(own)
        self.tick: int | None = None


@dataclass(slots=True, eq=False)
class Query:
    """A question with its answer.

    Attributes:
        question: the question, as it is put to each worker.
        kept: the state that it is about.
        read: returns the result from the findings of the workers, in their order.
        answer: the future of the result.
        tries: how many attempts at the run have ended without an answer.
    """

    question: Question
    kept: KeptState
    read: Callable[[Sequence[Found]], Any]
    answer: StateAnswer[Any]
    tries: int = 0

    def give(self, outcome: Outcome, tick: int) -> None:
        """Set the result or the error, unless it was cancelled.

        Args:
            outcome: the findings of the workers, or an error.
            tick: the tick after which they were made.
        """
        with suppress(InvalidStateError):
            if isinstance(outcome, MalflowError):
                self.answer.set_exception(outcome)
                return
            try:
                result = self.read(outcome)
            except MalflowError as error:
                self.answer.set_exception(error)
                return
            self.answer.tick = tick
            self.answer.set_result(result)

    def fail(self, reason: str, cause: BaseException | None) -> None:
        """Set an error, unless it was cancelled.

        Args:
            reason: why there is no answer.
            cause: the error that ended the run, if any.
        """
        error = QueryError(f"operator '{self.kept.node.name}' was not asked: {reason}", operator=self.kept.node.name)
        error.__cause__ = cause
        with suppress(InvalidStateError):
            self.answer.set_exception(error)
