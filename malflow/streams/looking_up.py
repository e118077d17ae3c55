"""The stream method that joins records with a table outside of the dataflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from malflow.checks import check_choice, check_whole_number, checked_duration
from malflow.connectors.by_name import Connection
from malflow.durations import Duration
from malflow.lookups.contract import LookupTable
from malflow.nodes import StatelessNode
from malflow.operators.calls.lookup import LOOKUP_COUNTS, Lookup, check_cachetools
from malflow.streams.arguments import checked_field_of, checked_function, checked_table, malformed
from malflow.streams.handle import StreamHandle
from malflow.type_parameters import K, T, V_co

if TYPE_CHECKING:
    from malflow.streams.stream import Stream

__all__ = ["LookupOperators"]

A = TypeVar("A")
R = TypeVar("R")
VO = TypeVar("VO")


class LookupOperators(StreamHandle[K, V_co, T]):
    """The method for look-ups."""

    __slots__ = ()

    @overload
    def lookup(
        self,
        name: str,
        by: Callable[[V_co], A],
        table: LookupTable[A, R],
        joiner: Callable[[V_co, R | None], VO],
        *,
        how: Literal["left"] = "left",
        cache: Duration | None = None,
        most: int = 100_000,
    ) -> Stream[K, VO, T]: ...
    @overload
    def lookup(
        self,
        name: str,
        by: Callable[[V_co], A],
        table: LookupTable[A, R],
        joiner: Callable[[V_co, R], VO],
        *,
        how: Literal["inner"],
        cache: Duration | None = None,
        most: int = 100_000,
    ) -> Stream[K, VO, T]: ...
    @overload
    def lookup(
        self,
        name: str,
        by: str | None,
        table: LookupTable[Any, R],
        joiner: Callable[[V_co, Any], VO],
        *,
        how: Literal["left", "inner"] = "left",
        cache: Duration | None = None,
        most: int = 100_000,
    ) -> Stream[K, VO, T]: ...
    @overload
    def lookup(
        self,
        name: str,
        by: Callable[[V_co], Any] | str | None,
        table: Connection,
        joiner: Callable[[V_co, Any], VO],
        *,
        how: Literal["left", "inner"] = "left",
        cache: Duration | None = None,
        most: int = 100_000,
    ) -> Stream[K, VO, T]: ...
    def lookup(
        self,
        name: str,
        by: Callable[[V_co], Any] | str | None,
        table: LookupTable[Any, Any] | Connection,
        joiner: Callable[[V_co, Any], VO],
        *,
        how: Literal["left", "inner"] = "left",
        cache: Duration | None = None,
        most: int = 100_000,
    ) -> Any:
        """Join each record with the row that a table outside of the dataflow has for a key *now*.

        The table is asked once for the distinct keys of a batch of records, in the order of the batch. A run that
        resumes from a snapshot asks again for the records after it, and may get other rows: results depend on the
        moment at which a record is processed. If they must not depend on that, bring the table into the dataflow as a
        stream, and use a join.

        If the table can't be asked, after its retries, the run fails; no record is joined with a row that is not known.

        Args:
            name: the operator's name.
            by: the key to ask for: a function of the value, or the name of its item or attribute; None for the value.
                It must be hashable.
            table: a table, such as `malflow.connectors.redis.RedisLookup`, what `malflow.connect` returns for a URL, or
                an object with ``get_many(keys)``.
            joiner: returns the result for a value and its row; the row may be None.
            how: ``"inner"`` to drop records without a row, for which `joiner` is then not called.
            cache: how long each worker may use a row again, by the time of ticks; the absence of a row is kept for a
                tenth of that. By default each batch of records asks again. Needs ``malflow[lookups]``.
            most: the maximum number of rows that a worker keeps; those used last stay.

        Raises:
            MissingDependency: if `cache` is given and cachetools is not installed.

        >>> from malflow.lookups import LookupTable
        >>> class Names(LookupTable):
        ...     def get_many(self, keys):
        ...         return {key: {1: "one", 2: "two"}.get(key) for key in keys}
        >>> run([1, 3, 1], lambda stream: stream.lookup("names", None, Names(), lambda n, name: (n, name)))
        [(1, 'one'), (3, None), (1, 'one')]
        """
        table = checked_table(name, table)
        check_choice(partial(malformed, name), "how", how, ("left", "inner"))
        if cache is not None:
            cache = checked_duration(partial(malformed, name), "cache", cache, or_else="None")
        check_whole_number(partial(malformed, name), "most", most)
        if cache is not None:
            check_cachetools()
        logic = partial(
            Lookup,
            by=checked_field_of(name, "by", by),
            table=table,
            joiner=checked_function(name, "joiner", joiner, "value, row"),
            inner=how == "inner",
            cache=cache,
            most=most,
        )
        return self._at(self._append(StatelessNode(name, logic, counts=LOOKUP_COUNTS)))
