"""Stream methods that ask outside of the dataflow: a table, or a function called for several records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from malflow.callables import deferred, takes
from malflow.checks import check_choice, check_whole_number, checked_duration
from malflow.connectors.by_name import Connection
from malflow.diagnostics import describe
from malflow.durations import Duration
from malflow.failures import Breaker, ErrorPolicy, OnError, Rate, Retry
from malflow.graph import check_name
from malflow.lookups.contract import LookupTable
from malflow.nodes import StatelessNode
from malflow.operators.calls.call_options import CALL_COUNTS, CallOptions
from malflow.operators.calls.calling_out import CallingOut
from malflow.operators.calls.lookup import LOOKUP_COUNTS, Lookup, check_cachetools
from malflow.streams.arguments import (
    check_count,
    checked_field_of,
    checked_function,
    checked_policy,
    checked_table,
    location,
    malformed,
)
from malflow.streams.handle import StreamHandle
from malflow.type_parameters import K, T, V_co
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Awaited, Cached, Threaded
    from malflow.streams.stream import Stream

__all__ = [
    "CallingOperators",
    "LookupOperators",
]

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
        **more: Unpack[Cached],
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
        **more: Unpack[Cached],
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
        **more: Unpack[Cached],
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
        **more: Unpack[Cached],
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


class CallingOperators(StreamHandle[K, V_co, T]):
    """The method for calls of systems outside."""

    __slots__ = ()

    @overload
    def map_async(
        self, name: str, function: Callable[[V_co], Awaitable[VO]], *, batch: None = None, **more: Unpack[Awaited]
    ) -> Stream[K, VO, T]: ...
    @overload
    def map_async(
        self,
        name: str,
        function: Callable[[list[V_co]], Awaitable[Sequence[VO]]],
        *,
        batch: int,
        **more: Unpack[Awaited],
    ) -> Stream[K, VO, T]: ...
    @overload
    def map_async(
        self, name: str, function: Callable[[V_co], VO], *, batch: None = None, **more: Unpack[Threaded]
    ) -> Stream[K, VO, T]: ...
    @overload
    def map_async(
        self, name: str, function: Callable[[list[V_co]], Sequence[VO]], *, batch: int, **more: Unpack[Threaded]
    ) -> Stream[K, VO, T]: ...
    def map_async(
        self,
        name: str,
        function: Callable[[Any], Any],
        *,
        capacity: int = 100,
        timeout: Duration | None = None,
        batch: int | None = None,
        retry: Retry | None = None,
        rate: Rate | None = None,
        breaker: Breaker | None = None,
        on_error: ErrorPolicy = "fail",
        threads: int | None = None,
    ) -> Any:
        """Replace each value with the result of ``await function(value)``; many calls are under way at a time.

        Results keep the order, keys and timestamps of the records. All calls for the records of a tick end within it,
        so a snapshot has nothing under way. A run that resumes from a snapshot calls again for the records after it:
        calls are made at least once, while states and exactly-once sinks have each result once.

        If a call fails after its retries, `on_error` decides about its record, or about each record of its list. By
        default the run ends with an error for the first such record, and calls for later records are cancelled. With
        another policy they continue; once all have ended, the policy is applied in the order of the records.

        The function runs on an event loop in a thread of its own. All operators of a process share this thread: the
        function must not block, and other functions run in another thread.

        Args:
            name: the operator's name.
            function: an asynchronous function, or an object with ``async def __call__``. If the object has methods
                ``open()`` and ``close()``, plain or asynchronous, they are called on that loop once in each process:
                before the first call, and at the end.
            capacity: the maximum number of calls at a time, in each process.
            timeout: how long an attempt may take; then it is cancelled, and fails with a `TimeoutError`.
            batch: calls the function with lists of up to so many values; it returns a list of as many results.
            retry: how often a call is repeated, and after which exceptions.
            rate: how many attempts begin in a second.
            breaker: when attempts are held back because too many have failed. Needs `retry`, whose `on` names the
                exceptions that count.
            on_error: the fate of a record whose call fails, as for `map`. A dead letter has the number of `attempts`.
            threads: calls a plain function instead, in so many threads; they are the capacity.

        >>> async def double(value):
        ...     return 2 * value
        >>> run([1, 2, 3], lambda stream: stream.map_async("double", double))
        [2, 4, 6]
        >>> run(["1", "2"], lambda stream: stream.map_async("numbers", int, threads=2))
        [1, 2]
        """
        _check_function(name, function, threads)
        check_count(name, capacity, "capacity")
        for what, count in (("batch", batch), ("threads", threads)):
            if count is not None:
                check_count(name, count, what)
        if timeout is not None:
            timeout = checked_duration(partial(malformed, name), "timeout", timeout, or_else="None")
        if timeout is not None and threads is not None:
            raise malformed(
                name, "can't stop a thread after a timeout; give the client that the function uses a timeout instead"
            )
        kinds: tuple[tuple[str, Any, type], ...] = (("retry", retry, Retry), ("rate", rate, Rate))
        for what, it, kind in (*kinds, ("breaker", breaker, Breaker)):
            if it is not None and not isinstance(it, kind):
                raise malformed(name, f"needs {what}={kind.__name__}(...), or None; got {short_repr(it)}")
        policy, retry = _checked_policy(name, on_error, retry)
        if breaker is not None:
            _check_breaker(name, breaker, retry, policy)
        capacity = capacity if threads is None else threads
        options = CallOptions(function, capacity, timeout, batch, retry, rate, breaker, threads)
        node = StatelessNode(
            name,
            CallingOut(options),
            counts=CALL_COUNTS,
            on_error=policy,
            placed_by=self._placed_by(),
            least_batch=options.least_batch,
        )
        return self._at(self._append(node))


def _checked_policy(name: str, on_error: ErrorPolicy, retry: Retry | None) -> tuple[OnError, Retry | None]:
    """Return a policy without its retry, and the retry of the calls."""
    policy = checked_policy(name, on_error)
    if policy.retry is None:
        return policy, retry
    if retry is not None:
        raise malformed(name, "has its own retry= and another in OnError; leave one of them out")
    return replace(policy, retry=None), policy.retry


def _check_breaker(name: str, breaker: Breaker, retry: Retry | None, policy: OnError) -> None:
    if retry is None:
        raise malformed(
            name,
            "needs retry=Retry(attempts=..., on=...) for its breaker: 'on' are the exceptions that open it, and "
            "attempts=1 repeats no call",
        )
    if breaker.then == "dead_letter" and not policy.may_keep:
        raise malformed(
            name,
            "has a breaker with then='dead_letter', and so needs on_error='dead_letter', or a function of the failure",
        )


def _check_function(name: str, function: Any, threads: int | None) -> None:
    """Check that a function is asynchronous or, with threads, that it is not; and the methods of a client."""
    check_name(name, location())
    if threads is not None and deferred(function) == "a coroutine function":
        raise malformed(
            name, f"calls a plain function in threads; {describe(function)} is asynchronous; leave threads= out"
        )
    if threads is not None:
        checked_function(name, "function", function, "value")
    elif isinstance(function, type):
        raise malformed(name, f"needs an object; got the class {function.__name__}; write {function.__name__}(...)")
    elif not callable(function):
        raise malformed(name, f"needs an asynchronous function; got {short_repr(function)}")
    elif deferred(function) != "a coroutine function":
        kind = deferred(function) or "a plain function"
        raise malformed(
            name,
            f"needs an asynchronous function; {describe(function)} is {kind}; write it with 'async def' and 'await', "
            "or add threads=8 to call a plain function in 8 threads",
        )
    elif not takes(function, 1):
        raise malformed(name, f"calls its function as function(value), but {describe(function)} takes other arguments")
    for method in ("open", "close"):
        found = getattr(function, method, None)
        if found is not None and not (callable(found) and takes(found, 0)):
            raise malformed(name, f"calls {method}() of its function without arguments; got {short_repr(found)}")
