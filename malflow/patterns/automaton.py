"""The automaton of a pattern, whose states are created on demand.

A state is the set of positions that a choice of events with their steps can have reached. So branches with a common
beginning share a state, which knows everything that may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from malflow.patterns.positions import Positions, Wait
from malflow.patterns.tree import Absence, By, Step, Tree, durations_of, steps_of

__all__ = [
    "Automaton",
    "Killer",
    "Moves",
    "Option",
    "Question",
    "State",
]


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


_MOST_MOVES = 10_000
"""The maximum number of cached moves: there may be exponentially many, and as many states."""


# Idea: a subset construction with states made on demand. Each occurrence of a step in the pattern is a position
# (Glushkov, 1961), and a state is a set of positions with the steps that may follow them. All states together may be
# exponentially many, but the events of a stream reach few of them. `move` computes a state when an event first leads to
# it, and the states are weakly held: those that no partial match and no cached move needs are freed.
#
# Invariant: equal sets of positions with equal options and waits are one state, so runs are compared by identity.
#
# Example: ``(a then b) | (a then c)`` has the positions a1 b2 a3 c4.
#   the start by a    {a1, a3}    b leads to {b2}, c leads to {c4}
#   an event b        {b2}        accepts
#   an event c        {c4}        accepts
class Automaton:
    """The automaton of a pattern.

    Attributes:
        steps: the steps, by number: first those that take events, in the order in which they are written.
        names: their names.
        durations: all durations of the pattern.
        is_bounded: whether the pattern has a span.
        starts: the bit and the number of each step that can start a match, and the state after it.
        start_mask: the bits of these steps.
        lead: the bit of the step that must be absent before; 0 without one.
        is_strict: whether any event may break a match, even one that satisfies no step.
        has_silent_end: whether a match may wait for an absence.
        has_terms: whether there is a time limit between two events, or an absence.
        has_bounds: whether there is a time limit between two events.
        has_given: whether a step depends on the match so far.

    Args:
        tree: the tree of a complete pattern.
        span: the greatest distance of the last event from the first; None for no limit.
        lead: the absence before the first event, or None.
        checks: whether conditions on the match so far are called twice, to detect those that are not deterministic.
    """

    def __init__(self, tree: Tree, *, span: Any = None, lead: Absence | None = None, checks: bool = False) -> None:
        self.steps = steps_of(tree, lead)
        if checks:
            self.steps = [replace(step, given=_called_twice(step)) for step in self.steps]
        self.names = tuple(step.name for step in self.steps)
        self.durations = durations_of(tree, span, lead)
        self.is_bounded = span is not None
        self._numbers = {step.name: number for number, step in enumerate(self.steps)}
        self._positions = positions = Positions(tree, self._numbers)
        self._states: WeakValueDictionary[Any, State] = WeakValueDictionary()
        self._moves = 0
        self._fresh: WeakValueDictionary[frozenset[int], State] = WeakValueDictionary()
        self._named: dict[str, State | None] = {}
        firsts = sorted({positions.steps[position] for position in positions.first})
        self.starts = tuple((1 << step, step, self._start(step)) for step in firsts)
        self.start_mask = sum(bit for bit, _, _ in self.starts)
        self.lead = 0 if lead is None else 1 << self._number(lead.step)
        edges = [edge for edges in positions.edges for edge in edges]
        self.is_strict = any(positions.gaps[edge.gap].by == "next" for edge in edges)
        self.has_silent_end = any(wait is not None for waits in positions.ends.values() for wait in waits)
        self.has_bounds = any(positions.gaps[edge.gap].within is not None for edge in edges)
        self.has_terms = self.has_silent_end or self.has_bounds or any(edge.wait is not None for edge in edges)
        self.has_given = any(step.given is not None for step in self.steps)

    def _start(self, step: int) -> State:
        steps = self._positions.steps
        return self._after(frozenset(it for it in self._positions.first if steps[it] == step))

    def _number(self, step: Step) -> int:
        return self._numbers[step.name]

    def question(self, number: int, option: Option) -> Question:
        """Return the conditions of an option of a state."""
        after = None if option.wait is None else option.wait.during
        return Question(1 << option.step, 1 << number, option.within, after, self.steps[option.step].given)

    def killers(self, options: Sequence[Option], waits: Sequence[Wait]) -> tuple[Killer, ...]:
        """Return the steps that end options or waits of a state."""
        always: dict[int, int] = {}
        timed: dict[int, list[tuple[Any, int]]] = {}
        for number, option in enumerate(options):
            if option.without is not None:
                always[option.without] = always.get(option.without, 0) | 1 << number
            if option.wait is not None:
                timed.setdefault(option.wait.step, []).append((option.wait.during, 1 << number))
        for number, wait in enumerate(waits, len(options)):
            always[wait.step] = always.get(wait.step, 0) | 1 << number
        return tuple(
            Killer(1 << step, self.steps[step].given, always.get(step, 0), tuple(timed.get(step, ())))
            for step in sorted({*always, *timed})
        )

    def move(self, state: State, able: int, ended: int) -> Moves:
        """Return the states after an event.

        Args:
            state: the state.
            able: the bits of the options that take the event.
            ended: the bits of the options, followed by the bits of the waits, that the event ends.
        """
        targets: dict[int, frozenset[int]] = {}
        is_compelled = False
        kept = []
        for number, option in enumerate(state.options):
            if able >> number & 1:
                targets[option.step] = targets.get(option.step, frozenset()) | option.targets
                is_compelled = is_compelled or option.by != "then_any"
            if not ended >> number & 1 and option.by != "next":
                kept.append(option)
        waits: tuple[Wait, ...] = ()
        if is_compelled:
            kept = [option for option in kept if option.by == "then_any"]
        else:
            live = enumerate(state.waits, len(state.options))
            waits = tuple(wait for number, wait in live if not ended >> number & 1)
        takes = tuple((step, self._after(targets[step])) for step in sorted(targets))
        return takes, self.reduced(state, tuple(kept), waits)

    def make_room(self) -> None:
        """Clear the cached moves if there are too many, and with them all states without a partial match."""
        self._moves += 1
        if self._moves > _MOST_MOVES:
            self._moves = 0
            self._named.clear()
            for state in list(self._states.values()):
                state.moves.clear()

    def reduced(self, state: State, options: tuple[Option, ...], waits: tuple[Wait, ...]) -> State | None:
        """Return the state reduced to some of its options and waits; None if none are left."""
        if not options and not waits:
            return None
        if len(options) == len(state.options) and len(waits) == len(state.waits):
            return state
        return self._state(state.positions, options, waits, accepts=False)

    def state_after(self, steps: Sequence[str]) -> State | None:
        """Return the state after the steps have taken events, in order; None if the pattern has no such path."""
        numbers = [self._numbers.get(step) for step in steps]
        state = next((state for _, step, state in self.starts if step == numbers[0]), None)
        for number in numbers[1:]:
            if state is not None:
                able = sum(question.option for question in state.questions if 1 << (number or 0) == question.step)
                takes, _ = self.move(state, able if number is not None else 0, 0)
                state = takes[0][1] if takes else None
        return state

    def name(self, state: State) -> str:
        """Return a name for `named` to find a state in a later run, even if numbers and durations have changed."""
        fresh = self._after(state.positions)
        names = ",".join(self._positions.names[position] for position in sorted(state.positions))
        if state is fresh:
            return names
        options = ",".join(option.name for option in state.options)
        return f"{names}|{options}|{','.join(str(wait.number) for wait in state.waits)}"

    def named(self, name: str) -> State | None:
        """Return the state with a name; None if the pattern no longer has it."""
        if name not in self._named:
            self._named[name] = self._find(name)
        return self._named[name]

    def _find(self, name: str) -> State | None:
        positions, *left = name.split("|")
        known = {it: number for number, it in enumerate(self._positions.names)}
        names = positions.split(",")
        if not all(it in known for it in names):
            return None
        fresh = self._after(frozenset(known[it] for it in names))
        if not left:
            return fresh
        options, waits = (part.split(",") for part in left)
        return self.reduced(
            fresh,
            tuple(option for option in fresh.options if option.name in options),
            tuple(wait for wait in fresh.waits if str(wait.number) in waits),
        )

    def _after(self, positions: frozenset[int]) -> State:
        """Return the state after an event was taken into some positions."""
        state = self._fresh.get(positions)
        if state is None:
            ends = [wait for position in sorted(positions) for wait in self._positions.ends.get(position, ())]
            accepts = None in ends
            waits = () if accepts else tuple(dict.fromkeys(wait for wait in ends if wait is not None))
            state = self._state(positions, self._options(positions), waits, accepts=accepts)
            self._fresh[positions] = state
        return state

    def _options(self, positions: frozenset[int]) -> tuple[Option, ...]:
        targets: dict[tuple[int, int, Wait | None], set[int]] = {}
        for position in sorted(positions):
            for edge in self._positions.edges[position]:
                targets.setdefault((edge.step, edge.gap, edge.wait), set()).add(edge.target)
        options = []
        for (step, number, wait), found in targets.items():
            gap = self._positions.gaps[number]
            name = f"{step}.{number}" + ("" if wait is None else f".{wait.number}")
            without = None if gap.without is None else self._number(gap.without)
            options.append(Option(step, gap.by, gap.within, without, wait, frozenset(found), name))
        return tuple(sorted(options, key=lambda option: (option.step, option.name)))

    def _state(
        self, positions: frozenset[int], options: tuple[Option, ...], waits: tuple[Wait, ...], *, accepts: bool
    ) -> State:
        key = (positions, tuple(option.name for option in options), waits, accepts)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(self, positions, options, waits, accepts=accepts)
        return state


def _called_twice(step: Step) -> Any:
    """Return a step's condition on the match so far, with a check that it is deterministic, or None."""
    given = step.given
    if given is None:
        return None

    def checked(value: Any, so_far: Any) -> bool:
        answer = bool(given(value, so_far))
        if bool(given(value, so_far)) != answer:
            raise ValueError(
                f"given= of step {step.name!r} returned {answer}, and another result when called again; it must depend "
                "only on its arguments"
            )
        return answer

    return checked
