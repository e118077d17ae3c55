"""Patterns: values built from steps by methods that read like a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from malflow.aggregators.fields import read
from malflow.checks import check_choice, checked_length, located
from malflow.patterns.automaton import Automaton
from malflow.patterns.checks import (
    check_after,
    check_can_end,
    check_can_follow,
    check_can_go_on,
    check_can_repeat,
    check_counts,
    check_is_part,
    check_kind_function,
    check_parts,
    malformed,
)
from malflow.patterns.explaining import ExplainingMachine, Found, explain, find
from malflow.patterns.machine import After, Machine
from malflow.patterns.positions import Masks
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
from malflow.words import short_repr

__all__ = ["Absent", "Pattern", "absent"]

V = TypeVar("V")
W = TypeVar("W")
M = TypeVar("M", bound=Machine)
V_co = TypeVar("V_co", covariant=True)

_MOST_TOGETHER = 4
"""Steps in any order: four have 24 orders, five would have 120, and three would refuse useful patterns."""


@dataclass(frozen=True, slots=True, repr=False)
class Pattern(Generic[V_co]):
    """A pattern of a key's events, ordered by time.

    A pattern is a value: every method returns a new one. ``str(pattern)`` prints it. A match takes one event for each
    step, in order; other events of the key may lie in between, unless a connector or an absence excludes them.

    Attributes:
        tree: the steps and their connectors.
        span: the greatest distance of the last event from the first, inclusive; None for no limit.
        lead: the absence before the first event, or None.
    """

    tree: Tree
    span: Any = None
    lead: Absence | None = None

    def then(self, other: Pattern[W], *, within: Any = None, without: Pattern[Any] | None = None) -> Pattern[V_co | W]:
        """Continue with the first event that matches; events that no step waits for may lie in between.

        An event that a step can take is never skipped: ``a.then(b)`` takes the first b after an a.

        Args:
            other: the pattern that follows.
            within: how much later than the previous event it may be, inclusive: a number, a timedelta, or a text such
                as ``"5 min"``.
            without: a step that no event strictly between the two may satisfy. An event that satisfies both this step
                and the next one completes the match.

        Raises:
            GraphError: if an argument is invalid, or two different steps have the same name.

        >>> str(step("order").then(step("paid"), without=step("cancelled")))
        'order ->[!cancelled] paid'
        """
        return self._chained("then", other, within, without)

    def next(self, other: Pattern[W], *, within: Any = None, without: None = None) -> Pattern[V_co | W]:
        """Continue with the very next event of the key, whatever its kind: filter the stream first.

        Args:
            other: the pattern that follows.
            within: how much later than the previous event it may be, inclusive.
            without: not allowed, since no event lies in between.

        Raises:
            GraphError: as for `then`.

        >>> str(step("up").next(step("down")))
        'up => down'
        """
        return self._chained("next", other, within, without)

    def then_any(
        self, other: Pattern[W], *, within: Any = None, without: Pattern[Any] | None = None
    ) -> Pattern[V_co | W]:
        """Continue with any event that matches: each may be taken, or skipped for a later one.

        The number of partial matches can grow exponentially with the number of these connectors.

        Args:
            other: the pattern that follows.
            within: how much later than the previous event it may be, inclusive.
            without: a step that no event strictly between the two may satisfy.

        Raises:
            GraphError: as for `then`.

        >>> str(step("a").then_any(step("b"), within=5))
        'a ~>[within 5] b'
        """
        return self._chained("then_any", other, within, without)

    def then_not(self, step: Pattern[Any], *, during: Any = None) -> Pattern[V_co]:
        """Continue with an absence: no later event satisfies a step until `during` after the last event, inclusive.

        At the end of a pattern, the match is complete when that time is over. In the middle, the next event is taken
        only after it. An event with the same timestamp as the last one that arrives after it counts as later.

        Args:
            step: the step.
            during: the duration. None, only at the end of a pattern, for the rest of its whole `within`.

        Raises:
            GraphError: if an argument is invalid, or the pattern already ends with an absence.

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

        At the end of a pattern, a loop stops at its minimum.

        Args:
            low: the minimum number of repetitions.
            high: the maximum number; None for any number; by default, `low`.
            by: the connector between repetitions: ``then``, ``next`` or ``then_any``.
            within: how much later than the previous event a repetition may begin, inclusive.
            without: a step that no event strictly between two repetitions may satisfy.

        Raises:
            GraphError: if an argument is invalid.

        >>> str(step("failed").times(3, without=step("login"))), str(step("up").times(2, 4, by="next"))
        ('failed{3}[!login]', 'up{2,4}[=>]')
        """
        greatest = low if high == "low" else high
        check_counts(low, greatest)
        check_is_part(self, "times()")
        check_choice(located("times()"), "by", by, ("then", "next", "then_any"))
        check_can_repeat(self)
        return self._made(Repeated(self.tree, low, greatest, _gap("times()", by, within, without)))

    def at_least(
        self, low: int, *, by: By = "then", within: Any = None, without: Pattern[Any] | None = None
    ) -> Pattern[V_co]:
        """Repeat the pattern at least a number of times.

        At the end of a pattern this is the same as ``times(low)``: a match does not wait for further repetitions. Add
        ``then_not(...)`` to emit it once there have been no more for a time.

        Args:
            low: the minimum number of repetitions.
            by: the connector between repetitions: ``then``, ``next`` or ``then_any``.
            within: how much later than the previous event a repetition may begin, inclusive.
            without: a step that no event strictly between two repetitions may satisfy.

        Raises:
            GraphError: if an argument is invalid.

        >>> str(step("failed").at_least(3))
        'failed{3,}'
        """
        return self.times(low, None, by=by, within=within, without=without)

    def optional(self) -> Pattern[V_co]:
        """Make the pattern optional; an event that matches is still taken.

        Raises:
            GraphError: if the pattern has its own `within` or `absent`.

        >>> str(step("order").then(step("reminder").optional()).then(step("paid")))
        'order -> reminder? -> paid'
        """
        return self.times(0, 1)

    def __or__(self, other: Pattern[W]) -> Pattern[V_co | W]:
        """Return the pattern that matches either of the two."""
        checked = _pattern("|", other)
        check_is_part(self, "|")
        return self._made(Either((*_parts(self.tree, Either), *_parts(checked.tree, Either))))

    def __and__(self, other: Pattern[W]) -> Pattern[V_co | W]:
        """Return the pattern of two to four steps in any order, each with its own event."""
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
        """Limit the time from the first to the last event, inclusive. Call it last.

        Args:
            duration: a number, a timedelta, or a text such as ``"5 min"``.

        Raises:
            GraphError: if it is neither, or the pattern already has a `within`.

        >>> str(step("failed").times(3).then(step("login")).within(300))
        'failed{3} -> login within 300'
        """
        if self.span is not None:
            raise malformed(f"{self} already has a within()")
        return _checked(replace(self, span=checked_length(located("within()"), "duration", duration, may_be_zero=True)))

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps: those that take events, as written, then those that must not occur."""
        return tuple(step.name for step in self.all_steps)

    @property
    def all_steps(self) -> list[Step]:
        """The steps, in the order of `steps`."""
        return steps_of(self.tree, self.lead)

    @property
    def shape(self) -> str:
        """The pattern as text without numbers, durations and predicates. Patterns of the same shape share states."""
        return shape(self.tree, self.lead)

    def check(self) -> None:
        """Check that the pattern is complete: that it needs an event, and that its absences end.

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
        """Return the matches in a list of records, for interactive use and tests.

        Records are sorted by time. After the last record, time advances to its end.

        Args:
            records: messages; or values, with the timestamps 0, 1, 2, ...
            after: which partial matches a match discards: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps with a kind that is not a class; or the name of the field that
                holds it.
            limit: the maximum number of partial matches of a key.

        Raises:
            GraphError: if the pattern is incomplete, or an argument is invalid.
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
        """Explain, as text, why the pattern was matched in a list of records or not.

        The first line has the number of records that satisfy each step, apart from its `given`: most misses are
        explained by a step that no record satisfies. Each further line is about an event that began a match: its
        progress, and how it ended. Unlike in `find`, time stops at the last record.

        Args:
            records: messages; or values, with the timestamps 0, 1, 2, ...
            after: which partial matches a match discards: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps with a kind that is not a class; or the name of the field that
                holds it.
            limit: the maximum number of partial matches of a key.

        Raises:
            GraphError: if the pattern is incomplete, or an argument is invalid.

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
            after: which partial matches a match discards.
            limit: the maximum number of partial matches of a key.
            drops_oldest: whether the oldest ones are dropped at the limit.
            in_order: whether the events of a key arrive in the order of time.
            checks: whether conditions on the match so far are called twice, to detect those that are not deterministic.

        Raises:
            GraphError: if the pattern is incomplete.
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
        """Check the function that returns the kind of a value, and return it."""
        check_kind_function(self, kind)
        return partial(read, kind) if isinstance(kind, str) else kind

    def __bool__(self) -> bool:
        raise malformed(f"{self} is neither true nor false; write | and & instead of 'or' and 'and'")

    def __str__(self) -> str:
        return printed(self.tree, self.span, self.lead)

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    def _chained(self, by: By, other: Any, within: Any, without: Any) -> Pattern[Any]:
        asked_by = f"{by}()"
        if isinstance(other, Absent):
            raise malformed(f"{asked_by} needs a pattern; got absent(...): that begins a pattern; call .then_not()")
        checked = _pattern(asked_by, other)
        check_can_go_on(self, asked_by)
        gap = _gap(asked_by, by, within, without)
        items: tuple[Tree, ...] = (self.tree,)
        gaps: tuple[Gap, ...] = ()
        if isinstance(self.tree, Chain):
            items, gaps = self.tree.items, self.tree.gaps
        return self._made(Chain((*items, checked.tree), (*gaps, gap)))

    def _made(self, tree: Tree) -> Pattern[Any]:
        return _checked(replace(self, tree=tree))


@dataclass(frozen=True, slots=True)
class Absent:
    """The absence of a step before a pattern."""

    absence: Absence

    def then(self, pattern: Pattern[W]) -> Pattern[W]:
        """Return the pattern with this absence before its first event.

        Raises:
            GraphError: if it is not a pattern, or already has such an absence.
        """
        checked = _pattern("absent().then()", pattern, whole=True)
        if checked.lead is not None:
            raise malformed(f"{checked} already begins with absent()")
        return _checked(replace(checked, lead=self.absence))

    def __str__(self) -> str:
        during = self.absence.during
        return f"absent({self.absence.step.name}, during={during})"


def absent(step: Pattern[Any], *, during: Any) -> Absent:
    """Require that no event satisfies a step for a time before the first event of a pattern: ``absent(...).then(...)``.

    The time before the key's first record counts as silent. An event with the same timestamp as the first event of the
    match, but arriving before it, breaks the absence.

    Args:
        step: the step.
        during: the duration, inclusive: a number, a timedelta, or a text such as ``"5 min"``.

    Raises:
        GraphError: if an argument is invalid.

    >>> login = step("login")
    >>> str(absent(login, during=30).then(login))
    'not login for 30 -> login'
    """
    if during is None:
        raise malformed("absent() needs a number or a timedelta as its during; got None")
    return Absent(_absence("absent()", step, during))


def _pattern(asked_by: str, other: Any, *, whole: bool = False) -> Pattern[Any]:
    """Check that an argument is a pattern that can be a part, and return it.

    Raises:
        GraphError: if it is not.
    """
    if not isinstance(other, Pattern):
        raise malformed(f"{asked_by} needs a pattern, such as step(...); got {short_repr(other)}")
    if not whole:
        check_is_part(other, asked_by)
    return other


def _single(asked_by: str, role: str, pattern: Any) -> Step:
    tree = pattern.tree if isinstance(pattern, Pattern) else None
    if not isinstance(tree, Single) or pattern.lead is not None or pattern.span is not None:
        got = str(pattern) if isinstance(pattern, Pattern) else short_repr(pattern)
        raise malformed(f"{asked_by} needs one step(...) as its {role}; got {got}")
    return tree.step


def _gap(asked_by: str, by: By, within: Any, without: Any) -> Gap:
    if within is not None:
        within = checked_length(located(asked_by), "within", within, may_be_zero=True)
    if without is None:
        return Gap(by, within)
    if by == "next":
        raise malformed(f"{asked_by} has a without, but no event lies between an event and the next one; use 'then'")
    return Gap(by, within, _single(asked_by, "without", without))


def _absence(asked_by: str, step: Any, during: Any) -> Absence:
    if during is not None:
        during = checked_length(located(asked_by), "during", during, may_be_zero=True)
    return Absence(_single(asked_by, "step", step), during)


def _checked(pattern: Pattern[Any]) -> Pattern[Any]:
    """Check that the parts of a pattern fit together, and return it.

    Raises:
        GraphError: if they do not.
    """
    check_parts(pattern)
    return pattern


def _parts(tree: Tree, kind: type[Either]) -> tuple[Tree, ...]:
    return tree.items if isinstance(tree, kind) else (tree,)
