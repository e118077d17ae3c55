"""The keywords that the overloads of an operator share, for type checkers; the method that runs lists them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, TypedDict

from malflow.durations import Duration
from malflow.failures import Breaker, ErrorPolicy, Rate, Retry
from malflow.operators.epochs.idle_time import Units
from malflow.operators.epochs.rounding import Step
from malflow.states.kinds import StateLayout
from malflow.type_parameters import V2, S
from malflow.windows import Forever

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream

__all__ = [
    "Arriving",
    "AsOf",
    "Awaited",
    "Bounded",
    "Cached",
    "Called",
    "Described",
    "Epochs",
    "EventTime",
    "Expiring",
    "Grouped",
    "Guarded",
    "OfBatches",
    "OfMappedBatches",
    "RolledUp",
    "Threaded",
    "Versioned",
]


class Versioned(TypedDict, Generic[S], total=False):
    """The version of a state's schema, and the function that converts older states."""

    version: int
    migrate: Callable[[Any, int], S | None] | None


class Described(Versioned[S], total=False):
    """The keywords of `Windowed.aggregate` and `Windowed.cogroup`."""

    layout: StateLayout | None


class Guarded(Versioned[S], total=False):
    """The keywords of `stateful_map`, `stateful_op` and `connect`."""

    on_error: ErrorPolicy


class OfBatches(TypedDict, total=False):
    """The keywords of `filter_batches`, but for ``frame=``."""

    with_key: str | None
    with_time: str | None
    on_error: ErrorPolicy


class OfMappedBatches(OfBatches, total=False):
    """The keywords of `map_batches`, but for ``frame=``."""

    schema: Any


class Bounded(Described[Any], total=False):
    """The keywords of `interval_join`."""

    before: Required[Any]
    after: Required[Any]


class AsOf(Versioned[Any], Generic[V2], total=False):
    """The keywords of `asof_join`."""

    tolerance: Any
    tie: Callable[[V2], Any] | str | None


class Arriving(Versioned[Any], total=False):
    """The keywords of `join_table`."""

    at: Literal["time", "arrival"]


class Expiring(Versioned[Any], total=False):
    """The keywords of `to_table`."""

    ttl: Step | None


class RolledUp(Versioned[Any], total=False):
    """The keywords of `rollup`."""

    zone: Any
    keep: Mapping[str, timedelta | Forever] | None


class Grouped(Described[Any], total=False):
    """The keywords of `LateWindowed.cogroup`."""

    late: Sequence[KeyedStream[Any, Any, Any] | None]


class Epochs(TypedDict, total=False):
    """The keywords of `generate_epochs`."""

    every: Step | None
    per_part: bool
    idle_after: Duration | None
    second: Units | None
    layout: StateLayout | None


class EventTime(Epochs, total=False):
    """The keywords of `event_time`."""

    out_of_orderness: Required[Any]
    on_error: ErrorPolicy


class Cached(TypedDict, total=False):
    """The keywords of `lookup`."""

    cache: Duration | None
    most: int


class Called(TypedDict, total=False):
    """The keywords of `map_async`, of either kind."""

    retry: Retry | None
    rate: Rate | None
    breaker: Breaker | None
    on_error: ErrorPolicy


class Awaited(Called, total=False):
    """The keywords of `map_async` on the event loop."""

    capacity: int
    timeout: Duration | None
    threads: None


class Threaded(Called, total=False):
    """The keywords of `map_async` in threads."""

    threads: Required[int]
