"""Operators that route records: splits, exchanges and unions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakValueDictionary

from malflow.diagnostics import operator_error
from malflow.errors import failures
from malflow.message import NoKey
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import Frontiers
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import MessageView, attempt
from malflow.operators.key_sampling import HotKeys
from malflow.partitioners import (
    PLAIN_TYPES,
    STABLE_KEYS_MET,
    Partitioner,
    rendezvous_select,
    slot_of,
    slot_owners,
)
from malflow.records.batch import Batch, concat, interleave
from malflow.records.column import is_column
from malflow.records.columnar import is_columnar
from malflow.records.rows import ReadField, only_fields
from malflow.states.keyed import Delta, KeyedState
from malflow.words import short_repr

__all__ = [
    "Cloned",
    "Merge",
    "Router",
    "Split",
]

_CACHED_ROUTES = 1 << 20
"""Keys until the cache is emptied: double takes twice the memory, half hashes keys again more often."""

_SAMPLED = 8
"""Of columns, one key in so many may be sampled. They come faster, and an item costs more to read than a list's."""

_FEW = 2
"""The most workers for which a batch is split by a mask for each of them."""

_MASKS = [bytes(byte == worker for byte in range(256)) for worker in range(_FEW)]
"""Tables that translate the worker of a record to whether it is a worker's."""


class Cloned(Operator):
    """Send every batch to every output."""

    def __init__(self, context: OperatorContext, outputs: int) -> None:
        super().__init__(context)
        self._outputs = outputs

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Repeat the batch. Where one reader makes rows of columns, the others keep the columns."""
        values = batch.values
        if not is_columnar(values):
            return (batch,) * self._outputs
        return batch, *(batch.with_values(values.apart()) for _ in range(self._outputs - 1))


class Split(Operator):
    """Send each record to the outputs that the partitioner flags, and every epoch to all outputs."""

    def __init__(self, context: OperatorContext, partitioner: Any, outputs: int) -> None:
        super().__init__(context, partitioner)
        self._outputs = outputs

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the partitioner for each record's flags."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        rest = iter(batch.values)
        try:
            flags = self.call_each(self.flags_of, batch, rest)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return self._split(batch, flags)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        with MessageView(guard, self.context, batch) as view:
            flags_of, none = self.flags_of, [False] * self._outputs
            flags, _ = attempt(guard, lambda rest: (flags_of(message) for message in rest), view, batch, none)
        return self._split(guard.renewed(batch), flags)

    def _split(self, batch: Batch, flags: Sequence[Sequence[bool]]) -> Sequence[Batch]:
        """Return the records of each output, by the flags of each record."""
        masks = list(zip(*flags, strict=True)) or [()] * self._outputs
        return tuple(batch.select(mask) for mask in masks)

    def flags_of(self, message: Any) -> list[bool]:
        """Return the flags that the partitioner sets for a message."""
        chosen = [False] * self._outputs
        answer = self.callback(message, chosen)
        if answer is not None and answer is not False:
            _check_returned(answer)
        if len(chosen) != self._outputs:
            raise ValueError(
                f"the partitioner changed the number of flags from {self._outputs} to {len(chosen)}; only set flags"
            )
        return [True if flag else False for flag in chosen]  # noqa: SIM210 - cheaper than bool()


def _check_returned(answer: Any) -> None:
    """Reject the result of a partitioner: it would be lost; allow the results of ``a and flags.append(b)``.

    Raises:
        TypeError: if it could be flags or an index.
    """
    if type(answer) in (list, tuple) and answer and all(part is None or part is False for part in answer):
        return
    raise TypeError(
        f"the partitioner returned {short_repr(answer)}, which would be lost; set the flags of the outputs in its "
        "second argument, as by outputs[0] = True, and return nothing"
    )


class Router:
    """The sending side of an exchange: splits a batch by the workers of its keys.

    Args:
        operator_name: the name of the exchange.
        partitioner: selects the worker of a key.
        workers: the workers.
        exchange: an object shared by all senders of the exchange in a run; they therefore share routes.
        fields: the fields of values to send, by the names of their columns; None to send whole values.
        is_fixed: returns whether values must be sent as they are, whatever `fields` says; None if they never must.

    Attributes:
        hot: the busiest keys.
    """

    def __init__(
        self,
        operator_name: str,
        partitioner: Partitioner,
        workers: Sequence[int],
        exchange: object,
        *,
        fields: Mapping[str, ReadField] | None = None,
        is_fixed: Callable[[Sequence[Any]], bool] | None = None,
    ) -> None:
        self._operator_name = operator_name
        self._workers = workers
        self._fields = fields
        self._is_fixed = is_fixed
        self._alone = len(workers) == 1 and partitioner is rendezvous_select
        self._routes = _routes_of(exchange, partitioner, workers)
        self.hot = HotKeys(len(workers))
        self._columns: Any = None  # the routes of columns, from the first one on

    def route(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        """Return each worker's records with all epochs, without workers that receive nothing."""
        if self._alone:
            return ((self._workers[0], batch),)
        if is_column(batch.keys) and batch.has_arrays:
            return self._route_columns(batch)
        chosen = self._chosen(batch)
        if batch.keys is not None:
            self.hot.note(batch.keys, chosen)
        if self._fields is not None and not (self._is_fixed is not None and self._is_fixed(batch.values)):
            batch = batch.with_values(only_fields(batch.values, self._fields))
        if len(self._workers) <= _FEW:
            return self._selected(batch, bytes(chosen))
        indices: list[list[int]] = [[] for _ in self._workers]
        add = [of_worker.append for of_worker in indices]
        for index, worker in enumerate(chosen):
            add[worker](index)
        return [(worker, part) for worker in self._workers if (part := _share(batch, indices[worker]))]

    def _route_columns(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        """Do the same for columns."""
        from malflow.columns.routes import Routes, Unroutable, split  # noqa: PLC0415 - only the extra has it

        if self._columns is None:
            self._columns = Routes()
        keys: Any = batch.keys
        try:
            chosen: Any = self._columns.of(keys, self._routes.finder(keys.distinct()))
        except Unroutable as error:
            record = (keys[error.at], batch.values[error.at], batch.timestamps[error.at])
            why = error.__cause__ or error
            raise operator_error(self._operator_name, why, record, self._routes.partitioner) from why
        self.hot.note(keys[::_SAMPLED], chosen[::_SAMPLED])
        if self._fields is not None:
            batch = batch.with_values(only_fields(batch.values, self._fields))
        return split(batch, chosen, self._workers)

    def _selected(self, batch: Batch, chosen: bytes) -> list[tuple[int, Batch]]:
        """Return the records of each of a few workers: a mask for each is cheaper than the places of its records."""
        parts = ((worker, batch.select(chosen.translate(_MASKS[worker]))) for worker in self._workers)
        return [(worker, part) for worker, part in parts if part]

    def _chosen(self, batch: Batch) -> list[int]:
        """Return the worker of each record.

        Raises:
            OperatorError: if the partitioner fails, naming the record.
        """
        keys = batch.key_column()
        find = self._routes.finder(keys)
        chosen: list[int] = []
        try:
            chosen += map(find, keys)
            while len(chosen) < len(batch):  # a StopIteration ended the map: called directly, it raises
                chosen.append(find(self._key(batch, len(chosen))))
        except Exception as error:
            failed = len(chosen)
            record = (self._key(batch, failed), batch.values[failed], batch.timestamps[failed])
            raise operator_error(self._operator_name, error, record, self._routes.partitioner) from error
        return chosen

    @staticmethod
    def _key(batch: Batch, index: int) -> Any:
        return NoKey if batch.keys is None else batch.keys[index]


class _Routes(dict[Any, int]):
    """The worker that the partitioner chose for each key, cached unless there are too many keys.

    An object that equals another key would use that key's cached worker, although its `__stable_key__` may belong to
    another worker. If this process has such objects, they are cached by class, and containers of them are not cached.
    """

    def __init__(self, exchange: object, partitioner: Partitioner, workers: Sequence[int]) -> None:
        super().__init__()
        self._exchange = exchange
        self.partitioner = partitioner
        self._workers = workers
        self._owners = (
            slot_owners(len(workers)) if partitioner is rendezvous_select and workers == range(len(workers)) else None
        )
        self._by_class: dict[tuple[type, Any], int] = {}
        self._classes: set[type] = set()

    def finder(self, keys: Iterable[Any]) -> Callable[[Any], int]:
        """Return a function that returns the worker of each of these keys."""
        if not STABLE_KEYS_MET.is_set() or PLAIN_TYPES.issuperset(map(type, keys)):
            return self.__getitem__
        return self._find

    def __missing__(self, key: Any) -> int:
        owners = self._owners
        worker = self._ask(key) if owners is None else owners[slot_of(key)]
        for kind in self._classes:
            _check_twins(key, worker, self._by_class.get((kind, key), worker))
        if not STABLE_KEYS_MET.is_set() or _is_plain(key):
            if len(self) >= _CACHED_ROUTES:
                self.clear()
            self[key] = worker
        return worker

    def _find(self, key: Any) -> int:
        if _is_plain(key):
            return self[key]
        if not hasattr(type(key), "__stable_key__"):
            return self._ask_beside_others(key)
        name, known = (type(key), key), self._by_class
        if name not in known:
            if len(known) >= _CACHED_ROUTES:
                known.clear()
            known[name] = self._ask_beside_others(key)
            self._classes.add(type(key))
        return known[name]

    def _ask_beside_others(self, key: Any) -> int:
        worker = self._ask(key)
        _check_twins(key, worker, self.get(key, worker))
        return worker

    def _ask(self, key: Any) -> int:
        if self._owners is not None:
            return self._owners[slot_of(key)]
        worker = self.partitioner(key, self._workers)
        if worker not in self._workers:
            raise ValueError(f"the partitioner returned {worker!r}; it must return one of {list(self._workers)}")
        return int(worker)


def _check_twins(key: Any, worker: int, other: int) -> None:
    """Reject a key that equals a key of another class placed on another worker."""
    if other != worker:
        raise ValueError(
            f"its key, of type {type(key).__qualname__}, equals an earlier one, but they belong to workers {worker} "
            f"and {other}; equal keys must have the same class and equal __stable_key__()s: return False from its "
            "__eq__ for objects of other classes"
        )


def _is_plain(key: Any) -> bool:
    """Whether a key and its contents have built-in types."""
    kind = type(key)
    return kind in PLAIN_TYPES or (kind is tuple and PLAIN_TYPES.issuperset(map(type, key)))


_ROUTES: WeakValueDictionary[tuple[int, Sequence[int]], _Routes] = WeakValueDictionary()


def _routes_of(exchange: object, partitioner: Partitioner, workers: Sequence[int]) -> _Routes:
    """Return the routes that the senders of an exchange share in this process.

    Other runs have their own: keys of another job are never compared with keys of this one, since their ``__eq__`` may
    raise.
    """
    name = id(exchange), tuple(workers)  # the routes hold the object, so that its id stays unique
    routes = _ROUTES.get(name)
    if routes is None:
        routes = _ROUTES[name] = _Routes(exchange, partitioner, workers)
    return routes


class Merge(Operator):
    """Merge the batches of several edges into one stream: the receiving side of an exchange, or a union.

    The epochs are merged by `Frontiers`. Edges without epochs take turns.

    Args:
        context: the operator's context.
        edges: the number of edges.
        in_turn: whether the order between edges without epochs matters; if not, each edge's batches pass unchanged.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, edges: int, *, in_turn: bool) -> None:
        super().__init__(context)
        self._frontiers = Frontiers(context, edges)
        self.state = self._frontiers.state
        self._in_turn = in_turn
        self.takes_pieces = not in_turn

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        self._frontiers.set_idle(edges)

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the active streams."""
        return self._frontiers.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Merge the input of all edges, and issue an epoch that edges, now idle, have held back."""
        try:
            for batch in self._frontiers.catch_up():
                yield (batch,)
            if any(edges):
                for batch in self._merge(edges):
                    yield (batch,)
        except Exception as error:
            raise self._frontiers.error(error) from error

    def sync_state(self) -> None:
        """Write the epochs and the idle edges to the state."""
        self._frontiers.sync_state()

    def apply(self, delta: Delta) -> None:
        """Restore the epochs of the edges."""
        self._frontiers.apply(delta)

    def _merge(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Batch]:
        alone = self._frontiers.only_edge(edges)
        if alone is not None:
            return self._frontiers.pass_unchanged(alone, edges[alone])
        if any(batch.epochs for batches in edges for batch in batches):
            full = [batch for batches in edges for batch in batches if len(batch)]
            if full and all(batch.has_arrays for batch in full):
                return self._merge_columns(edges)
            return (concat([batch for _, batch in self._frontiers.by_frontier(edges)]),)
        if not self._in_turn:
            return [batch for batches in edges for batch in batches]
        return (interleave([concat(batches) for batches in edges if batches]),)

    def _merge_columns(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Batch]:
        from malflow.columns.merging import merged  # noqa: PLC0415 - only the extra has it

        first = [*accumulate(map(len, edges), initial=0)]
        runs = ((first[edge] + number, *run) for edge, number, *run in self._frontiers.runs(edges))
        return merged([batch for batches in edges for batch in batches], runs)


def _share(batch: Batch, indices: list[int]) -> Batch:
    if len(indices) == len(batch):
        return batch
    part = batch.take(indices)
    epochs = [(bisect_left(indices, position), epoch) for position, epoch in batch.epochs]
    return Batch(part.keys, part.values, part.timestamps, epochs)
