"""Methods of keyed streams that join them by key and time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from malflow.errors import short_repr
from malflow.operators.epochs.frontiers import INPUTS
from malflow.operators.joins.asof_join import AsofJoin
from malflow.operators.joins.interval_join import Interval, IntervalJoin
from malflow.operators.joins.two_streams import migrated_values
from malflow.states.kinds import StateKind
from malflow.streams.arguments import checked_field_of, checked_function, malformed
from malflow.streams.stateful import StatefulOperators

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream

__all__ = ["JoinOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
V2 = TypeVar("V2")
T = TypeVar("T")

_Migrate = Callable[[Any, int], Any] | None

_KEPT = {"inner": (False, False), "left": (True, False), "right": (False, True), "outer": (True, True)}
"""Whether left and right records without a partner are emitted, by the kind of a join."""

_ARTICLES = {"inner": "an", "left": "a", "right": "a", "outer": "an"}


class JoinOperators(StatefulOperators[K, V_co, T]):
    """Methods that join streams of which the keys are placed on workers by one partitioner."""

    __slots__ = ()

    @overload
    def interval_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        before: Any,
        after: Any,
        how: Literal["inner"] = "inner",
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co, V2], T]: ...
    @overload
    def interval_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        before: Any,
        after: Any,
        how: Literal["left"],
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co, V2 | None], T]: ...
    @overload
    def interval_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        before: Any,
        after: Any,
        how: Literal["right"],
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co | None, V2], T]: ...
    @overload
    def interval_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        before: Any,
        after: Any,
        how: Literal["outer"],
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co, V2] | tuple[V_co, None] | tuple[None, V2], T]: ...
    def interval_join(
        self,
        name: str,
        right: Any,
        *,
        before: Any,
        after: Any,
        how: str = "inner",
        version: int = 1,
        migrate: Any = None,
    ) -> Any:
        """Pair the records of two streams whose keys are equal and whose timestamps are close to each other.

        A pair has ``left - before <= right <= left + after``, for the timestamps of both records. It is emitted when
        the second of them arrives, with the later of both timestamps. The order of a record's pairs is not specified.

        With another `how` than ``inner``, records without a partner are emitted as well, once, with None for the
        partner: when the epoch (watermark) of both streams rules out that one arrives. Their timestamp is the last one
        that a partner could have given the pair: that of a left record plus `after`, of a right one plus `before`, or
        its own if that is later.

        Args:
            name: the operator's name; snapshots store the records under it that may still find a partner.
            right: the other stream, which may be the same. The keys of both must be placed by one partitioner.
            before: how much earlier than the left record the right one may be: a number, or a timedelta.
            after: how much later it may be. One of both may be negative, if their sum is not: ``before=-1, after=5``
                is from 1 to 5 later.
            how: ``inner``, ``left``, ``right`` or ``outer``: the sides whose records without a partner are emitted.
            version: the schema version of the records: increase it when their classes or the bounds change. With other
                bounds, the join starts without records.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.

        >>> def neighbours(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     return keyed.interval_join("next", keyed, before=-1, after=1)
        >>> run([5, 6, 7], neighbours)
        [(5, 6), (6, 7)]
        """
        _check_bounds(name, before, after)
        if how not in _KEPT:
            known = ", ".join(map(repr, _KEPT))
            raise malformed(name, f"needs one of {known} as its how; got {short_repr(how)}")
        logic = partial(IntervalJoin, interval=Interval(before, after, _KEPT[how]))
        definition = f"{_ARTICLES[how]} {how} join from {before} before to {after} after"
        return self._join(name, logic, [right], definition, version, migrate)

    @overload
    def asof_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        tolerance: Any = None,
        how: Literal["left"] = "left",
        tie: Callable[[V2], Any] | str | None = ...,
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co, V2 | None], T]: ...
    @overload
    def asof_join(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        *,
        tolerance: Any = None,
        how: Literal["inner"],
        tie: Callable[[V2], Any] | str | None = ...,
        version: int = ...,
        migrate: _Migrate = ...,
    ) -> KeyedStream[K, tuple[V_co, V2], T]: ...
    def asof_join(
        self,
        name: str,
        right: Any,
        *,
        tolerance: Any = None,
        how: str = "left",
        tie: Any = None,
        version: int = 1,
        migrate: Any = None,
    ) -> Any:
        """Pair each record with the newest record of another stream that has its key and is not later.

        A pair is emitted when the epoch (watermark) of both streams reaches the left record: no other right record can
        come in between then. It has the timestamp of the left record. So the right stream is a table with versions,
        and each left record finds the version of its time. Until there is an epoch from the right stream, left records
        wait: if it is seldom written, give it epochs that advance without records.

        Of right records with equal timestamps, the last to arrive counts, unless `tie` orders them. The newest one of
        each key is kept forever, unless there is a tolerance.

        Args:
            name: the operator's name; snapshots store the records under it that are still needed.
            right: the other stream, which may be the same. The keys of both must be placed by one partitioner.
            tolerance: how much older the right record may be: a number, or a timedelta; None if there is no limit.
            how: ``left`` to emit records that find none, with None for the partner; ``inner`` to drop them.
            tie: what orders right records with equal timestamps, of which the greatest counts: a function of the
                value, or the name of its item or attribute. Then the result does not depend on the order of arrival.
            version: the schema version of the records: increase it when their classes or the tolerance change. With
                another tolerance, the join starts without records.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.

        >>> def priced(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     return keyed.asof_join("price", keyed.filter("even", lambda value: value % 2 == 0))
        >>> run([5, 6, 7], priced)
        [(5, None), (6, 6), (7, 6)]
        """
        if how not in ("left", "inner"):
            raise malformed(name, f"needs 'left' or 'inner' as its how; got {short_repr(how)}")
        if tolerance is not None:
            _check_length(name, tolerance, "tolerance")
            if tolerance < tolerance - tolerance:
                raise malformed(name, f"needs a tolerance that is not negative; got {short_repr(tolerance)}")
        tie = checked_field_of(name, "tie", tie)
        logic = partial(AsofJoin, tolerance=tolerance, keeps_left=how == "left", tie=tie)
        limit = "" if tolerance is None else f" with a tolerance of {tolerance}"
        definition = f"{_ARTICLES[how]} {how} as-of join{limit}"
        return self._join(name, logic, [right], definition, version, migrate)

    def _join(self, name: str, logic: Any, others: Any, definition: str, version: int, migrate: Any) -> Any:
        if migrate is not None:
            migrate = partial(migrated_values, migrate=checked_function(name, "migrate", migrate, "old, old_version"))
        return self._stateful(
            name,
            logic,
            StateKind.JOIN,
            version,
            migrate,
            others=others,
            hidden=((INPUTS, StateKind.FRONTIER),),
            definition=definition,
            panes=definition,
        )


def _check_bounds(name: str, before: Any, after: Any) -> None:
    for bound, what in ((before, "before"), (after, "after")):
        _check_length(name, bound, what)
    if isinstance(before, timedelta) != isinstance(after, timedelta):
        raise malformed(
            name,
            f"needs two numbers or two timedeltas as before and after; got {short_repr(before)} and "
            f"{short_repr(after)}",
        )
    if before + after < before - before:
        raise malformed(
            name,
            f"has before={before!r} and after={after!r}, whose sum is negative, so that no timestamp lies between; "
            "the right record may be from `before` earlier to `after` later than the left one",
        )


def _check_length(name: str, length: Any, what: str) -> None:
    """Check that an argument is a number or a timedelta.

    Raises:
        GraphError: if it is not.
    """
    is_number = not isinstance(length, bool) and isinstance(length, (Real, Decimal)) and isfinite(length)
    if not is_number and not isinstance(length, timedelta):
        raise malformed(name, f"needs a number or a timedelta as its {what}; got {short_repr(length)}")
