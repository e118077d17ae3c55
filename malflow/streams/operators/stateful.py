"""Methods of keyed streams that add operators with per-key state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from malflow.failures import ErrorPolicy
from malflow.graph import Graph
from malflow.message import DataMessage
from malflow.nodes import Port, StatefulNode
from malflow.operators.contract import Logic, Output, StatefulLogic, overridden
from malflow.operators.epochs.frontiers import REACHED
from malflow.operators.keyed.stateful import StatefulMap, StatefulOp
from malflow.operators.keyed.timed_op import CLOCK_TIMERS, TIMERS, TimedOp
from malflow.operators.ttl import ExpireMap, TtlMap, checked_map
from malflow.states.kinds import StateKind
from malflow.streams.arguments import (
    STATEFUL_HOOKS,
    check_count,
    checked_default,
    checked_function,
    checked_logic,
    checked_policy,
    location,
    malformed,
)
from malflow.streams.handle import StreamHandle

if TYPE_CHECKING:
    from malflow.streams.keywords import Guarded
    from malflow.streams.stream import KeyedStream

__all__ = ["HIDDEN_OF_TIMED", "StatefulOperators", "check_wakes"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
VO = TypeVar("VO")
S = TypeVar("S")


HIDDEN_OF_TIMED = (
    (TIMERS, StateKind.TIMERS),
    (CLOCK_TIMERS, StateKind.TIMERS),
    (REACHED, StateKind.EPOCHS),
)
"""The hidden states of a logic with timers."""


_WAIT_FOR_EPOCHS = {
    StateKind.WINDOW: "has windows that wait for epochs (watermarks)",
    StateKind.ROLLUP: "has windows that wait for epochs (watermarks)",
    StateKind.SESSION: "has sessions that wait for epochs (watermarks)",
    StateKind.SORT: "has records that wait for epochs (watermarks)",
    StateKind.JOIN: "keeps records until epochs (watermarks)",
}
"""How operators that need epochs describe their wait, in errors."""

_NO_EPOCHS = " to pass, and an input has none; call .event_time() or .generate_epochs() before"


def _wakes(logic: Any) -> bool:
    """Whether a method of a logic sets an event-time timer, judging by its code."""
    methods = (getattr(type(logic), name, None) for name in dir(type(logic)))
    return any(
        "wake" in code.co_names for code in (getattr(it, "__code__", None) for it in methods) if code is not None
    )


def check_wakes(name: str, logic: Any, graph: Graph, ports: Iterable[Port]) -> None:
    """Check that inputs have epochs (watermarks), if a logic sets event-time timers."""
    if _wakes(logic) and not all(map(graph.has_epochs, ports)):
        raise malformed(name, f"has timers that wait for epochs (watermarks){_NO_EPOCHS}")


class StatefulOperators(StreamHandle[K, V_co, T]):
    """Methods for operators with per-key state."""

    __slots__ = ()

    @overload
    def stateful_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, S], tuple[VO, S | None]],
        default: Callable[[], S],
        **more: Unpack[Guarded[S]],
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def stateful_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, S | None], tuple[VO, S | None]],
        default: None = None,
        **more: Unpack[Guarded[S]],
    ) -> KeyedStream[K, VO, T]: ...
    def stateful_map(
        self,
        name: str,
        mapper: Any,
        default: Any = None,
        *,
        version: int = 1,
        migrate: Any = None,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Replace each value with the result of a mapper that also reads and updates the state of its key.

        A mapper may emit the state object itself, or in a dict, list, tuple or dataclass: a copy is emitted. A state
        deeper inside the value is not copied, so later records may mutate it before it is read; run with
        ``debug=True`` to detect this.

        Args:
            name: the operator's name; snapshots store the state under it.
            mapper: ``(key, value, state) -> (value, state)``; None as the new state drops the key.
            default: creates the state of a key that has none; without it that state is None.
            version: the schema version of each key's state: increase it when the schema changes.
            migrate: ``(old_state, old_version) -> state``: converts a state from a snapshot of an older version; None
                drops the key. An object whose class no longer exists or has changed its fields is passed as a read-only
                mapping of its old fields (also available as attributes); a named tuple, as a tuple.
            on_error: the fate of a record at which the mapper fails, as for `map`. A failed call leaves no trace in
                the state: with a policy other than ``"fail"``, the mapper receives a copy of a state that is mutable.

        >>> def total(stream):
        ...     keyed = stream.key_distribute("all", lambda msg: "all")
        ...     return keyed.stateful_map("sum", lambda key, value, state: (state + value, state + value), default=int)
        >>> run([1, 2, 3], total)
        [1, 3, 6]
        """
        mapper = checked_function(name, "mapper", mapper, "key, value, state")
        default = checked_default(name, default)
        logic = partial(StatefulMap, mapper=mapper, default=default)
        policy = checked_policy(name, on_error)
        return self._stateful(name, logic, StateKind.STATEFUL_MAP, version, migrate, on_error=policy, tells_by=())

    @overload
    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[K, V_co, T, VO, S] | Callable[[DataMessage[K, V_co, T], S, Output[K, VO, T]], S | None],
        default: Callable[[], S],
        **more: Unpack[Guarded[S]],
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[K, V_co, T, VO, Any] | Callable[[DataMessage[K, V_co, T], Any, Output[K, VO, T]], Any],
        default: None = None,
        **more: Unpack[Guarded],
    ) -> KeyedStream[K, VO, T]: ...
    def stateful_op(
        self,
        name: str,
        logic: Any,
        default: Any = None,
        *,
        version: int = 1,
        migrate: Any = None,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Call the logic with each message and the state of its key; it sends any number of messages.

        Args:
            name: the operator's name; snapshots store the state under it.
            logic: an object with ``on_data(msg, state, output) -> state`` and optionally
                ``on_epoch(epoch, states, output)``, ``on_schedule(states, output)`` and
                ``on_timer(key, at, state, output) -> state``, for timers that ``output.wake(at)`` sets; or a function
                ``(msg, state, output) -> state``. None as the new state drops the key, with its timer.
            default: creates the state of a key that has none; without it that state is None.
            version: the schema version of each key's state: increase it when the schema changes.
            migrate: ``(old_state, old_version) -> state``: converts a state from a snapshot of an older version; None
                drops the key. An object whose class no longer exists or has changed its fields is passed as a read-only
                mapping of its old fields (also available as attributes); a named tuple, as a tuple.
            on_error: the fate of a message at which the logic fails, as for `map`. A failed call leaves no trace in
                state, output or timers: with a policy other than ``"fail"``, the logic receives a copy of a state that
                is mutable. A failure of `on_epoch`, `on_timer` or `on_schedule` always ends the run.

        >>> def pairs(stream):
        ...     def join(msg, first, output):
        ...         if first is None:
        ...             return msg.value
        ...         output.send(DataMessage(msg.key, (first, msg.value), msg.timestamp))
        ...     return stream.key_distribute("all", lambda msg: "all").stateful_op("pairs", join)
        >>> run([1, 2, 3, 4], pairs)
        [(1, 2), (3, 4)]
        """
        logic = checked_logic(name, logic, STATEFUL_HOOKS, returns=True)
        default = checked_default(name, default)
        timed = overridden(logic, "on_timer", StatefulLogic) is not None
        if timed:
            check_wakes(name, logic, self._graph, [self._input(name)])
        return self._stateful(
            name,
            partial(TimedOp if timed else StatefulOp, logic=logic, default=default),
            StateKind.STATEFUL_OP,
            version,
            migrate,
            keeps_keys=False,
            hidden=HIDDEN_OF_TIMED if timed else (),
            on_error=checked_policy(name, on_error),
            tells_by=None if timed or overridden(logic, "on_epoch", StatefulLogic) is not None else (),
        )

    def ttl_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, T, ExpireMap[Any, Any, T]], tuple[VO, ExpireMap[Any, Any, T] | None]],
        *,
        version: int = 1,
        migrate: Callable[[ExpireMap[Any, Any, T], int], ExpireMap[Any, Any, T] | None] | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> KeyedStream[K, VO, T]:
        """Replace each value with the result of a mapper that also updates its key's `ExpireMap`, initially empty.

        An epoch (watermark) removes the entries that expire at or before it; until then they stay readable. None as
        the new map drops the key.

        Args:
            name: the operator's name; snapshots store the state under it.
            mapper: ``(key, value, timestamp, expire_map) -> (value, expire_map)``.
            version: the schema version of each key's entries: increase it when the schema changes.
            migrate: ``(old_map, old_version) -> expire_map``: converts a map from a snapshot of an older version; None
                drops the key. An object whose class no longer exists or has changed its fields is passed as a read-only
                mapping of its old fields (also available as attributes); a named tuple, as a tuple.
            on_error: the fate of a record at which the mapper fails, as for `map`; the mapper then receives a copy of
                the map, so a failed call leaves no trace.

        >>> def seen_before(stream):
        ...     def look(key, value, timestamp, seen):
        ...         return seen.insert(value, True, timestamp + 10) is not None, seen
        ...     return stream.key_distribute("all", lambda msg: "all").ttl_map("seen", look)
        >>> run(["a", "b", "a"], seen_before)
        [False, False, True]
        """
        logic = partial(TtlMap, mapper=checked_function(name, "mapper", mapper, "key, value, timestamp, expire_map"))
        policy = checked_policy(name, on_error)
        return self._stateful(name, logic, StateKind.TTL_MAP, version, migrate, validate=checked_map, on_error=policy)

    def _stateful(
        self,
        name: str,
        logic: Logic,
        kind: StateKind,
        version: int,
        migrate: Any,
        *,
        others: Sequence[Any] = (),
        validate: Any = None,
        waits: bool = True,
        **facts: Any,
    ) -> Any:
        check_count(name, version, "version")
        if migrate is not None:
            checked_function(name, "migrate", migrate, "old, old_version")
        ports = self._ports(name, others, keyed=True)
        placement = self._graph.placement(name, ports, location())
        if waits and kind in _WAIT_FOR_EPOCHS and not all(map(self._graph.has_epochs, ports)):
            raise malformed(name, f"{_WAIT_FOR_EPOCHS[kind]}{_NO_EPOCHS}")
        node = StatefulNode(name, logic, placement, kind, version, migrate, validate, **facts)
        self._graph.claim(name, location())
        port = self._add(node, *ports)
        if node.outputs == 1:
            return self._at(port)
        return tuple(self._at(Port(port.vertex, output)) for output in range(node.outputs))
