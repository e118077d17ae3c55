"""The automaton of a pattern: its positions, and states that are made as they are met.

After Glushkov, "The abstract theory of automata" (1961): a position for each step of the tree, loops unrolled. A state
is the set of positions that one choice of events with their steps can have reached. So two branches that begin alike
are one state, and all that may come next is known in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never
from weakref import WeakValueDictionary

from malflow.patterns.tree import (
    Absence,
    By,
    Chain,
    Either,
    Gap,
    Repeated,
    Silenced,
    Single,
    Step,
    Together,
    Tree,
    orders,
    steps_of,
)

__all__ = ["Automaton", "Killer", "Moves", "Question", "State", "Wait"]

_MOST_MOVES = 10_000
"""How many moves are remembered: there may be exponentially many, and as many states."""


class Wait(NamedTuple):
    """A step that must not come.

    Attributes:
        step: its number.
        during: for how long after the last event; None for the rest of the pattern's span.
        number: the number of the absence in the tree.
    """

    step: int
    during: Any
    number: int


class _Edge(NamedTuple):
    """What may follow a position.

    Attributes:
        step: the number of the step that takes the next event.
        gap: the number of the gap in the tree.
        wait: the absence that must be over before; None for none.
        target: the position after it.
    """

    step: int
    gap: int
    wait: Wait | None
    target: int


class _Option(NamedTuple):
    """The edges of a state that differ in nothing but their targets."""

    step: int
    by: By
    within: Any
    without: int | None
    wait: Wait | None
    targets: frozenset[int]
    name: str


class Question(NamedTuple):
    """The conditions of an option, beside its step's predicates of the value alone.

    Attributes:
        step: the bit of the step.
        option: the bit of the option.
        within: how much later than the last event; None for no limit.
        after: how much later it must at least be, exclusive; None for no limit.
        given: the predicate of the value and the match so far; None for none.
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
        given: its predicate of the value and the match so far; None for none.
        always: the bits of the options and waits that it ends.
        timed: those that it ends for a time after the last event only, with that time.
    """

    step: int
    given: Any
    always: int
    timed: tuple[tuple[Any, int], ...]


Moves = tuple[tuple[tuple[int, "State"], ...], "State | None"]
"""The steps that take an event, with the states after them; and the state if it is passed over, None for no way on."""


class State:
    """What may follow a choice of events.

    Attributes:
        accepts: whether the choice is a match.
        goes_on: whether anything may follow, be it an absence.
        is_plain: whether the steps that an event fulfils determine the moves.
        moves: the moves known, by the bits of the steps; or, of a state that is not plain, by the bits of the options
            that take the event, and of the options and waits that it ends.
        questions: the conditions of each option.
        killers: the steps that end options or waits.
        waits: the absences after which the choice is a match.
        choice: the bit of the step and the condition of the only option, if there is nothing else.
        has_deadline: whether a partial match expires in it, apart from the pattern's span.
        is_like_before: whether nothing but what follows matters: neither a match nor an absence nor a time.
        depends_on_last: whether the time of the last event matters.
        patience: the shortest of them after the last event; None for none.
        waits_for_span: whether one of them lasts for the rest of the pattern's span.
        reach: how long after the last event one of the options may take another; None for no limit.
        name: the state's name in snapshots.
    """

    __slots__ = (
        "__weakref__",
        "_automaton",
        "_name",
        "accepts",
        "choice",
        "depends_on_last",
        "goes_on",
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
        options: tuple[_Option, ...],
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
        self.goes_on = bool(options or waits)
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
        """Return the moves of a plain state for an event that fulfils the steps of a mask, and remember them."""
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
        """Return the state after the match of its absence; None if nothing can follow."""
        return self._automaton.reduced(self, self.options, ())

    @property
    def name(self) -> str:
        """The state's name in snapshots."""
        if self._name is None:
            self._name = self._automaton.name(self)
        return self._name


@dataclass(slots=True)
class _Fragment:
    """A part of the automaton: its first positions, and its last ones with the absence behind each."""

    can_be_empty: bool
    first: list[int]
    last: list[tuple[int, Wait | None]]


class Automaton:
    """The automaton of a pattern.

    Attributes:
        steps: the steps, by number: those that take events first, in the order in which they are written.
        names: their names.
        is_bounded: whether the pattern has a span.
        starts: the bit and the number of each step that may begin a match, and the state after it.
        start_mask: the bits of those.
        lead: the bit of the step that must be absent before; 0 for none.
        is_strict: whether any event may break a match, even if it fulfils no step.
        has_silent_end: whether a match may wait for an absence.
        has_terms: whether there is a limit of time between two events, or an absence.
        has_bounds: whether there is a limit of time between two events.
        has_given: whether a step depends on the match so far.

    Args:
        tree: the tree of a pattern that is whole.
        span: the greatest distance of the last event from the first; None for no limit.
        lead: the absence before the first event; None for none.
        checks: whether conditions on the match so far are called twice, to find those that are no functions.
    """

    def __init__(self, tree: Tree, *, span: Any = None, lead: Absence | None = None, checks: bool = False) -> None:
        self.steps = steps_of(tree, lead)
        if checks:
            self.steps = [replace(step, given=_called_twice(step)) for step in self.steps]
        self.names = tuple(step.name for step in self.steps)
        self.is_bounded = span is not None
        self._numbers = {step.name: number for number, step in enumerate(self.steps)}
        self._position_steps: list[int] = []
        self._position_names: list[str] = []
        self._edges: list[list[_Edge]] = []
        self._gaps: dict[int, Gap] = {}
        self._leaf = self._gap_number = self._absence = 0
        self._round: tuple[int, ...] = ()
        whole = self._build(tree)
        self._ends: dict[int, list[Wait | None]] = {}
        for position, wait in whole.last:
            self._ends.setdefault(position, []).append(wait)
        self._states: WeakValueDictionary[Any, State] = WeakValueDictionary()
        self._moves = 0
        self._fresh: WeakValueDictionary[frozenset[int], State] = WeakValueDictionary()
        self._named: dict[str, State | None] = {}
        firsts = sorted({self._position_steps[position] for position in whole.first})
        self.starts = tuple((1 << step, step, self._start(step, whole.first)) for step in firsts)
        self.start_mask = sum(bit for bit, _, _ in self.starts)
        self.lead = 0 if lead is None else 1 << self._number(lead.step)
        edges = [edge for edges in self._edges for edge in edges]
        self.is_strict = any(self._gaps[edge.gap].by == "next" for edge in edges)
        self.has_silent_end = any(wait is not None for _, wait in whole.last)
        self.has_bounds = any(self._gaps[edge.gap].within is not None for edge in edges)
        self.has_terms = self.has_silent_end or self.has_bounds or any(edge.wait is not None for edge in edges)
        self.has_given = any(step.given is not None for step in self.steps)

    def _start(self, step: int, first: Sequence[int]) -> State:
        return self._after(frozenset(it for it in first if self._position_steps[it] == step))

    def _number(self, step: Step) -> int:
        return self._numbers[step.name]

    def _build(self, tree: Tree) -> _Fragment:
        match tree:
            case Single(step=step):
                return self._single(step)
            case Chain(items=items, gaps=gaps):
                whole = self._build(items[0])
                for item, gap in zip(items[1:], gaps, strict=True):
                    whole = self._chained(whole, self._gap(gap), self._build(item))
                return whole
            case Either(items=items):
                branches = [self._build(item) for item in items]
                return _Fragment(
                    any(it.can_be_empty for it in branches),
                    [position for it in branches for position in it.first],
                    [end for it in branches for end in it.last],
                )
            case Together():
                return self._build(orders(tree))
            case Repeated():
                return self._repeated(tree)
            case Silenced(item=item, absence=absence):
                wait = self._wait(absence)
                inner = self._build(item)
                return _Fragment(inner.can_be_empty, inner.first, [(position, wait) for position, _ in inner.last])
            case _:
                assert_never(tree)

    def _single(self, step: Step) -> _Fragment:
        position = len(self._position_steps)
        self._position_steps.append(self._number(step))
        self._position_names.append(".".join(map(str, (self._leaf, *self._round))))
        self._leaf += 1
        self._edges.append([])
        return _Fragment(False, [position], [(position, None)])

    def _gap(self, gap: Gap) -> int:
        self._gaps[self._gap_number] = gap
        self._gap_number += 1
        return self._gap_number - 1

    def _wait(self, absence: Absence) -> Wait:
        self._absence += 1
        return Wait(self._number(absence.step), absence.during, self._absence)

    def _chained(self, left: _Fragment, gap: int, right: _Fragment) -> _Fragment:
        self._link(left, gap, right)
        return _Fragment(
            left.can_be_empty and right.can_be_empty,
            left.first + right.first if left.can_be_empty else left.first,
            right.last + left.last if right.can_be_empty else right.last,
        )

    def _link(self, left: _Fragment, gap: int, right: _Fragment) -> None:
        for position, wait in left.last:
            for target in right.first:
                self._edges[position].append(_Edge(self._position_steps[target], gap, wait, target))

    def _repeated(self, tree: Repeated) -> _Fragment:
        """Unroll a loop. Rounds that are empty are left out: if the item may be empty, so may the whole."""
        gap, outer, begun = self._gap(tree.gap), self._round, (self._leaf, self._gap_number, self._absence)
        rounds: list[_Fragment] = []
        for number in range(max(tree.low, 1) if tree.high is None else tree.high):
            self._leaf, self._gap_number, self._absence = begun
            self._round = (*outer, number)
            rounds.append(self._build(tree.item))
            if number:
                self._link(rounds[-2], gap, rounds[-1])
        self._round = outer
        if tree.high is None:
            self._link(rounds[-1], gap, rounds[-1])
        item_can_be_empty = rounds[0].can_be_empty
        least = 1 if item_can_be_empty else max(tree.low, 1)
        ends = [end for it in rounds[least - 1 :] for end in it.last]
        return _Fragment(tree.low == 0 or item_can_be_empty, rounds[0].first, ends)

    def question(self, number: int, option: _Option) -> Question:
        """Return the conditions of an option of a state."""
        after = None if option.wait is None else option.wait.during
        return Question(1 << option.step, 1 << number, option.within, after, self.steps[option.step].given)

    def killers(self, options: Sequence[_Option], waits: Sequence[Wait]) -> tuple[Killer, ...]:
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
        """Return where a state leads.

        Args:
            state: the state.
            able: the bits of the options that take the event.
            ended: the bits of the options, and behind them of the waits, that the event ends.
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
        """Forget all moves if there are too many; with them go the states in which no partial match is."""
        self._moves += 1
        if self._moves > _MOST_MOVES:
            self._moves = 0
            self._named.clear()
            for state in list(self._states.values()):
                state.moves.clear()

    def reduced(self, state: State, options: tuple[_Option, ...], waits: tuple[Wait, ...]) -> State | None:
        """Return the state with some of its options and waits left; None if there are none."""
        if not options and not waits:
            return None
        if len(options) == len(state.options) and len(waits) == len(state.waits):
            return state
        return self._state(state.positions, options, waits, accepts=False)

    def state_after(self, steps: Sequence[str]) -> State | None:
        """Return the state after events were taken for steps, in order; None if the pattern has no such way."""
        numbers = [self._numbers.get(step) for step in steps]
        state = next((state for _, step, state in self.starts if step == numbers[0]), None)
        for number in numbers[1:]:
            if state is not None:
                able = sum(question.option for question in state.questions if 1 << (number or 0) == question.step)
                takes, _ = self.move(state, able if number is not None else 0, 0)
                state = takes[0][1] if takes else None
        return state

    def name(self, state: State) -> str:
        """Return a name from which `named` finds a state in a later run, even if numbers and durations have changed."""
        fresh = self._after(state.positions)
        names = ",".join(self._position_names[position] for position in sorted(state.positions))
        if state is fresh:
            return names
        options = ",".join(option.name for option in state.options)
        return f"{names}|{options}|{','.join(str(wait.number) for wait in state.waits)}"

    def named(self, name: str) -> State | None:
        """Return the state with a name; None if the pattern has none any more."""
        if name not in self._named:
            self._named[name] = self._find(name)
        return self._named[name]

    def _find(self, name: str) -> State | None:
        positions, *left = name.split("|")
        known = {it: number for number, it in enumerate(self._position_names)}
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
        """Return the state in which an event has just been taken into some positions."""
        state = self._fresh.get(positions)
        if state is None:
            ends = [wait for position in sorted(positions) for wait in self._ends.get(position, ())]
            accepts = None in ends
            waits = () if accepts else tuple(dict.fromkeys(wait for wait in ends if wait is not None))
            state = self._state(positions, self._options(positions), waits, accepts=accepts)
            self._fresh[positions] = state
        return state

    def _options(self, positions: frozenset[int]) -> tuple[_Option, ...]:
        targets: dict[tuple[int, int, Wait | None], set[int]] = {}
        for position in sorted(positions):
            for edge in self._edges[position]:
                targets.setdefault((edge.step, edge.gap, edge.wait), set()).add(edge.target)
        options = []
        for (step, number, wait), found in targets.items():
            gap = self._gaps[number]
            name = f"{step}.{number}" + ("" if wait is None else f".{wait.number}")
            without = None if gap.without is None else self._number(gap.without)
            options.append(_Option(step, gap.by, gap.within, without, wait, frozenset(found), name))
        return tuple(sorted(options, key=lambda option: (option.step, option.name)))

    def _state(
        self, positions: frozenset[int], options: tuple[_Option, ...], waits: tuple[Wait, ...], *, accepts: bool
    ) -> State:
        key = (positions, tuple(option.name for option in options), waits, accepts)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(self, positions, options, waits, accepts=accepts)
        return state


def _called_twice(step: Step) -> Any:
    """Return the condition of a step on the match so far, with a check that it is a function; None if it has none."""
    given = step.given
    if given is None:
        return None

    def checked(value: Any, so_far: Any) -> bool:
        answer = bool(given(value, so_far))
        if bool(given(value, so_far)) != answer:
            raise ValueError(
                f"given= of step {step.name!r} returned {answer}, and something else when called again; it must depend "
                "on its arguments only"
            )
        return answer

    return checked
