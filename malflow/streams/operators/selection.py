"""Methods of keyed streams that drop, hold back, reorder or group records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from malflow.checks import checked_length
from malflow.operators.epochs.rounding import Step
from malflow.operators.keyed.collecting import Batches, Sort
from malflow.operators.keyed.distinct import Changes, Distinct
from malflow.operators.keyed.throttle import SlidingLimit, TokenBuckets
from malflow.states.kinds import StateKind
from malflow.streams.arguments import check_count, checked_field_of, malformed
from malflow.streams.operators.several import Throttled
from malflow.streams.operators.stateful import StatefulOperators
from malflow.windows import FOREVER, Forever
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream

__all__ = ["SelectionOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")

_By = Callable[[V_co], Any] | str | None
_Migrate = Callable[[Any, int], Any] | None

_LIMITS = {"sliding": SlidingLimit, "bucket": TokenBuckets}
"""The operator for each kind of limit."""


class SelectionOperators(StatefulOperators[K, V_co, T]):
    """Methods that drop, hold back, reorder or group the records of each key."""

    __slots__ = ()

    def distinct(
        self, name: str, by: _By[V_co] = None, *, within: Step | Forever | None = None, version: int = 1
    ) -> KeyedStream[K, V_co, T]:
        """Drop a record if one with the same key and id, less than `within` away in event time, has passed.

        The first record to arrive passes. So records that pass are at least `within` apart, and each dropped one is
        closer than that to one that passed. Epochs (watermarks) expire ids.

        Args:
            name: the operator's name; snapshots store the ids under it.
            by: the id: a function of the value, or the name of its item or attribute; by default the value itself.
            within: a number or a timedelta; or `malflow.windows.FOREVER`, to keep ids forever.
            version: increase it when `within` changes: the operator then starts without ids.

        Raises:
            GraphError: if `within` is missing, or not positive.

        >>> def unique(stream):
        ...     return stream.key_distribute("all", lambda msg: "all").distinct("unique", within=3)
        >>> run(["a", "b", "a", "a"], unique)
        ['a', 'b', 'a']
        """
        by = checked_field_of(name, "by", by)
        if within is None:
            raise malformed(
                name,
                "needs within=, the span of event time in which repetitions are dropped; ids expire after it; "
                "within=FOREVER, of malflow.windows, keeps them forever, in a state that grows without limit",
            )
        if within is not FOREVER:
            within = checked_length(partial(malformed, name), "within", within)
        lasting = f"within {within}"
        return self._stateful(  # type: ignore[no-any-return] # a keyed stream of the same records
            name,
            partial(Distinct, by=by, within=within),
            StateKind.DISTINCT,
            version,
            None,
            definition=f"distinct {lasting}",
            panes=lasting,
        )

    def changes(
        self, name: str, by: _By[V_co] = None, *, version: int = 1, migrate: _Migrate = None
    ) -> KeyedStream[K, V_co, T]:
        """Drop a record if its value equals that of its key's previous record, in order of arrival.

        Args:
            name: the operator's name; snapshots store the last value of each key under it.
            by: returns what to compare: a function of the value, or the name of its item or attribute; by default the
                value.
            version: the schema version of the compared values: increase it when their schema changes.
            migrate: ``(old, old_version) -> new``: converts the last compared value of a key; None drops the key.

        >>> def turns(stream):
        ...     return stream.key_distribute("all", lambda msg: "all").changes("turns")
        >>> run([1, 1, 2, 2, 1], turns)
        [1, 2, 1]
        """
        logic = partial(Changes, by=checked_field_of(name, "by", by))
        return self._stateful(  # type: ignore[no-any-return] # as above
            name, logic, StateKind.CHANGES, version, migrate, tells_by=()
        )

    def throttle(
        self, name: str, n: int, *, per: Step, kind: Literal["sliding", "bucket"] = "sliding", version: int = 1
    ) -> Throttled[K, V_co, T]:
        """Limit each key to `n` records in `per` of event time; return the records that pass, and those held back.

        Any span of `per` contains at most `n` records of a key that passed; it excludes its end, so two records exactly
        `per` apart never share a span. A record out of order passes if this stays true, and at most `n` newer records
        have passed.

        With ``kind="bucket"``, each key has a token bucket: it holds `n` tokens, and is refilled by one token every
        ``per / n``; a record passes if it can take a token. So a burst of `n` may be followed by single records at
        once: up to ``2 * n - 1`` records pass in a span of `per`, but in the long run no more than `n` per span. A
        record older than its key's newest one is treated as if it had that one's timestamp.

        Args:
            name: the operator's name; snapshots store the times, or the buckets, under it.
            n: the number of records.
            per: the span: a number or a timedelta.
            kind: ``sliding`` for a limit in any span, ``bucket`` for token buckets. A run may resume with the other
                kind: tokens missing from a bucket become records that passed at its last update, and the reverse.
            version: increase it when `n` or `per` changes: the operator then starts as if nothing had passed.

        Raises:
            GraphError: if `n`, `per` or `kind` is invalid.

        >>> def limited(stream):
        ...     passed, held_back = stream.key_distribute("all", lambda msg: "all").throttle("limit", 2, per=6)
        ...     return passed
        >>> run(range(8), limited)
        [0, 1, 6, 7]
        """
        check_count(name, n, "n")
        per = checked_length(partial(malformed, name), "per", per)
        if kind not in _LIMITS:
            raise malformed(name, f"needs 'sliding' or 'bucket' as its kind; got {short_repr(kind)}")
        limit = f"at most {n} per {per}"
        streams = self._stateful(
            name,
            partial(_LIMITS[kind], n=n, per=per),
            StateKind.THROTTLE,
            version,
            None,
            definition=limit,
            panes=limit,
            outputs=2,
        )
        return Throttled(*streams)

    def sort(
        self, name: str, tie: _By[V_co] = None, *, version: int = 1, migrate: _Migrate = None
    ) -> KeyedStream[K, V_co, T]:
        """Hold back records until an epoch (watermark), and emit them in the order of their timestamps.

        At each epoch, the records at or below it are emitted in ascending order; records with equal timestamps are
        ordered by `tie`, then by arrival. So downstream operators receive the records of a worker in event-time order.

        Args:
            name: the operator's name; snapshots store the waiting records under it.
            tie: orders equal timestamps: a function of the value, or the name of its item or attribute.
            version: the schema version of the values: increase it when their class changes.
            migrate: ``((timestamp, value), old_version) -> (timestamp, value)``; None drops the record.

        >>> def in_order(stream):
        ...     stamped = stream.assign_timestamps("at", lambda msg: msg.value)
        ...     on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(2))
        ...     return on_time.key_distribute("all", lambda msg: "all").sort("sort")
        >>> run([2, 1, 4, 3, 5], in_order)
        [1, 2, 3, 4, 5]
        """
        logic = partial(Sort, tie=checked_field_of(name, "tie", tie))
        return self._stateful(name, logic, StateKind.SORT, version, migrate)  # type: ignore[no-any-return] # as above

    def batch(
        self, name: str, size: int, *, within: Step, version: int = 1, migrate: _Migrate = None
    ) -> KeyedStream[K, list[V_co], T]:
        """Collect the values of each key into lists of up to `size`, in order of arrival.

        A list is complete when it has `size` values, or when event time or a record of the key is at least `within`
        after the timestamp of its first record. Its timestamp is that of the record that filled it, or the end of that
        span. At the end of the stream, incomplete lists are emitted as well.

        Args:
            name: the operator's name; snapshots store the incomplete lists under it.
            size: the maximum number of values in a list.
            within: the span of event time after which a list is emitted: a number or a timedelta.
            version: the schema version of the values: increase it when their class changes.
            migrate: ``([end, value, ...], old_version) -> [end, value, ...]``; None drops the list.

        >>> def lists(stream):
        ...     return stream.key_distribute("all", lambda msg: "all").batch("lists", 3, within=10)
        >>> run([1, 2, 3, 4, 5], lists)
        [[1, 2, 3], [4, 5]]
        """
        check_count(name, size, "size")
        within = checked_length(partial(malformed, name), "within", within)
        logic = partial(Batches, size=size, within=within)
        return self._stateful(name, logic, StateKind.BATCH, version, migrate)  # type: ignore[no-any-return] # lists of them
