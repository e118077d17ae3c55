"""The method of keyed streams that brings two streams into one state for each key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from malflow.connectors.by_name import Connection
from malflow.failures import ErrorPolicy
from malflow.message import DataMessage
from malflow.operators.connected import ConnectLogic, ConnectOp, TimedConnectOp
from malflow.operators.contract import Output, StatefulLogic, overridden
from malflow.operators.epochs.frontiers import INPUTS
from malflow.states.kinds import StateKind
from malflow.streams.arguments import checked_default, checked_policy, checked_two, malformed
from malflow.streams.operators.stateful import HIDDEN_OF_TIMED, StatefulOperators, check_wakes
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Guarded
    from malflow.streams.stream import KeyedStream

__all__ = ["ConnectOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
V2 = TypeVar("V2")
T = TypeVar("T")
VO = TypeVar("VO")
S = TypeVar("S")


class ConnectOperators(StatefulOperators[K, V_co, T]):
    """The method for two streams with one state."""

    __slots__ = ()

    @overload
    def connect(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        on_left: ConnectLogic[K, V_co, V2, T, VO, S],
        *,
        default: Callable[[], S] | None = ...,
        **more: Unpack[Guarded[S]],
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def connect(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        on_left: Callable[[DataMessage[K, V_co, T], S, Output[K, VO, T]], S | None],
        on_right: Callable[[DataMessage[K, V2, T], S, Output[K, VO, T]], S | None],
        *,
        default: Callable[[], S],
        **more: Unpack[Guarded[S]],
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def connect(
        self,
        name: str,
        right: KeyedStream[K, V2, T],
        on_left: Callable[[DataMessage[K, V_co, T], Any, Output[K, VO, T]], Any],
        on_right: Callable[[DataMessage[K, V2, T], Any, Output[K, VO, T]], Any],
        *,
        default: None = None,
        **more: Unpack[Guarded],
    ) -> KeyedStream[K, VO, T]: ...
    def connect(
        self,
        name: str,
        right: Any,
        on_left: Any,
        on_right: Any = None,
        *,
        default: Any = None,
        version: int = 1,
        migrate: Any = None,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Call a function for each message of two streams. Both streams share the state of a key.

        It is a `stateful_op` with two inputs; `malflow.connect`, for the URL of a source or sink, is something else.

        The epoch (watermark) is the least of both streams, as after `union`. Within a tick, records come from the
        stream that has the lower epoch; with equal epochs, or without any, this stream comes first. The order between
        the two is not specified otherwise: what must not depend on it, the state must keep.

        Args:
            name: the operator's name; snapshots store the state under it.
            right: the other stream; may be this one. Both must be keyed with the same partitioner.
            on_left: ``(msg, state, output) -> state`` for messages of this stream, as for `stateful_op`. Or, without
                `on_right`, a logic object with methods ``on_left`` and ``on_right``, and the hooks of a `stateful_op`:
                ``on_epoch``, ``on_timer``, ``on_schedule``; see `ConnectLogic`.
            on_right: the same for messages of the other stream.
            default: creates the state of a key that has none; without it that state is None.
            version: the schema version of each key's state: increase it when the schema changes.
            migrate: ``(old_state, old_version) -> state``: converts a state from a snapshot of an older version; None
                drops the key.
            on_error: the fate of a message at which a function fails, as for `stateful_op`. A dead letter has the
                number of its stream as its `input`.

        >>> def joined(stream):
        ...     def small(msg, state, output):
        ...         return [*state, msg.value]
        ...     def great(msg, state, output):
        ...         output.send(DataMessage(msg.key, (msg.value, state), msg.timestamp))
        ...         return []
        ...     left, right = stream.split("size", lambda msg, to: to.__setitem__(msg.value > 9, True), 2)
        ...     left, right = (it.key_distribute(f"all {n}", lambda msg: "all") for n, it in enumerate((left, right)))
        ...     return left.connect("small before great", right, small, great, default=list)
        >>> run([1, 2, 10, 3, 20], joined)
        [(10, [1, 2, 3]), (20, [])]
        """
        logic = checked_two(name, on_left, on_right)
        _check_right(name, right)
        timed = overridden(logic, "on_timer", StatefulLogic) is not None
        if timed:
            check_wakes(name, logic, self._graph, self._ports(name, [right], keyed=True))
        return self._stateful(
            name,
            partial(TimedConnectOp if timed else ConnectOp, logic=logic, default=checked_default(name, default)),
            StateKind.STATEFUL_OP,
            version,
            migrate,
            others=[right],
            keeps_keys=False,
            hidden=(*(HIDDEN_OF_TIMED if timed else ()), (INPUTS, StateKind.FRONTIER)),
            on_error=checked_policy(name, on_error),
            method="connect",
        )


def _check_right(name: str, right: Any) -> None:
    if isinstance(right, Connection):
        raise malformed(
            name,
            f"connects two streams; got {short_repr(right)}, the address of a source or sink; read it by "
            "provider.new_stream().source() and key it first",
        )
