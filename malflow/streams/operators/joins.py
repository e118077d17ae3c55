"""Methods of keyed streams that join them by key and time."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from malflow.checks import check_choice, checked_length
from malflow.operators.epochs.frontiers import INPUTS
from malflow.operators.joins.asof_join import AsofJoin
from malflow.operators.joins.interval_join import Interval, IntervalJoin, arranged_pane
from malflow.operators.joins.two_streams import migrated_values
from malflow.states.kinds import StateKind, StateLayout
from malflow.streams.arguments import checked_field_of, checked_function, malformed
from malflow.streams.operators.stateful import StatefulOperators
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import AsOf, Bounded
    from malflow.streams.stream import KeyedStream

__all__ = ["JoinOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
V2 = TypeVar("V2")
T = TypeVar("T")


_KEPT = {"inner": (False, False), "left": (True, False), "right": (False, True), "outer": (True, True)}
"""Whether left and right records without a partner are emitted, by the kind of a join."""

_ARTICLES = {"inner": "an", "left": "a", "right": "a", "outer": "an"}


class JoinOperators(StatefulOperators[K, V_co, T]):
    """Methods that join streams keyed with the same partitioner."""

    __slots__ = ()

    @overload
    def interval_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["inner"] = "inner", **more: Unpack[Bounded]
    ) -> KeyedStream[K, tuple[V_co, V2], T]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["left"], **more: Unpack[Bounded]
    ) -> KeyedStream[K, tuple[V_co, V2 | None], T]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["right"], **more: Unpack[Bounded]
    ) -> KeyedStream[K, tuple[V_co | None, V2], T]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["outer"], **more: Unpack[Bounded]
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
        layout: StateLayout | None = None,
    ) -> Any:
        """Pair the records of two streams with equal keys and timestamps close to each other.

        The timestamps of a pair satisfy ``left - before <= right <= left + after``. It is emitted when its second
        record arrives, with the later of both timestamps. The order of a record's pairs is not specified.

        Unless `how` is ``inner``, records without a partner are emitted as well, once, with None for the partner, when
        the epoch (watermark) of both streams rules one out. Their timestamp is the latest that the pair could have had:
        that of a left record plus `after`, that of a right one plus `before`, or its own if that is later.

        Args:
            name: the operator's name; snapshots store the records under it that may still find a partner.
            right: the other stream; may be this one. Both must be keyed with the same partitioner.
            before: how much earlier than the left record the right one may be: a number, or a timedelta.
            after: how much later it may be. One of the two may be negative if their sum is not: ``before=-1, after=5``
                means 1 to 5 later.
            how: ``inner``, ``left``, ``right`` or ``outer``: the sides that emit records without a partner.
            version: the schema version of the records: increase it when their classes or the bounds change. If the
                bounds change, the join starts without records.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.
            layout: what the values of each stream hold, which are tuples, for programs that are generated: see
                `StateLayout`.

        >>> def neighbours(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     return keyed.interval_join("next", keyed, before=-1, after=1)
        >>> run([5, 6, 7], neighbours)
        [(5, 6), (6, 7)]
        """
        before, after = _checked_bounds(name, before, after)
        check_choice(partial(malformed, name), "how", how, tuple(_KEPT))
        logic = partial(IntervalJoin, interval=Interval(before, after, _KEPT[how]))
        definition = f"{_ARTICLES[how]} {how} join from {before} before to {after} after"
        return self._join(name, logic, [right], definition, version, migrate, layout)

    @overload
    def asof_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["left"] = "left", **more: Unpack[AsOf[V2]]
    ) -> KeyedStream[K, tuple[V_co, V2 | None], T]: ...
    @overload
    def asof_join(
        self, name: str, right: KeyedStream[K, V2, T], *, how: Literal["inner"], **more: Unpack[AsOf[V2]]
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

        A pair is emitted when the epoch (watermark) of both streams reaches the left record, since no closer right
        record can arrive after that. It has the timestamp of the left record. So the right stream is a versioned table,
        in which each left record finds the version valid at its time. Left records wait for epochs of the right stream:
        if that has few records, give it epochs that advance without input.

        Of right records with equal timestamps, the last to arrive counts, unless `tie` orders them. Without a
        tolerance, the newest right record of each key is kept forever.

        Args:
            name: the operator's name; snapshots store the records under it that are still needed.
            right: the other stream; may be this one. Both must be keyed with the same partitioner.
            tolerance: how much older the right record may be: a number, or a timedelta; None if there is no limit.
            how: ``left`` to emit records without a partner, with None in its place; ``inner`` to drop them.
            tie: orders right records with equal timestamps, of which the greatest counts: a function of the value, or
                the name of its item or attribute. The result then does not depend on the order of arrival.
            version: the schema version of the records: increase it when their classes or the tolerance change. If the
                tolerance changes, the join starts without records.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.

        >>> def priced(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     return keyed.asof_join("price", keyed.filter("even", lambda value: value % 2 == 0))
        >>> run([5, 6, 7], priced)
        [(5, None), (6, 6), (7, 6)]
        """
        check_choice(partial(malformed, name), "how", how, ("left", "inner"))
        if tolerance is not None:
            tolerance = checked_length(partial(malformed, name), "tolerance", tolerance, may_be_zero=True)
        tie = checked_field_of(name, "tie", tie)
        logic = partial(AsofJoin, tolerance=tolerance, keeps_left=how == "left", tie=tie)
        limit = "" if tolerance is None else f" with a tolerance of {tolerance}"
        definition = f"{_ARTICLES[how]} {how} as-of join{limit}"
        return self._join(name, logic, [right], definition, version, migrate)

    def _join(
        self,
        name: str,
        logic: Any,
        others: Any,
        definition: str,
        version: int,
        migrate: Any,
        layout: StateLayout | None = None,
    ) -> Any:
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
            definition=definition if layout is None else layout.definition,
            panes=definition,
            layout=layout,
            arrange=None if layout is None else arranged_pane,
        )


def _checked_bounds(name: str, before: Any, after: Any) -> tuple[Any, Any]:
    """Return how much earlier and later a right record may be."""
    asked_by = partial(malformed, name)
    before = checked_length(asked_by, "before", before, may_be_negative=True)
    after = checked_length(asked_by, "after", after, may_be_negative=True)
    if isinstance(before, timedelta) != isinstance(after, timedelta):
        raise malformed(
            name,
            f"needs two numbers or two timedeltas as before and after; got {short_repr(before)} and "
            f"{short_repr(after)}",
        )
    if before + after < before - before:
        raise malformed(
            name,
            f"has before={before!r} and after={after!r}, whose sum is negative, so no timestamp lies between; "
            "the right record may be from `before` earlier to `after` later than the left one",
        )
    return before, after
