"""The operators that host a user's sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from malflow.errors import check_methods, check_not_deferred, offers, release_all
from malflow.failures import OnError
from malflow.message import DataMessage, NoKey
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.dead_letters import Letters
from malflow.operators.failures.guard import Guard, is_fatal
from malflow.operators.failures.surviving import record_of
from malflow.operators.hosting.parts import PartOperator
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar
from malflow.sinks.contract import KeepingSinkImpl, StatefulSink, StatelessSink, is_resumable, offered

__all__ = ["SinkWriter", "StatefulSinkWriter", "StatelessSinkWriter", "open_sink"]


class SinkWriter(Operator):
    """Write records to a sink. With a guard, continue without the records that it can't write.

    Attributes:
        is_resumable: whether `position` and `restore` of the sink can be called.
    """

    is_resumable = False

    @property
    def reader_is_gone(self) -> bool:
        """Whether the output has lost its reader; the run should then end."""
        return False

    def position(self) -> Any:
        """Return the position of a resumable sink after all records so far; None for other sinks.

        Raises:
            OperatorError: if the sink fails.
        """

    def restore(self, position: Any) -> None:
        """Return a resumable sink to a position.

        Raises:
            OperatorError: if the sink fails.
        """

    def _write(self, sink: Any, batch: Batch) -> None:
        """Write the records of a batch to a sink."""
        if self.guard is not None:
            self._write_guarded(self.guard, sink, batch)
            return
        if offered(sink, "sink_batch") is not None:
            try:
                _call_sink(sink, batch)
            except Exception as error:
                raise self.error(error) from error
            return
        batch = batch.listed()
        write, rest = sink.sink, iter(batch.values)
        try:
            for message in map(DataMessage, batch.key_column(), rest, batch.timestamps):
                write(message)
        except Exception as error:
            raise self.fail(error, batch, rest) from error

    def _write_guarded(self, guard: Guard, sink: Any, batch: Batch) -> None:
        """Write the records that the sink takes: whole batches, by halves after a failure, if it takes all or none."""
        if len(batch) > 1 and not getattr(sink, "takes_all_or_none", False):
            batch = batch.listed()
            for at in range(len(batch)):
                self._write_one(guard, sink, batch.take([at]))
            return
        if len(batch) == 1:
            self._write_one(guard, sink, batch)
            return
        try:
            _call_sink(sink, batch)
        except Exception as error:
            if _ends_run(error):
                raise self.error(error) from error
            middle = len(batch) // 2
            self._write_guarded(guard, sink, batch.part(0, middle))
            self._write_guarded(guard, sink, batch.part(middle, len(batch)))

    def _write_one(self, guard: Guard, sink: Any, batch: Batch) -> None:
        record = record_of(batch, 0)
        for _ in guard.turns([record]):
            try:
                _call_sink(sink, batch)
            except Exception as error:
                if _ends_run(error):
                    raise self.error(error, record) from error
                if not guard.repeats(error):
                    guard.take(error, record)


class StatelessSinkWriter(SinkWriter):
    """Write records to a stateless sink, one object that all workers of a process share."""

    def __init__(self, context: OperatorContext, sink: StatelessSink[Any, Any, Any]) -> None:
        super().__init__(context, sink.impl)
        self.is_resumable = is_resumable(sink.impl)

    @property
    def resource(self) -> object:
        """The user's sink."""
        sink: object = self.callback
        return sink

    @property
    def reader_is_gone(self) -> bool:
        """Whether the output has lost its reader; the run should then end."""
        return bool(getattr(self.callback, "reader_is_gone", False))

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Write the records."""
        if len(batch):
            self._write(self.callback, batch)
        if self.guard is not None:
            self._take_refused(self.guard)
        return ()

    def position(self) -> Any:
        """Return the sink's position after all records so far.

        Raises:
            OperatorError: if the sink fails.
        """
        try:
            return self.callback.snapshot()
        except Exception as error:
            raise self.error(error, about="snapshot") from error

    def restore(self, position: Any) -> None:
        """Return the sink to a position.

        Raises:
            OperatorError: if the sink fails.
        """
        try:
            self.callback.restore(position)
        except Exception as error:
            raise self.error(error, about="restore") from error

    def flush(self) -> None:
        """Flush the sink."""
        _call_optional(self, self.callback, "flush")
        if self.guard is not None:
            self._take_refused(self.guard)

    def _take_refused(self, guard: Guard) -> None:
        """Pass the records that a sink, which sends records itself, was refused to the guard."""
        for it in self.callback.take_refused() if offers(self.callback, "take_refused") else ():
            guard.take(it.error, (it.key, it.value, it.timestamp), attempts=1)

    def close(self) -> None:
        """Close the sink."""
        _call_optional(self, self.callback, "close")


class StatefulSinkWriter(PartOperator, SinkWriter):
    """Write records to the parts of a stateful sink that this worker holds."""

    def __init__(self, context: OperatorContext, sink: StatefulSink[Any, Any, Any, Any, Any]) -> None:
        super().__init__(context, sink.impl)
        self._partitions: dict[Any, Any] = {}

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Group the records by part, restore their keys, and write them."""
        chosen: dict[Any, list[int]] = {}
        for index, part in enumerate(batch.key_column()):
            chosen.setdefault(part, []).append(index)
        for part, indices in chosen.items():
            records = batch.take(indices)
            keys, values = zip(*records.values, strict=True)
            self._write(self._partition(part), Batch(keys, values, records.timestamps))
        return ()

    def transfer_parts(self, holder_of: Callable[[Any], Self]) -> None:
        """Transfer each part to its holder; a part that moves is collected, closed and rebuilt there."""
        for part, partition in list(self._partitions.items()):
            holder = holder_of(part)
            moves = holder.context.worker_id != self.context.worker_id
            if moves:
                holder.state[part] = self._collect(part, partition)
            del self._partitions[part]
            if moves:
                _call_optional(self, partition, "close")
            else:
                holder.attach(part, partition)

    def attach(self, part: Any, partition: Any) -> None:
        """Take over the writer of a part."""
        self._partitions[part] = partition

    def flush(self) -> None:
        """Flush the writers of all parts."""
        release_all(partial(_call_optional, self, partition, "flush") for partition in self._partitions.values())

    def close(self) -> None:
        """Close the writers of all parts; they are rebuilt when records arrive."""
        partitions, self._partitions = self._partitions, {}
        release_all(partial(_call_optional, self, partition, "close") for partition in partitions.values())

    def note_positions(self) -> None:
        """Write changed positions to the state."""
        for part, partition in self._partitions.items():
            self._positions.note(part, self._snapshot(part, partition))

    def _partition(self, part: Any) -> Any:
        if part not in self._partitions:
            partition = self._call(part, self.callback.build_part, part, self.state.get(part))
            needed = ("sink", "snapshot") if self.context.tracked else ("sink",)
            self._call(part, check_methods, partition, "build_part()", needed)
            self._call(
                part, check_not_deferred, partition, "build_part()", ("sink_batch", "snapshot", "flush", "close")
            )
            self._partitions[part] = partition
        return self._partitions[part]


def open_sink(
    context: OperatorContext,
    sink: StatelessSink[Any, Any, Any] | StatefulSink[Any, Any, Any, Any, Any],
    policy: OnError | None = None,
    letters: Letters | None = None,
) -> SinkWriter:
    """Return the operator that writes to a sink.

    Args:
        context: its context.
        sink: the sink.
        policy: the policy for records that the sink can't write; None if they end the run.
        letters: the dead letters of such records.
    """
    kind: Any = StatelessSinkWriter if isinstance(sink, StatelessSink) else StatefulSinkWriter
    writer: SinkWriter = kind(context, sink)
    if policy is not None and letters is not None:
        if hasattr(sink.impl, "encodes_at_once"):
            sink.impl.encodes_at_once = True
        writer.guard = Guard(writer, policy, letters)
    return writer


def _call_sink(sink: Any, batch: Batch) -> None:
    """Write a batch of records, or one."""
    if is_columnar(batch.values) and _has_written_columns(sink, batch):
        return
    batch = batch.listed()
    write_batch = offered(sink, "sink_batch")
    if write_batch is not None:
        write_batch([NoKey] * len(batch) if batch.keys is None else batch.keys, batch.values, batch.timestamps)
        return
    for message in batch.messages():
        sink.sink(message)


def _has_written_columns(sink: Any, batch: Batch) -> bool:
    """Write a batch whose values are columns, if the sink takes them; return whether it does."""
    keep = offered(sink, "keep") if isinstance(sink, KeepingSinkImpl) else None
    if keep is not None:
        keep(batch.keys, batch.values, batch.timestamps)
        return True
    write = offered(sink, "sink_columns") if getattr(sink, "takes_columns", True) else None
    columns = batch.values.record_batch() if write is not None and is_columnar(batch.values) else None
    if write is None or columns is None:
        return False
    write(batch.keys, columns, batch.timestamps)
    return True


def _ends_run(error: Exception) -> bool:
    """Whether an error of a sink is about the system outside, or malflow, rather than about a record."""
    return is_fatal(error) or (isinstance(error, OSError) and not getattr(error, "refuses_records", False))


def _call_optional(operator: Operator, sink: Any, method: str) -> None:
    try:
        getattr(sink, method, _nothing)()
    except Exception as error:
        raise operator.error(error, about=method) from error


def _nothing() -> None:
    return None
