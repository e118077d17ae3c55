"""Patterns: values built from steps by methods that read like what is looked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from numbers import Real
from types import GenericAlias, UnionType
from typing import Any, Generic, Literal, TypeVar, get_args, overload

from malflow.callables import deferred, takes
from malflow.diagnostics import describe, location, short_repr
from malflow.errors import GraphError
from malflow.patterns.automaton import Automaton
from malflow.patterns.explaining import ExplainingMachine, explain
from malflow.patterns.finding import Found, find
from malflow.patterns.machine import After, Machine
from malflow.patterns.masks import Masks, has_class
from malflow.patterns.match import SoFar
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
    bounds_of,
    can_be_empty,
    depth,
    positions,
    steps_of,
)

__all__ = ["Absent", "Pattern", "absent", "check_after", "step"]

V = TypeVar("V")
W = TypeVar("W")
M = TypeVar("M", bound=Machine)
V_co = TypeVar("V_co", covariant=True)

_KindValue = str | bytes | int | float | Enum | tuple[Hashable, ...]

_MOST_POSITIONS = 1_000
_DEEPEST = 100
_MOST_TOGETHER = 4
_CONNECTORS = ("then", "next", "then_any")


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
        self._check_inner("then_not()")
        if _ends_silent(self.tree):
            raise _error(
                f"{self} ends with an absence, which then_not() follows; write one step that stands for both: "
                'step("either", lambda value: ...)'
            )
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
        _check_counts(low, greatest)
        self._check_inner("times()")
        if by not in _CONNECTORS:
            raise _error(f"times() needs 'then', 'next' or 'then_any' as its by; got {short_repr(by)}")
        if any(bound.during is None for bound in bounds_of(self.tree) if isinstance(bound, Absence)):
            raise _error(f"{self} waits for the end of the whole pattern, so it can't be repeated; {_DURING}")
        return self._made(Repeated(self.tree, low, greatest, _gap("times()", by, within, without)))

    def at_least(
        self, low: int, *, by: By = "then", within: Any = None, without: Pattern[Any] | None = None
    ) -> Pattern[V_co]:
        """Repeat the pattern any number of times, from a least number on.

        At the end of a pattern this is the same as ``times(low)``: nothing is held back for a longer match. With
        ``then_not(...)`` behind, the match is told when there were no more for a time.

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
        self._check_inner("|")
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
                    raise _error(f"& needs steps on both sides; got {side}")
        self._check_inner("&")
        if len(steps) > _MOST_TOGETHER:
            raise _error(f"& takes up to {_MOST_TOGETHER} steps; got {len(steps)}")
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
            raise _error(f"{self} has a within() already")
        _check_duration("within()", "duration", duration)
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
        if can_be_empty(self.tree):
            raise _error(f"{self} needs no event at all; write one step that is not optional()")
        endless = any(bound.during is None for bound in bounds_of(self.tree) if isinstance(bound, Absence))
        if endless and self.span is None:
            raise _error(f"{self} waits for ever; {_DURING}, or call .within() on the whole pattern")

    def find(
        self,
        records: Iterable[Any],
        *,
        after: After = "end",
        kind: Callable[[Any], Any] | None = None,
        limit: int = 1_000,
    ) -> Found[V_co]:
        """Return the matches in records at hand, for a shell and for tests.

        Records are put in the order of time. When all of them are read, time passes to its end.

        Args:
            records: messages; or values, whose timestamps are 0, 1, 2, ...
            after: what a match uses up: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps whose kind is not a class.
            limit: how many partial matches a key may have.

        Raises:
            GraphError: if the pattern is not whole, or an argument is not of its kind.
            RuntimeError: if a key has more partial matches than `limit`.

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
        kind: Callable[[Any], Any] | None = None,
        limit: int = 1_000,
    ) -> str:
        """Return why the pattern was matched in records at hand or not, as text.

        The first line has the number of records that fulfil each step, apart from its `given`: a step that none
        fulfils explains most misses. Then comes a line for each event that began a match: how far it came, and how it
        ended. Unlike in `find`, time does not pass to its end behind the last record.

        Args:
            records: messages; or values, whose timestamps are 0, 1, 2, ...
            after: what a match uses up: see `KeyedStream.match`.
            kind: returns the kind of a value, for steps whose kind is not a class.
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
        kinds = [it for it in self.all_steps if it.kind is not None and not has_class(it)]
        if kinds and kind is None:
            raise _error(
                f"step {kinds[0].name!r} of {self} has the kind {short_repr(kinds[0].kind)}, which is no class; pass "
                'kind=, a function that returns the kind of a value, such as itemgetter("type")'
            )
        if kind is not None and not kinds:
            raise _error(f'{self} has no step with a kind that kind= could return; write step("name", "the kind")')
        if kind is not None and not callable(kind):
            raise _error(f"kind= needs a function that returns the kind of a value; got {short_repr(kind)}")
        return kind  # type: ignore[no-any-return] # it is a function

    def __bool__(self) -> bool:
        raise _error(f"{self} is neither true nor false; write | and & instead of 'or' and 'and'")

    def __str__(self) -> str:
        return printed(self.tree, self.span, self.lead)

    def __repr__(self) -> str:
        return f"<pattern {self}>"

    def _chained(self, by: By, other: Any, within: Any, without: Any) -> Pattern[Any]:
        called = f"{by}()"
        if isinstance(other, Absent):
            raise _error(f"{called} needs a pattern; got absent(...), which stands in front; call .then_not()")
        checked = _pattern(called, other)
        if self.span is not None:
            raise _error(f"{self} has a within(), which bounds a whole pattern; call it after {called}")
        if any(it.during is None for it in bounds_of(self.tree) if isinstance(it, Absence)):
            raise _error(f"{self} waits for the end of the whole pattern, so nothing can follow; {_DURING}")
        gap = _gap(called, by, within, without)
        items: tuple[Tree, ...] = (self.tree,)
        gaps: tuple[Gap, ...] = ()
        if isinstance(self.tree, Chain):
            items, gaps = self.tree.items, self.tree.gaps
        return self._made(Chain((*items, checked.tree), (*gaps, gap)))

    def _made(self, tree: Tree) -> Pattern[Any]:
        return _checked(replace(self, tree=tree))

    def _check_inner(self, called: str) -> None:
        """Check that a pattern can be a part of another one.

        Raises:
            GraphError: if it has what only a whole pattern has.
        """
        if self.span is not None:
            raise _error(f"{self} has a within(), which bounds a whole pattern; call it after {called}")
        if self.lead is not None and called != "then_not()":
            raise _error(f"{self} begins with absent(), which stands in front of a whole pattern, not in {called}")


@dataclass(frozen=True, slots=True)
class Absent:
    """The absence of a step, in front of a pattern."""

    absence: Absence

    def then(self, pattern: Pattern[W]) -> Pattern[W]:
        """Return the pattern with this absence before its first event.

        Raises:
            GraphError: if it is no pattern, or has such an absence already.
        """
        checked = _pattern("absent().then()", pattern, whole=True)
        if checked.lead is not None:
            raise _error(f"{checked} begins with absent() already")
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
        raise _error("absent() needs a number or a timedelta as its during; got None")
    return Absent(_absence("absent()", step, during))


@overload
def step(
    name: str,
    kind: UnionType,
    where: Callable[[Any], object] | None = None,
    *,
    given: Callable[[Any, SoFar[Any]], object] | None = None,
) -> Pattern[Any]: ...
@overload
def step(
    name: str,
    kind: type[V],
    where: Callable[[V], object] | None = None,
    *,
    given: Callable[[V, SoFar[Any]], object] | None = None,
) -> Pattern[V]: ...
@overload
def step(
    name: str, kind: Callable[[V], object], /, *, given: Callable[[V, SoFar[Any]], object] | None = None
) -> Pattern[V]: ...
@overload
def step(
    name: str, *, where: Callable[[V], object], given: Callable[[V, SoFar[Any]], object] | None = None
) -> Pattern[V]: ...
@overload
def step(name: str, *, given: Callable[[V, SoFar[Any]], object]) -> Pattern[V]: ...
@overload
def step(name: str, kind: Callable[[Any], object], /) -> Pattern[Any]: ...  # for lambdas
@overload
def step(
    name: str,
    kind: _KindValue | None = None,
    where: Callable[[Any], object] | None = None,
    *,
    given: Callable[[Any, SoFar[Any]], object] | None = None,
) -> Pattern[Any]: ...
def step(name: str, kind: Any = None, where: Any = None, *, given: Any = None) -> Pattern[Any]:
    """Return the pattern of one event.

    The functions must depend on their arguments alone: they are not called again after a restart, and not for each
    partial match.

    Args:
        name: the name of the step, unique in a pattern. The very same step may come again; its events share the name.
        kind: a class, or a union of classes, of which the value must be an instance; a value that the `kind` of
            ``match(kind=...)`` returns; or a predicate, in place of `where`.
        where: a predicate of a value, called only for values of the kind.
        given: ``(value, so_far) -> object``: a predicate of a value and the match so far, called only where the other
            conditions hold and a partial match waits for this step. ``so_far["name"]`` is a list, and
            ``so_far.last("name")`` its last value, or None.

    Raises:
        GraphError: if an argument is not of this kind.

    >>> str(step("failed", lambda login: not login["ok"]))
    'failed'
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise _error(f"step() needs a printable, non-blank string as its name; got {short_repr(name)}")
    if not _is_class(kind) and callable(kind):
        if where is not None:
            raise _error(f"step {name!r} has two predicates; write one, behind a class or a kind")
        kind, where = None, kind
    _check_kind(name, kind)
    _check_predicate(name, "where", where, "value")
    _check_predicate(name, "given", given, "value, so_far")
    return Pattern(Single(Step(name, kind, where, given)))


def check_after(after: object) -> None:
    """Check what a match uses up.

    Raises:
        GraphError: if it is nothing known.
    """
    if after not in ("end", "start", "all"):
        raise _error(f"after= needs 'end', 'start' or 'all'; got {short_repr(after)}")


_DURING = "write then_not(..., during=...)"


def _error(message: str) -> GraphError:
    return GraphError(message, location=location())


def _is_class(kind: Any) -> bool:
    return isinstance(kind, (type, UnionType, GenericAlias)) or (isinstance(kind, tuple) and any(map(_is_class, kind)))


def _check_kind(name: str, kind: Any) -> None:
    """Check that a kind is None, a class, a union of classes, or a value that can be looked up.

    Raises:
        GraphError: if it is not.
    """
    members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if isinstance(kind, (GenericAlias, tuple)) and _is_class(kind):
        raise _error(
            f"step {name!r} has {short_repr(kind)} as its kind; write a class, or several as One | Other, without "
            "parameters"
        )
    for member in members:
        if _is_class(member) and not isinstance(member, type):
            raise _error(f"step {name!r} has {short_repr(kind)} as its kind; write classes without parameters")
        try:
            hash(member)
        except TypeError:
            raise _error(
                f"step {name!r} needs a class, a predicate, or a hashable value as its kind; got {short_repr(member)}"
            ) from None


def _check_predicate(name: str, role: str, predicate: Any, arguments: str) -> None:
    """Check that a predicate is a plain function with these arguments; None is allowed.

    Raises:
        GraphError: if it is not.
    """
    if predicate is None:
        return
    if not callable(predicate):
        raise _error(f"step {name!r} needs a function as its {role}; got {short_repr(predicate)}")
    kind = deferred(predicate)
    if kind is not None:
        raise _error(
            f"step {name!r} needs a plain function as its {role}; got {kind}, {describe(predicate)}, which runs "
            "nothing when it is called"
        )
    if not takes(predicate, arguments.count(",") + 1):
        raise _error(f"step {name!r} calls {role}({arguments}), but {describe(predicate)} takes other arguments")


def _pattern(called: str, other: Any, *, whole: bool = False) -> Pattern[Any]:
    """Return the argument, having checked that it is a pattern that can be a part.

    Raises:
        GraphError: if it is not.
    """
    if not isinstance(other, Pattern):
        raise _error(f"{called} needs a pattern, such as step(...); got {short_repr(other)}")
    if not whole:
        other._check_inner(called)  # noqa: SLF001 - of this class
    return other


def _single(called: str, role: str, pattern: Any) -> Step:
    tree = pattern.tree if isinstance(pattern, Pattern) else None
    if not isinstance(tree, Single) or pattern.lead is not None or pattern.span is not None:
        got = str(pattern) if isinstance(pattern, Pattern) else short_repr(pattern)
        raise _error(f"{called} needs one step(...) as its {role}; got {got}")
    return tree.step


def _gap(called: str, by: By, within: Any, without: Any) -> Gap:
    if within is not None:
        _check_duration(called, "within", within)
    if without is None:
        return Gap(by, within)
    if by == "next":
        raise _error(f"{called} has a without, but between an event and the next one there is nothing; use 'then'")
    return Gap(by, within, _single(called, "without", without))


def _absence(called: str, step: Any, during: Any) -> Absence:
    if during is not None:
        _check_duration(called, "during", during)
    return Absence(_single(called, "step", step), during)


def _check_duration(called: str, role: str, duration: Any) -> None:
    """Check that a duration is a number or a timedelta, and not negative.

    Raises:
        GraphError: if it is not.
    """
    is_number = not isinstance(duration, bool) and isinstance(duration, (Real, Decimal)) and isfinite(duration)
    if not is_number and not isinstance(duration, timedelta):
        raise _error(f"{called} needs a number or a timedelta as its {role}; got {short_repr(duration)}")
    if duration < duration - duration:
        raise _error(f"{called} needs a {role} that is not negative; got {short_repr(duration)}")


def _check_counts(low: Any, high: Any) -> None:
    """Check how often a pattern is repeated.

    Raises:
        GraphError: if it can't be.
    """
    for count in (low,) if high is None else (low, high):
        if isinstance(count, bool) or not isinstance(count, int):
            raise _error(f"times() needs integers; got {short_repr(count)}")
    if low < 0 or (high is not None and high < 1):
        raise _error(f"times() needs a low of at least 0 and a high of at least 1; got {low} and {high}")
    if high is not None and low > high:
        raise _error(f"times() needs a low that is not above the high; got {low} and {high}")


def _checked(pattern: Pattern[Any]) -> Pattern[Any]:
    """Return a pattern, having checked that its parts fit together.

    Raises:
        GraphError: if they do not.
    """
    count = positions(pattern.tree)
    if count > _MOST_POSITIONS:
        raise _error(f"a pattern has up to {_MOST_POSITIONS:,} steps, repetitions included; this one has {count:,}")
    if depth(pattern.tree) > _DEEPEST:
        raise _error(f"a pattern is up to {_DEEPEST} deep; call .then() on the whole, not inside of each argument")
    _check_names(pattern)
    _check_units(pattern)
    return pattern


def _check_names(pattern: Pattern[Any]) -> None:
    known: dict[str, Step] = {}
    for one in pattern.all_steps:
        if known.setdefault(one.name, one) != one:
            raise _error(f"{pattern} has two different steps named {one.name!r}; name each of them differently")


def _check_units(pattern: Pattern[Any]) -> None:
    durations = [pattern.span, None if pattern.lead is None else pattern.lead.during]
    durations += [it.during if isinstance(it, Absence) else it.within for it in bounds_of(pattern.tree)]
    given = [it for it in durations if it is not None]
    if len({isinstance(it, timedelta) for it in given}) > 1:
        shown = ", ".join(map(short_repr, given))
        raise _error(f"{pattern} has durations of different types: {shown}; write timedeltas, or numbers")


def _parts(tree: Tree, kind: type[Either]) -> tuple[Tree, ...]:
    return tree.items if isinstance(tree, kind) else (tree,)


def _ends_silent(tree: Tree) -> bool:
    """Whether a match of a tree can end with an absence."""
    match tree:
        case Silenced():
            return True
        case Chain(items=items):
            for item in reversed(items):
                if _ends_silent(item):
                    return True
                if not can_be_empty(item):
                    return False
            return False
        case Either(items=items):
            return any(map(_ends_silent, items))
        case Repeated(item=item):
            return _ends_silent(item)
        case _:
            return False
