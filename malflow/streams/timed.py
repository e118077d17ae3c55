"""Streams with new timestamps that have no epochs yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from malflow.callables import advice
from malflow.durations import Duration
from malflow.message import DataMessage
from malflow.operators.epochs.idle_time import Units
from malflow.operators.epochs.rounding import Step
from malflow.streams.arguments import malformed
from malflow.streams.several import Timed

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream, Stream

__all__ = ["KeyedNeedsEpochs", "NeedsEpochs"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


class NeedsEpochs(Generic[K, V_co, T]):
    """A stream with new timestamps and no epochs (watermarks) yet; its only method is `generate_epochs`."""

    __slots__ = ("_name", "_stream", "_unfinished")

    def __init__(self, name: str, stream: Stream[K, V_co, T], unfinished: set[str]) -> None:
        self._name = name
        self._stream = stream
        self._unfinished = unfinished

    def generate_epochs(
        self,
        name: str,
        generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
        *,
        every: Step | None = None,
        per_part: bool = True,
        idle_after: Duration | None = None,
        second: Units | None = None,
    ) -> Timed[Stream[K, V_co, T]]:
        """Issue epochs (watermarks), and separate late records: see `Stream.generate_epochs`.

        >>> def on_time(stream):
        ...     stamped = stream.assign_timestamps("when", lambda msg: msg.value)
        ...     return stamped.generate_epochs("now", lambda msg, previous: msg.timestamp)[0]
        >>> run([5, 1, 7], on_time)
        [5, 7]
        """
        streams = self._stream.generate_epochs(
            name, generator, every=every, per_part=per_part, idle_after=idle_after, second=second
        )
        self._unfinished.discard(self._name)
        return streams

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the dataflow so far for notebooks, as other streams do."""
        return self._stream._repr_mimebundle_(include, exclude)

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Callable[..., NoReturn]:
            if attribute.startswith("_") or not hasattr(self._stream, attribute):
                methods = [method for method in dir(self._stream) if not method.startswith("_")]
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {attribute!r}{advice(attribute, methods)}"
                )

            def refuse(name: object = None, *_: object, **__: object) -> NoReturn:
                raise malformed(name, f"needs a stream with epochs; call .generate_epochs() before .{attribute}()")

            return refuse


class KeyedNeedsEpochs(NeedsEpochs[K, V_co, T]):
    """A keyed stream with new timestamps and no epochs yet."""

    __slots__ = ()

    if TYPE_CHECKING:

        def generate_epochs(
            self,
            name: str,
            generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
            *,
            every: Step | None = None,
            per_part: bool = True,
            idle_after: Duration | None = None,
            second: Units | None = None,
        ) -> Timed[KeyedStream[K, V_co, T]]: ...
