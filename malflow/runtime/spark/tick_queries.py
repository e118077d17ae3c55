"""Queries of states that travel with a tick, and the answers of its tasks, which lie in the scratch folder.

The task of a stage and worker answers before it does anything else, so that all answers are of the states after the
tick before. Spark compares the rows of repeated tasks, so nothing of an answer is in a row: the first attempt puts it
into an object of its own, which further attempts leave as it is.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from malflow.engine.plan import Program
from malflow.engine.state_queries import Outcome, Question
from malflow.engine.worker import Worker
from malflow.errors import MalflowError, QueryError
from malflow.runtime.spark.changelog.changelog import Changelog
from malflow.runtime.transport.states import PackedQuestion, answered, outcome, packed_or_error

__all__ = ["TickQuestions", "answer_questions"]

_STORED: Final = "stored"
"""Stands in the command for questions that are too long for it."""

_LONGEST = 32 << 10
"""Characters of questions in a command, which Spark copies into every task."""

_READ_TOGETHER = 8
"""Answers read together. More: more memory at once; fewer: more waits for a remote store."""


class TickQuestions:
    """The questions that the next tick is asked, on the driver."""

    def __init__(self) -> None:
        self._asked: list[PackedQuestion | QueryError] = []
        self._tick = 0
        self._stored: list[str] = []

    def ask(self, questions: Sequence[Question]) -> None:
        """Set the questions that the next tick is asked."""
        self._asked = [packed_or_error(question) for question in questions]

    def packed(self, changelog: Changelog, tick: int) -> str:
        """Return the questions for the command of a tick; empty if there are none.

        Raises:
            StoreError: if they are long and can't be written.
        """
        sent = [it for it in self._asked if isinstance(it, PackedQuestion)]
        self._tick = tick
        if not sent:
            return ""
        text = b64encode(pickle.dumps(sent, 5)).decode("ascii")
        if len(text) <= _LONGEST:
            return text
        changelog.put(_questions(changelog, tick), text.encode("ascii"))
        self._stored.append(_questions(changelog, tick))
        return _STORED

    def outcomes(self, changelog: Changelog, parallelism: int) -> list[Outcome]:
        """Return the outcome of each question, once the tasks of the tick have ended."""
        asked, self._asked = self._asked, []
        found = _Answers(changelog, self._tick, [it for it in asked if isinstance(it, PackedQuestion)], parallelism)
        outcomes = [found.outcome(it) if isinstance(it, PackedQuestion) else it for it in asked]
        self._stored += found.names
        return outcomes

    def take_stored(self) -> list[str]:
        """Return the names of the objects that are no longer needed."""
        stored, self._stored = self._stored, []
        return stored


class _Answers:
    """The answers of a tick, read from the scratch folder as far as they are needed.

    Attributes:
        names: the names of the objects of all answers.
    """

    def __init__(self, changelog: Changelog, tick: int, sent: Sequence[PackedQuestion], parallelism: int) -> None:
        self._changelog = changelog
        self._tick = tick
        self._sent = sent
        self._workers = range(parallelism)
        self._read: dict[tuple[int, int], list[bytes]] = {}
        self.names = [self._name(*place) for place in {place for it in sent for place in self._places(it)}]

    def outcome(self, asked: PackedQuestion) -> Outcome:
        """Return the outcome of a question."""
        try:
            return outcome(asked, self._answers(asked))
        except MalflowError as error:
            made = QueryError(f"operator '{asked.name}': {error}", operator=asked.name)
            made.__cause__ = error
            return made

    def _answers(self, asked: PackedQuestion) -> Iterator[bytes]:
        places = iter(self._places(asked))
        while some := [*islice(places, _READ_TOGETHER)]:
            missing = [place for place in some if place not in self._read]
            objects = self._changelog.get_all([self._name(*place) for place in missing])
            self._read.update(zip(missing, map(pickle.loads, objects), strict=True))
            for stage, worker in some:
                before = sum(it.asks(stage, worker) for it in self._sent[: self._sent.index(asked)])
                yield self._read[stage, worker][before]

    def _places(self, asked: PackedQuestion) -> list[tuple[int, int]]:
        return [(asked.stage, worker) for worker in self._workers if asked.asks(asked.stage, worker)]

    def _name(self, stage: int, worker: int) -> str:
        return _answer(self._changelog, self._tick, stage, worker)


def answer_questions(
    questions: str, program: Program, changelog: Changelog, worker: Worker, stage: int, tick: int
) -> None:
    """Answer the questions in the command of a tick, before the worker does anything else in it.

    Args:
        questions: the questions, as `TickQuestions.packed` returned them.
        program: the program.
        changelog: the changelog, whose scratch folder takes the answers.
        worker: the worker, as the tick before has left it.
        stage: its stage.
        tick: the number of the tick.

    Raises:
        StoreError: if the answers can't be written.
        RunFailed: if the questions can't be read.
    """
    if questions == _STORED:
        questions = changelog.read_piece(_questions(changelog, tick)).decode("ascii")
    sent: list[PackedQuestion] = pickle.loads(b64decode(questions))  # noqa: S301 - of this run
    mine = [it for it in sent if it.asks(stage, worker.worker_id)]
    if mine:
        answers = [answered(program, worker, it) for it in mine]
        changelog.put(_answer(changelog, tick, stage, worker.worker_id), pickle.dumps(answers, 5))


def _questions(changelog: Changelog, tick: int) -> str:
    return f"{changelog.folder}answers/{tick:012d}"


def _answer(changelog: Changelog, tick: int, stage: int, worker: int) -> str:
    return f"{changelog.folder}answers/{tick:012d}-{stage}-{worker}"
