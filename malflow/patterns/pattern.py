"""Patterns: values built from steps by methods that read like what is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from malflow.aggregators.fields import read
from malflow.diagnostics import short_repr
from malflow.patterns.arguments import check_after, check_connector, check_counts, check_duration, malformed
from malflow.patterns.automaton import Automaton
from malflow.patterns.checks import (
    check_can_end,
    check_can_follow,
    check_can_go_on,
    check_can_repeat,
    check_is_part,
    check_kind_function,
    check_parts,
)
from malflow.patterns.explaining import ExplainingMachine, explain
from malflow.patterns.finding import Found, find
from malflow.patterns.machine import After, Machine
from malflow.patterns.masks import Masks
from malflow.patterns.printed import printed, shape
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
    steps_of,
)

__all__ = ["Absent", "Pattern", "absent"]

V = TypeVar("V")
W = TypeVar("W")
M = TypeVar("M", bound=Machine)
V_co = TypeVar("V_co", covariant=True)

_MOST_TOGETHER = 4


@dataclass(frozen=True, slots=True, repr=False)
class Pattern(Generic[V_co]):
    """A pattern of a key's events, ordered by time.

    A pattern is a value: every method returns a new one. ``str(pattern)`` prints it. A match takes one event for each
    step, in order; other events of the key may lie between, except where a connector or an absence says otherwise.

    Attributes:
        tree: the steps, and what connects them.
        span: the greatest distance of the last event from the first, inclusive; None for no limit.
        lead: the absence before the first event; None for none.
    """

    tree: Tree
    span: Any = None
    lead: Absence | None = None

    def then(self, other: Pattern[W], *, within: Any = None, without: Pattern[Any] | None = None) -> Pattern[V_co | W]:
        """Continue with the first event that fits; events that no step waits for may lie between.

        An event that a step takes is never passed over: ``a.then(b)`` takes the first b after an a.

        Args:
            other: what follows.
            within: how much later than the event before it may come, inclusive: a number, or a timedelta.
            without: a step that no event strictly between the two may fulfil. An event that fulfils both this step and
                the next one completes the match.

        Raises:
            GraphError: if an argument is not of this kind, or a name stands for two different steps.

        >>> str(step("order").then(step("paid"), without=step("cancelled")))
        'order ->[!cancelled] paid'
        """
        return self._chained("then", other, within, without)

    def next(self, other: Pattern[W], *, within: Any = None, without: None = None) -> Pattern[V_co | W]:
        """Continue with the very next event of the key, whatever its kind: filter the stream first.

        Args:
            other: what follows.
            within: how much later it may come, inclusive.
            without: not allowed, since nothing lies between the two.

        Raises:
            GraphError: as `then` does.

        >>> str(step("up").next(step("down")))
        'up => down'
        """
        return self._chained("next", other, within, without)

    def then_any(
        self, other: Pattern[W], *, within: Any = None, without: Pattern[Any] | None = None
    ) -> Pattern[V_co | W]:
        """Continue with each event that fits, one after the other: each may be taken, or passed over.

        The number of partial matches can grow exponentially with the number of these connectors.

        Args:
            other: what follows.
            within: how much later than the event before it may come, inclusive.
            without: a step that no event strictly between the two may fulfil.

        Raises:
            GraphError: as `then` does.

        >>> str(step("a").then_any(step("b"), within=5))
        'a ~>[within 5] b'
        """
        return self._chained("then_any", other, within, without)

    def then_not(self, step: Pattern[Any], *, during: Any = None) -> Pattern[V_co]:
        """Continue with an absence: no later event fulfils a step, until `during` after the last one, inclusive.

        At the end of a pattern, the match is complete when that time is over. In the middle, the next event is taken
        only after it. An event with the timestamp of the last one that comes after it counts as later.

        Args:
            step: the step.
            during: for how long; None, at the end of a pattern only, for the rest of its whole `within`.

        Raises:
            GraphError: if an argument is not of this kind, or there is an absence here already.

        >>> str(step("order").then_not(step("paid"), during=30))
        'order -> not paid for 30'
        """
        check_can_follow(self, "then_not()")
        return self._made(Silenced(self.tree, _absence("then_not()", step, during)))

    def times(
        self,
        low: int,
        high: int | Literal["low"] | None = "low",
        *,
        by: By = "then",
        within: Any = None,
        without: Pattern[Any] | None = None,
    ) -> Pattern[V_co]:
        """Repeat the pattern.

        At the end of a pattern, a loop closes at its least number.

        Args:
            low: how often, at least.
            high: how often, at most; None for any number; by default, `low`.
            by: the connector of one to the next: ``then``, ``next`` or ``then_any``.
            within: how much later than the event before it each one may begin, inclusive.
            without: a step that no event strictly between one and the next may fulfil.

        Raises:
            GraphError: if an argument is not of this kind.

        >>> str(step("failed").times(3, without=step("login"))), str(step("up").times(2, 4, by="next"))
        ('failed{3}[!login]', 'up{2,4}[=>]')
        """
        greatest = low if high == "low" else high
        check_counts(low, greatest)
        check_is_part(self, "times()")
        check_connector(by)
        check_can_repeat(self)
        return self._made(Repeated(self.tree, low, greatest, _gap("times()", by, within, without)))

    def at_least(
        self, low: int, *, by: By = "then", within: Any = None, without: Pattern[Any] | None = None
    ) -> Pattern[V_co]:
        """Repeat the pattern any number of times, from a least number on.

        At the end of a pattern this is the same as ``times(low)``: nothing is held back for a longer match. With
        ``then_not(...)`` after it, the match is told when there were no more for a time.

        Args:
            low: how often, at least.
            by: the connector of one to the next: ``then``, ``next`` or ``then_any``.
            within: how much later than the event before it each one may begin, inclusive.
            without: a step that no event strictly between one and the next may fulfil.

        Raises:
            GraphError: if an argument is not of this kind.

        >>> str(step("failed").at_least(3))
        'failed{3,}'
        """
        return self.times(low, None, by=by, within=within, without=without)

    def optional(self) -> Pattern[V_co]:
        """Allow the pattern to be left out; an event that fits is taken nevertheless.

        Raises:
            GraphError: if the pattern has a `within` or an `absent` of its own.

        >>> str(step("order").then(step("reminder").optional()).then(step("paid")))
        'order -> reminder? -> paid'
        """
        return self.times(0, 1)

    def __or__(self, other: Pattern[W]) -> Pattern[V_co | W]:
        """Return the pattern that either of two fulfils."""
        checked = _pattern("|", other)
        check_is_part(self, "|")
        return self._made(Either((*_parts(self.tree, Either), *_parts(checked.tree, Either))))

    def __and__(self, other: Pattern[W]) -> Pattern[V_co | W]:
        """Return the pattern of two to four steps in any order, each with an event of its own."""
        steps: list[Step] = []
        for side in (self, _pattern("&", other)):
            match side.tree:
                case Single(step=single):
                    steps.append(single)
                case Together(steps=several):
                    steps.extend(several)
                case _:
                    raise malformed(f"& needs steps on both sides; got {side}")
        check_is_part(self, "&")
        if len(steps) > _MOST_TOGETHER:
            raise malformed(f"& takes up to {_MOST_TOGETHER} steps; got {len(steps)}")
        return self._made(Together(tuple(steps)))

    def within(self, duration: Any) -> Pattern[V_co]:
        """Bound the time from the first to the last event, inclusive. Call it last.

        Args:
            duration: a number, or a timedelta.

        Raises:
            GraphError: if it is neither, or the pattern has a `within` already.

        >>> str(step("failed").times(3).then(step("login")).within(300))
        'failed{3} -> login within 300'
        """
        if self.span is not None:
            raise malformed(f"{self} has a within() already")
        check_duration("within()", "duration", duration)
        return _checked(replace(self, span=duration))

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps: those that take events, as they are written, and then those that must not come."""
        return tuple(step.name for step in self.all_steps)

    @property
    def all_steps(self) -> list[Step]:
        """The steps, in the order of `steps`."""
        return steps_of(self.tree, self.lead)

    @property
    def shape(self) -> str:
        """The pattern as a text without numbers, durations and predicates. States fit patterns of the same shape."""
        return shape(self.tree, self.lead)

    def check(self) -> None:
        """Check that the pattern is whole: that it needs an event, and that its absences end.

        Raises:
            GraphError: if it is not.
        """
        check_can_end(self)

    def find(
        self,
        records: Iterable[Any],
        *,
        after: After = "end",
        kind: Callable[[Any], Any] | str | None = None,
        limit: int = 1_000,
    ) -> Found[V_co]:
        """Return the matches in records at hand, for a shell and for tests.

        Records are put in the order of time. When all of them are read, time passes to its end.

        Args:
            records: messages; or values, whose timestamps are 0, 1, 2, ...
            after: what a match uses up: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps whose kind is not a class; or the name of the field that it is.
            limit: how many partial matches a key may have.

        Raises:
            GraphError: if the pattern is not whole, or an argument is not of its kind.
            RuntimeError: if a key has more partial matches than `limit`.
            ValueError: if a timestamp is None or does not equal itself.

        >>> rise = step("rise", given=lambda value, so_far: not so_far["rise"] or value > so_far.last("rise"))
        >>> [match["rise"] for match in rise.times(3, by="next").find([5, 1, 2, 4, 3])]
        [[1, 2, 4]]
        """
        check_after(after)
        machine = self.machine(after, limit)
        return find(machine, Masks(self.all_steps, self.checked_kind(kind)), records)

    def explain(
        self,
        records: Iterable[Any],
        *,
        after: After = "end",
        kind: Callable[[Any], Any] | str | None = None,
        limit: int = 1_000,
    ) -> str:
        """Return why the pattern was matched in records at hand or not, as text.

        The first line has the number of records that fulfil each step, apart from its `given`: a step that none
        fulfils explains most misses. Then comes a line for each event that began a match: how far it came, and how it
        ended. Unlike in `find`, time does not pass to its end after the last record.

        Args:
            records: messages; or values, whose timestamps are 0, 1, 2, ...
            after: what a match uses up: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps whose kind is not a class; or the name of the field that it is.
            limit: how many partial matches a key may have.

        Raises:
            GraphError: if the pattern is not whole, or an argument is not of its kind.

        >>> failed, login = step("failed", lambda it: it == "F"), step("login", lambda it: it == "L")
        >>> print(failed.times(2, without=login).then(login).explain("FxLFFxL"))
        7 records; failed: 3 (43%), login: 2 (29%)
        start 0 failed: reached failed; ended 2 by login (without)
        start 3 failed: reached failed x2, login; match at 6
        start 4 failed: reached failed; ended 6 by login (without)
        """
        check_after(after)
        machine = self._machine(ExplainingMachine, after=after, limit=limit)
        return explain(machine, Masks(self.all_steps, self.checked_kind(kind)), records)

    def machine(
        self,
        after: After,
        limit: int,
        *,
        drops_oldest: bool = False,
        in_order: bool = True,
        checks: bool = False,
    ) -> Machine:
        """Return a machine that finds the pattern.

        Args:
            after: what a match uses up.
            limit: how many partial matches a key may have.
            drops_oldest: whether the oldest ones are dropped at the limit.
            in_order: whether the events of a key come in the order of time.
            checks: whether conditions on the match so far are called twice, to find those that are no functions.

        Raises:
            GraphError: if the pattern is not whole.
        """
        return self._machine(
            Machine, checks=checks, after=after, limit=limit, drops_oldest=drops_oldest, in_order=in_order
        )

    def _machine(self, kind: type[M], *, checks: bool = False, **options: Any) -> M:
        self.check()
        lead = None if self.lead is None else self.lead.during
        return kind(self.automaton(checks=checks), span=self.span, lead=lead, **options)

    def automaton(self, *, checks: bool = False) -> Automaton:
        """Return the automaton of the pattern."""
        return Automaton(self.tree, span=self.span, lead=self.lead, checks=checks)

    def checked_kind(self, kind: Any) -> Callable[[Any], Any] | None:
        """Return the function that returns the kind of a value, having checked that the steps need one.

        Raises:
            GraphError: if it is missing, of no use, or no function.
        """
        check_kind_function(self, kind)
        return partial(read, kind) if isinstance(kind, str) else kind

    def __bool__(self) -> bool:
        raise malformed(f"{self} is neither true nor false; write | and & instead of 'or' and 'and'")

    def __str__(self) -> str:
        return printed(self.tree, self.span, self.lead)

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    def _chained(self, by: By, other: Any, within: Any, without: Any) -> Pattern[Any]:
        called = f"{by}()"
        if isinstance(other, Absent):
            raise malformed(f"{called} needs a pattern; got absent(...), which stands in front; call .then_not()")
        checked = _pattern(called, other)
        check_can_go_on(self, called)
        gap = _gap(called, by, within, without)
        items: tuple[Tree, ...] = (self.tree,)
        gaps: tuple[Gap, ...] = ()
        if isinstance(self.tree, Chain):
            items, gaps = self.tree.items, self.tree.gaps
        return self._made(Chain((*items, checked.tree), (*gaps, gap)))

    def _made(self, tree: Tree) -> Pattern[Any]:
        return _checked(replace(self, tree=tree))


@dataclass(frozen=True, slots=True)
class Absent:
    """The absence of a step, in front of a pattern."""

    absence: Absence

    def then(self, pattern: Pattern[W]) -> Pattern[W]:
        """Return the pattern with this absence before its first event.

        Raises:
            GraphError: if it is not a pattern, or has such an absence already.
        """
        checked = _pattern("absent().then()", pattern, whole=True)
        if checked.lead is not None:
            raise malformed(f"{checked} begins with absent() already")
        return _checked(replace(checked, lead=self.absence))

    def __str__(self) -> str:
        during = self.absence.during
        return f"absent({self.absence.step.name}, during={during})"


def absent(step: Pattern[Any], *, during: Any) -> Absent:
    """Require that no event fulfils a step in the time before the first one of a pattern: ``absent(...).then(...)``.

    Time before the key's first record counts as silent. An event with the timestamp of the first one of the match that
    comes before it breaks the absence.

    Args:
        step: the step.
        during: for how long, inclusive: a number, or a timedelta.

    Raises:
        GraphError: if an argument is not of this kind.

    >>> login = step("login")
    >>> str(absent(login, during=30).then(login))
    'not login for 30 -> login'
    """
    if during is None:
        raise malformed("absent() needs a number or a timedelta as its during; got None")
    return Absent(_absence("absent()", step, during))


def _pattern(called: str, other: Any, *, whole: bool = False) -> Pattern[Any]:
    """Return the argument, having checked that it is a pattern that can be a part.

    Raises:
        GraphError: if it is not.
    """
    if not isinstance(other, Pattern):
        raise malformed(f"{called} needs a pattern, such as step(...); got {short_repr(other)}")
    if not whole:
        check_is_part(other, called)
    return other


def _single(called: str, role: str, pattern: Any) -> Step:
    tree = pattern.tree if isinstance(pattern, Pattern) else None
    if not isinstance(tree, Single) or pattern.lead is not None or pattern.span is not None:
        got = str(pattern) if isinstance(pattern, Pattern) else short_repr(pattern)
        raise malformed(f"{called} needs one step(...) as its {role}; got {got}")
    return tree.step


def _gap(called: str, by: By, within: Any, without: Any) -> Gap:
    if within is not None:
        check_duration(called, "within", within)
    if without is None:
        return Gap(by, within)
    if by == "next":
        raise malformed(f"{called} has a without, but between an event and the next one there is nothing; use 'then'")
    return Gap(by, within, _single(called, "without", without))


def _absence(called: str, step: Any, during: Any) -> Absence:
    if during is not None:
        check_duration(called, "during", during)
    return Absence(_single(called, "step", step), during)


def _checked(pattern: Pattern[Any]) -> Pattern[Any]:
    """Return a pattern, having checked that its parts fit together.

    Raises:
        GraphError: if they do not.
    """
    check_parts(pattern)
    return pattern


def _parts(tree: Tree, kind: type[Either]) -> tuple[Tree, ...]:
    return tree.items if isinstance(tree, kind) else (tree,)
