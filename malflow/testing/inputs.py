"""All records of a test in one order across its sources, and the sources that emit them one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile, zip_longest
from typing import Any

from malflow.checks import is_number
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.nodes import SourceNode
from malflow.records.batch import Batch, concat
from malflow.sources.contract import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.states.keyed import copied
from malflow.testing.scripted import PAUSE, Mark, Pause, Timed
from malflow.testing.shared_count import Count
from malflow.words import error_text, listed, plural, short_repr

__all__ = ["Feed", "FeedRecord", "feed_of", "tick_times"]

_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """One record, with its source and part; a frame of several; or a pause: a tick without a record.

    Attributes:
        source, part, value, timestamp: the record's source, part, value and timestamp; of a frame, these are columns.
        is_frame: whether it is a frame.
        is_pause: whether it is a pause.
        gap: the seconds from the start of the previous tick to this one; None if the item does not set them.
    """

    source: str
    part: Any
    value: Any
    timestamp: Any
    is_pause: bool = False
    is_frame: bool = False
    gap: float | None = None

    def __str__(self) -> str:
        return f"a frame of {plural(len(self.value), 'row')}" if self.is_frame else short_repr(self.value)


class Feed:
    """All records of a test, in the same order in every run; sources may emit those before `allowed`.

    Attributes:
        records: the records.
        count: holds `allowed`; worker processes read a shared one.
    """

    def __init__(self, parts: Mapping[str, Mapping[Any, Sequence[FeedRecord]]]) -> None:
        rows = zip_longest(*(records for by_part in parts.values() for records in by_part.values()))
        self.records = [record for row in rows for record in row if record is not None]
        self.count = Count()
        self._parts = {name: list(by_part) for name, by_part in parts.items()}

    def __len__(self) -> int:
        return len(self.records)

    @property
    def allowed(self) -> int:
        """The number of records that sources may emit by now."""
        return self.count.value

    @allowed.setter
    def allowed(self, number: int) -> None:
        self.count.value = number

    def source(self, name: str, *, keyed: bool) -> StatefulSource[Any, Any, Any, int]:
        """Return the replacement for the source of this name."""
        numbers: dict[Any, list[int]] = {part: [] for part in self._parts[name]}
        for number, record in enumerate(self.records):
            if record.source == name:
                numbers[record.part].append(number)
        return StatefulSource(_FeedSource(self, numbers, keyed=keyed))


class _FeedSource(StatefulSourceImpl[Any, Any, Any, int]):
    def __init__(self, feed: Feed, numbers: Mapping[Any, Sequence[int]], *, keyed: bool) -> None:
        self.keyed = keyed  # type: ignore[misc] # it differs between instances here
        self._feed = feed
        self._numbers = numbers

    def list_parts(self) -> Iterable[Any]:
        return list(self._numbers)

    def build_part(self, part: Any, state: int | None) -> _FeedPart:
        return _FeedPart(self._feed, self._numbers[part], state or 0)


class _FeedPart(StatefulSourcePartition[Any, Any, int]):
    def __init__(self, feed: Feed, numbers: Sequence[int], position: int) -> None:
        self._feed = feed
        self._numbers = numbers
        self._position = position

    def poll(self) -> tuple[Any, Any] | None:
        """Return a copy of the next record if it is its turn, as if it had just been read."""
        if self.is_finished() or self._numbers[self._position] >= self._feed.allowed:
            return None
        record = self._feed.records[self._numbers[self._position]]
        self._position += 1
        if record.is_pause:
            return None
        return copied(record.value), record.timestamp

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the next records whose turn it is: of frames, the rows of all of them as one frame."""
        turn = self._numbers[self._position : bisect_left(self._numbers, self._feed.allowed)]
        frames = list(takewhile(lambda it: it.is_frame, (self._feed.records[number] for number in turn)))
        if not frames:
            return super().poll_batch(limit)
        self._position += len(frames)
        whole = concat([Batch(None, it.value.apart(), it.timestamp) for it in frames])
        return whole.values, whole.timestamps

    def is_finished(self) -> bool:
        return self._position == len(self._numbers)

    def snapshot(self) -> int:
        return self._position


def feed_of(inputs: Any, sources: Mapping[str, SourceNode], seed: int | None = None) -> Feed:
    """Return the feed of a test's inputs: the items of the only source, or of each source by name.

    Args:
        inputs: the inputs.
        sources: the sources.
        seed: seeds the sizes of frames.

    Raises:
        GraphError: if a source has no items, there is no source of a name, or the items do not fit the source.
    """
    if not isinstance(inputs, Mapping):
        if len(sources) != 1:
            raise GraphError(
                f"the dataflow has {len(sources)} sources: {_names(sources)}; pass a mapping from name to items"
            )
        inputs = {next(iter(sources)): inputs}
    missing, unknown = sources.keys() - inputs.keys(), inputs.keys() - sources.keys()
    if unknown:
        raise GraphError(f"inputs has {_names(unknown)}; the sources of the dataflow are {_names(sources)}")
    if missing:
        raise GraphError(f"inputs has no {_names(missing)}; every source of the dataflow needs its items")
    return Feed({name: _parts(node, inputs[name], seed) for name, node in sources.items()})


def tick_times(feed: Feed, ticks: float | Sequence[float]) -> list[datetime]:
    """Return the times at which the ticks of the records begin, and last the time of the end.

    Args:
        feed: the records.
        ticks: the seconds between ticks; the last number applies to all ticks that follow.

    Raises:
        GraphError: if one is not a number, or negative.
    """
    gaps = list(ticks) if isinstance(ticks, Sequence) else [ticks]
    if not gaps or not all(is_number(gap, least=0) for gap in gaps):
        raise GraphError(f"ticks must be a number of seconds, or several; got {short_repr(ticks)}")
    times = [_START]
    for index, record in enumerate(feed.records):
        gap = gaps[min(index, len(gaps) - 1)] if record.gap is None else record.gap
        times.append(times[-1] + timedelta(seconds=gap))
    return times[1:] + times[-1:]


def _parts(node: SourceNode, items: Any, seed: int | None) -> dict[Any, list[FeedRecord]]:
    if node.keyed and not isinstance(items, Mapping):
        raise GraphError(
            f"source '{node.name}' keys each record by its part; pass a mapping from part to items, as in "
            f"{{'{node.name}': {{'part': [...]}}}}; got {short_repr(items)}"
        )
    parts = items if isinstance(items, Mapping) else {NoKey: items}
    return {part: list(_records(node.name, part, given, seed)) for part, given in parts.items()}


def _records(source: str, part: Any, items: Any, seed: int | None) -> Iterator[FeedRecord]:
    if hasattr(items, "__arrow_c_stream__"):
        yield from _frames(source, part, items, seed)
        return
    try:
        listed = list(items)
    except TypeError:
        raise GraphError(f"source '{source}' needs an iterable of items; got {short_repr(items)}") from None
    index = 0
    for item in listed:
        if item is PAUSE or isinstance(item, Pause):
            yield FeedRecord(source, part, item, None, is_pause=True)
            if isinstance(item, Pause):
                yield FeedRecord(source, part, item, None, is_pause=True, gap=item.seconds)
            continue
        if isinstance(item, Mark):
            raise GraphError(f"source '{source}' contains {item!r}; here stops and crashes come from the schedule")
        timed = item if isinstance(item, Timed) else Timed(item, index)
        yield FeedRecord(source, part, timed.value, timed.timestamp)
        index += 1


def _frames(source: str, part: Any, table: Any, seed: int | None) -> Iterator[FeedRecord]:
    """Yield the rows of a table in frames of drawn sizes; the timestamp of a row is its index."""
    from malflow.testing.frames import frames_of  # noqa: PLC0415 - only the extra of columns has it

    try:
        frames = list(frames_of(table, f"{seed} {source} {short_repr(part)}"))
    except (TypeError, ValueError) as error:
        raise GraphError(f"source '{source}' can't have these columns: {error_text(error)}") from error
    at = 0
    for frame in frames:
        yield FeedRecord(source, part, frame, range(at, at + len(frame)), is_frame=True)
        at += len(frame)


def _names(names: Iterable[Any]) -> str:
    return listed(sorted(names))
