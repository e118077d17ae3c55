"""The states of an automaton: the continuations of the events chosen so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from malflow.patterns.positions import Wait
from malflow.patterns.tree import By

if TYPE_CHECKING:
    from malflow.patterns.automaton import Automaton

__all__ = ["Killer", "Moves", "Option", "Question", "State"]


class Option(NamedTuple):
    """Edges of a state that differ only in their targets."""

    step: int
    by: By
    within: Any
    without: int | None
    wait: Wait | None
    targets: frozenset[int]
    name: str


class Question(NamedTuple):
    """The conditions of an option, in addition to its step's predicates of the value alone.

    Attributes:
        step: the bit of the step.
        option: the bit of the option.
        within: the maximum time after the last event; None for no limit.
        after: the minimum time after the last event, exclusive; None for no limit.
        given: the predicate of the value and the match so far, or None.
    """

    step: int
    option: int
    within: Any
    after: Any
    given: Any


class Killer(NamedTuple):
    """A step that ends options or waits.

    Attributes:
        step: the bit of the step.
        given: its predicate of the value and the match so far, or None.
        always: the bits of the options and waits that it ends.
        timed: the bits of those that it ends only for a time after the last event, with that time.
    """

    step: int
    given: Any
    always: int
    timed: tuple[tuple[Any, int], ...]


Moves = tuple[tuple[tuple[int, "State"], ...], "State | None"]
"""The steps that take an event, with the states after them; and the state if the event is skipped, or None."""


class State:
    """The continuations of a choice of events.

    Attributes:
        accepts: whether the choice is a match.
        continues: whether anything may follow, even an absence.
        is_plain: whether the steps that an event satisfies determine the moves.
        moves: the known moves, by the bits of the steps; for a state that is not plain, by the bits of the options that
            take the event, and of the options and waits that it ends.
        questions: the conditions of each option.
        killers: the steps that end options or waits.
        waits: the absences after which the choice is a match.
        choice: the bit of the step and the condition of the only option, if the state has nothing else.
        has_deadline: whether a partial match in it can expire, other than by the pattern's span.
        is_like_before: whether only the continuations matter: it has no match, absence or time limit.
        depends_on_last: whether the time of the last event matters.
        patience: the shortest wait after the last event, or None.
        waits_for_span: whether a wait lasts for the rest of the pattern's span.
        reach: how long after the last event an option may take another; None for no limit.
        name: the state's name in snapshots.
    """

    __slots__ = (
        "__weakref__",
        "_automaton",
        "_name",
        "accepts",
        "choice",
        "continues",
        "depends_on_last",
        "has_deadline",
        "is_like_before",
        "is_plain",
        "killers",
        "moves",
        "options",
        "patience",
        "positions",
        "questions",
        "reach",
        "waits",
        "waits_for_span",
    )

    def __init__(
        self,
        automaton: Automaton,
        positions: frozenset[int],
        options: tuple[Option, ...],
        waits: tuple[Wait, ...],
        *,
        accepts: bool,
    ) -> None:
        self._automaton = automaton
        self._name: str | None = None
        self.positions = positions
        self.options = options
        self.waits = waits
        self.accepts = accepts
        self.continues = bool(options or waits)
        self.moves: dict[int, Moves] = {}
        self.patience = min((wait.during for wait in waits if wait.during is not None), default=None)
        self.waits_for_span = any(wait.during is None for wait in waits)
        bounded = [option.within for option in options if option.within is not None]
        self.reach = max(bounded) if options and len(bounded) == len(options) else None
        self.questions = tuple(automaton.question(number, option) for number, option in enumerate(options))
        self.killers = automaton.killers(options, waits)
        self.has_deadline = bool(waits) or self.reach is not None
        self.depends_on_last = self.patience is not None or any(
            it.within is not None or it.after is not None for it in self.questions
        )
        self.is_like_before = not accepts and not waits and not self.depends_on_last
        self.choice = None
        if len(options) == 1 and not waits and not self.killers and not self.depends_on_last:
            self.choice = (self.questions[0].step, self.questions[0].given)
        self.is_plain = (
            all(it.within is None and it.after is None and it.given is None for it in self.questions)
            and all(it.given is None and not it.timed for it in self.killers)
            and not (waits and options and automaton.is_bounded)
        )

    def plain_moves(self, mask: int) -> Moves:
        """Return the moves of a plain state for an event that satisfies the steps of a mask, and cache them."""
        able = ended = 0
        for question in self.questions:
            if mask & question.step:
                able |= question.option
        for killer in self.killers:
            if mask & killer.step:
                ended |= killer.always
        return self._remembered(mask, self._automaton.move(self, able, ended))

    def other_moves(self, able: int, ended: int) -> Moves:
        """Return the moves of a state that is not plain."""
        key = able << len(self.options) + len(self.waits) | ended
        moves = self.moves.get(key)
        if moves is None:
            moves = self._remembered(key, self._automaton.move(self, able, ended))
        return moves

    def _remembered(self, key: int, moves: Moves) -> Moves:
        self._automaton.make_room()
        self.moves[key] = moves
        return moves

    def after_wait(self) -> State | None:
        """Return the state after its absence has matched; None if nothing can follow."""
        return self._automaton.reduced(self, self.options, ())

    @property
    def name(self) -> str:
        """The state's name in snapshots."""
        if self._name is None:
            self._name = self._automaton.name(self)
        return self._name
