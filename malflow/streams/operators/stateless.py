"""Stream methods that add stateless operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from malflow.checks import check_number
from malflow.failures import ErrorPolicy
from malflow.message import DataMessage
from malflow.nodes import StatelessNode, TellsBy
from malflow.operators.contract import Logic, OperatorContext, Output, StatelessLogic, overridden
from malflow.operators.stateless import (
    Filter,
    FilterMap,
    FlatMap,
    Flatten,
    Inspect,
    InspectFrontier,
    Map,
    MapWithKey,
    Sample,
    StatelessOp,
)
from malflow.streams.arguments import (
    STATELESS_HOOKS,
    checked_field_of,
    checked_function,
    checked_logic,
    checked_policy,
    malformed,
)
from malflow.streams.handle import StreamHandle

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream, Stream

__all__ = ["KeyedStatelessOperators", "StatelessOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
VO = TypeVar("VO")


class StatelessOperators(StreamHandle[K, V_co, T]):
    """Methods for operators without state."""

    __slots__ = ()

    def map(self, name: str, mapper: Callable[[V_co], VO], *, on_error: ErrorPolicy = "fail") -> Stream[K, VO, T]:
        """Replace each value with ``mapper(value)``.

        Args:
            name: the operator's name.
            mapper: returns the new value.
            on_error: the fate of a record at which the mapper fails. ``"fail"`` ends the run, ``"skip"`` drops the
                record, ``"dead_letter"`` keeps it with its error as a `DeadLetter`, and ``"park"`` keeps it and the
                later records of its key, in order. A function decides about each `Failure` by returning one of these
                words. An `OnError` has more options, such as a `Retry`. All operators with this argument count such
                records in ``progress.counts``, as ``failed``, ``skipped`` and ``letters``.

        >>> run([1, 2], lambda stream: stream.map("double", lambda value: value * 2))
        [2, 4]
        >>> run(["1", "x"], lambda stream: stream.map("number", int, on_error="skip"))
        [1]
        """
        logic = partial(Map, callback=checked_function(name, "mapper", mapper, "value"))
        return self._guarded(name, logic, on_error)

    def filter(
        self, name: str, predicate: Callable[[V_co], object], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[K, V_co, T]:
        """Keep records with values that satisfy the predicate.

        >>> run([1, 2], lambda stream: stream.filter("even", lambda value: value % 2 == 0))
        [2]
        """
        logic = partial(Filter, callback=checked_function(name, "predicate", predicate, "value"))
        return self._guarded(name, logic, on_error)

    def filter_map(
        self, name: str, mapper: Callable[[V_co], VO | None], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[K, VO, T]:
        """Replace each value with ``mapper(value)``, and drop the record if that is None.

        >>> run(["1", "x"], lambda stream: stream.filter_map("digits", lambda v: int(v) if v.isdigit() else None))
        [1]
        """
        logic = partial(FilterMap, callback=checked_function(name, "mapper", mapper, "value"))
        return self._guarded(name, logic, on_error)

    def filter_map_many(
        self, name: str, function: Callable[[Sequence[V_co]], Sequence[VO | None]], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[K, VO, T]:
        """Replace many values with one call of a function, and drop the records for which it answers None.

        The function gets a list of values of any length, and returns a list as long: the answer for a value may depend
        on that value only, since batches have any size. It saves a call a record, as in one comprehension of several
        small steps. It must not change its argument.

        Args:
            name: the operator's name.
            function: returns the new values.
            on_error: the fate of a record at which the function fails, as for `map`. If it fails, it is called again
                with parts of its list, to find the records at which it fails.

        >>> odd = lambda values: [it if it % 2 else None for it in values]
        >>> run([1, 2, 3], lambda stream: stream.filter_map_many("odd", odd))
        [1, 3]
        """
        from malflow.operators.many import FilterMapMany  # noqa: PLC0415 - most programs don't need it

        logic = partial(FilterMapMany, callback=checked_function(name, "function", function, "values"))
        return self._guarded(name, logic, on_error)

    def sample(self, name: str, fraction: float, by: Callable[[V_co], Any] | str | None = None) -> Stream[K, V_co, T]:
        """Keep a fraction of the records, chosen by a stable hash: the same records in every run, on every worker.

        Records with equal ids are kept or dropped together. Of two samples by the same id, the smaller is a subset of
        the larger.

        Args:
            name: the operator's name.
            fraction: the fraction to keep, from 0 to 1.
            by: the id: a function of the value, or the name of its item or attribute; by default the value itself.

        >>> run(range(100), lambda stream: stream.sample("some", 0.05))
        [30, 59, 71, 93]
        """
        check_number(partial(malformed, name), "fraction", fraction, least=0, most=1)
        logic = partial(Sample, by=checked_field_of(name, "by", by), limit=round(fraction * 2**64))
        return self._at(self._append(StatelessNode(name, logic, tells_by=())))

    def flat_map(
        self, name: str, function: Callable[[V_co], Iterable[VO]], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[K, VO, T]:
        """Replace each value with the elements of ``function(value)``.

        They keep the key and the timestamp of the value. The function may return any iterable, or be a generator
        function. A string is an error, since its elements are its characters. With an `on_error` other than ``"fail"``,
        a value at which the function fails has no elements, not even those before the failure.

        >>> run(["a b", "", "c"], lambda stream: stream.flat_map("words", str.split))
        ['a', 'b', 'c']
        >>> def digits(value):
        ...     while value:
        ...         yield value % 10
        ...         value //= 10
        >>> run([123, 4], lambda stream: stream.flat_map("digits", digits))
        [3, 2, 1, 4]
        """
        function = checked_function(name, "function", function, "value", generators=True)
        return self._guarded(name, partial(FlatMap, callback=function), on_error)

    def flatten(
        self: StatelessOperators[K, Iterable[VO], T], name: str, *, on_error: ErrorPolicy = "fail"
    ) -> Stream[K, VO, T]:
        """Replace each value with its elements. They keep its key and timestamp.

        A string is an error, since its elements are its characters.

        >>> run([[1, 2], [], [3]], lambda stream: stream.flatten("elements"))
        [1, 2, 3]
        """
        return self._guarded(name, Flatten, on_error)

    def inspect(
        self,
        name: str,
        inspector: Callable[[DataMessage[K, V_co, T], OperatorContext], object],
        *,
        on_error: ErrorPolicy = "fail",
    ) -> Stream[K, V_co, T]:
        """Call the inspector with each message and a context that has `worker_id` and `operator_name`.

        With an `on_error` other than ``"fail"``, a record at which the inspector fails is dropped.

        >>> run([1], lambda stream: stream.inspect("show", lambda msg, ctx: print(msg.value, ctx.operator_name)))
        1 show
        [1]
        """
        inspector = checked_function(name, "inspector", inspector, "msg, context", returns=False)
        return self._guarded(name, partial(Inspect, callback=inspector), on_error)

    def inspect_frontier(self, name: str, inspector: Callable[[T, OperatorContext], object]) -> Stream[K, V_co, T]:
        """Call the inspector with each epoch (watermark); the last one is `MAX`. It is not a number or date.

        >>> run([1], lambda stream: stream.inspect_frontier("time", lambda epoch, ctx: print(epoch)))
        MAX
        [1]
        """
        inspector = checked_function(name, "inspector", inspector, "epoch, context", returns=False)
        return self._at(self._append(StatelessNode(name, partial(InspectFrontier, callback=inspector))))

    def stateless_op(
        self,
        name: str,
        logic: StatelessLogic[K, V_co, T, VO] | Callable[[DataMessage[K, V_co, T], Output[K, VO, T]], object],
        *,
        on_error: ErrorPolicy = "fail",
    ) -> Stream[K, VO, T]:
        """Call the logic with each message; it sends any number of messages.

        Args:
            name: the operator's name.
            logic: an object with ``on_data(msg, output)`` and optionally ``on_epoch(epoch, output)``, or a function
                ``(msg, output)``; they return nothing. The epoch follows the messages that `on_epoch` sends. One
                object serves every worker of a process: its attributes are not state and do not survive a restart.
            on_error: the fate of a message at which the logic fails, as for `map`; messages that it sent before are
                taken back. A failure of `on_epoch` always ends the run.

        >>> run([1, 2], lambda stream: stream.stateless_op("twice", lambda msg, out: [out.send(msg), out.send(msg)]))
        [1, 1, 2, 2]
        """
        logic = checked_logic(name, logic, STATELESS_HOOKS)
        tells_by = () if overridden(logic, "on_epoch", StatelessLogic) is None else None
        return self._guarded(name, partial(StatelessOp, logic=logic), on_error, keeps_keys=False, tells_by=tells_by)

    def _guarded(
        self, name: str, logic: Logic, on_error: ErrorPolicy, *, keeps_keys: bool = True, tells_by: TellsBy = ()
    ) -> Any:
        node = StatelessNode(
            name,
            logic,
            keeps_keys,
            on_error=checked_policy(name, on_error),
            placed_by=self._placed_by(),
            tells_by=tells_by,
        )
        return self._at(self._append(node))


class KeyedStatelessOperators(StatelessOperators[K, V_co, T]):
    """Methods of keyed streams for operators without state."""

    __slots__ = ()

    def map_with_key(
        self, name: str, mapper: Callable[[K, V_co], VO], *, on_error: ErrorPolicy = "fail"
    ) -> KeyedStream[K, VO, T]:
        """Replace each value with ``mapper(key, value)``; the key stays.

        Use it to turn results of windows, rollups, joins and aggregates into rows. They don't contain the key
        themselves.

        >>> from malflow.windows import tumbling
        >>> def rows(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     windows = timed.key_distribute("parity", lambda msg: msg.value % 2).window(tumbling(4))
        ...     counts = windows.aggregate("count", agg.count())
        ...     return counts.map_with_key("row", lambda key, it: {"odd": key, "from": it.start, "n": it.value})
        >>> run([1, 3, 2], rows)
        [{'odd': 1, 'from': 0, 'n': 2}, {'odd': 0, 'from': 0, 'n': 1}]
        """
        mapper = checked_function(name, "mapper", mapper, "key, value")
        keyed: KeyedStream[K, VO, T] = self._guarded(name, partial(MapWithKey, callback=mapper), on_error)
        return keyed
