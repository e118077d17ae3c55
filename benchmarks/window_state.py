"""Measure what windows and joins keep: after many keys that come once, in snapshots, and over a long stream.

python benchmarks/window_state.py [--keys 1000000] [--records 1000000,10000000] [--only memory,once,delta]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter, truediv
from random import Random
from statistics import median
from typing import Any

from tables import print_table

from malflow import DataMessage, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.files.data_file import compress, encode_delta
from malflow.sources import StatelessSource, StatelessSourceImpl, StatelessSourcePartition
from malflow.states.keyed import Delta, StateDelta
from malflow.testing.driven import DrivenRun
from malflow.windows import session, sliding, tumbling

SECTIONS = ("memory", "once", "delta")
KINDS = ("tumbling", "session", "interval join")
PER_SECOND = 10_000
"""Records that come once in a second of event time."""

_SECOND = 1_000
_WARM_UP = 90
"""Seconds after which a sliding window of a minute has all of its panes."""

_START = datetime(2024, 1, 1, tzinfo=UTC)

Build = Callable[[StreamProvider], None]


class Numbers(StatelessSourceImpl[int, int, int]):
    """The numbers below `count`, each once; their timestamps are milliseconds. At last comes -1, a day later."""

    keyed = False

    def __init__(self, count: int) -> None:
        self._count = count

    def list_parts(self) -> Iterable[int]:
        """List the one part."""
        return [0]

    def build_part(self, part: int) -> NumbersPartition:
        """Return a reader."""
        del part
        return NumbersPartition(self._count)


class NumbersPartition(StatelessSourcePartition[int, int]):
    """Counts up."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._at = 0

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the next numbers; the last one alone."""
        values = range(self._at, min(self._at + limit, self._count))
        if not values:
            self._at = self._count + 1
            return [-1], [self._count * _SECOND // PER_SECOND + 86_400 * _SECOND]
        self._at = values.stop
        return values, [number * _SECOND // PER_SECOND for number in values]

    def poll(self) -> tuple[int, int] | None:
        """Return one number."""
        values, timestamps = self.poll_batch(1)
        return values[0], timestamps[0]

    def is_finished(self) -> bool:
        """Whether all came."""
        return self._at > self._count


class Seconds(StatelessSourceImpl[int, tuple[str, int], datetime]):
    """A thousand records a poll and a second, one of each key in random order."""

    keyed = False

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def list_parts(self) -> Iterable[int]:
        """List the one part."""
        return [0]

    def build_part(self, part: int) -> SecondsPartition:
        """Return a reader."""
        del part
        return SecondsPartition(self._seconds)


class SecondsPartition(StatelessSourcePartition[tuple[str, int], datetime]):
    """Shuffles the keys each second."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._at = 0
        self._keys = [f"key-{number}" for number in range(1_000)]
        self._random = Random(7)

    def poll_batch(self, limit: int) -> tuple[Sequence[tuple[str, int]], Sequence[datetime]]:
        """Return the records of the next second."""
        del limit
        start = _START + timedelta(seconds=self._at)
        self._at += 1
        timestamps = [start + timedelta(milliseconds=at) for at in range(len(self._keys))]
        keys = self._random.sample(self._keys, len(self._keys))
        return [(key, self._random.randrange(100)) for key in keys], timestamps

    def poll(self) -> None:
        """Return nothing: records come by the second."""

    def is_finished(self) -> bool:
        """Whether all came."""
        return self._at >= self._seconds


class Count(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts the results."""

    def __init__(self) -> None:
        self.results = 0

    def sink(self, msg: Any) -> None:
        """Count one result."""
        self.results += 1

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Count the results of a batch."""
        self.results += len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="how many keys come once")
    parser.add_argument("--seconds", type=int, default=30, help="how many deltas of sliding windows are measured")
    parser.add_argument("--records", default="1000000,10000000", help="lengths of the streams whose memory is measured")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, such as memory,once")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of is not None:
        _print_peak(*options.peak_of.split(":"))
        return
    only = options.only.split(",")
    if "memory" in only:  # first, while this process is small: a child's peak begins at its parent's
        _print_peaks([int(count) for count in options.records.split(",")])
    if "once" in only:
        _print_once(options.keys)
    if "delta" in only:
        _print_deltas(options.seconds)


def _print_once(keys: int) -> None:
    """Run flows in which each key comes once, and then an epoch that closes everything."""
    rows = []
    for kind in KINDS:
        total = 0
        with _opened(_once(kind, Numbers(keys), Count(), size=3_600 * _SECOND)) as run:
            while True:
                before, size = _open_states(run), _bytes(run)
                run.tick()
                if run.is_finished:
                    break
                total += size
            row = [kind, f"{keys:,}", f"{before:,}", f"{_open_states(run):,}", f"{total:,}", f"{_bytes(run):,}"]
            run.tick()
            rows.append((*row, f"{_bytes(run):,}"))
    print("\neach key once, then an epoch that closes all windows; bytes of deltas as in snapshots\n")
    header = ("what", "keys", "states before it", "after", "deltas before it", "its delta", "the next one")
    print_table(header, rows)


def _print_deltas(seconds: int) -> None:
    """Measure the changes of each second, as they are and with all panes of the keys that changed."""

    def build(provider: StreamProvider) -> None:
        bound, every = timedelta(seconds=3), timedelta(seconds=1)
        keyed = _on_time(provider, Seconds(_WARM_UP + seconds), bound, every, key_fn=lambda msg: msg.value[0])
        windows = sliding(timedelta(minutes=1), timedelta(seconds=1))
        keyed.window(windows).aggregate("windows", agg.sum(itemgetter(1))).sink("count", StatelessSink(Count()))

    slots, whole = [], []
    with _opened(build) as run:
        for second in range(_WARM_UP + seconds):
            run.tick()
            delta = _windows_of(run.deltas())
            if second >= _WARM_UP:
                slots.append(_sizes(delta.delta))
                whole.append(_sizes(_by_key(run, delta)))
    rows = []
    for which, some, every in zip(
        ("as it is", "with lz4"), zip(*slots, strict=True), zip(*whole, strict=True), strict=True
    ):
        ratio = median(map(truediv, every, some))
        rows.append((which, f"{median(some):,.0f}", f"{median(every):,.0f}", f"{ratio:.1f}"))
    print("\nsliding 60 s by 1 s, the changes of a second with a record of each of 1,000 keys; bytes, medians\n")
    print_table(("delta", "slots that changed", "whole keys that changed", "whole / slots"), rows)


def _sizes(delta: Delta) -> tuple[int, int]:
    """Return how many bytes a delta has in a snapshot, before and after compression."""
    chunks = [raw for *_, raw in encode_delta(PickleCodec(), delta)]
    return sum(map(len, chunks)), sum(len(compress(raw, "lz4")) for raw in chunks)


def _by_key(run: DrivenRun, delta: StateDelta) -> Delta:
    """Return the accumulators by key and pane, as they would be kept with the panes in the state of a key.

    A pane that is dropped changes all of its keys.
    """
    changed = {key for _, key in [*delta.delta.changed, *delta.delta.deleted]}
    by_key: dict[Any, dict[int, Any]] = {key: {} for key in changed}
    for (number, key), state in run.states()[delta.worker, delta.name].items():
        if key in changed:
            by_key[key][number] = state
    return Delta(by_key)


def _print_peaks(lengths: Sequence[int]) -> None:
    """Measure the peak memory of streams of different lengths, in a process of its own for each."""
    rows = []
    for kind in KINDS:
        peaks = []
        for records in lengths:
            command = [sys.executable, __file__, "--peak-of", f"{kind}:{records}"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
            peaks.append(done.stdout.strip())
        rows.append((kind, *peaks))
    print("\npeak memory, each key once, windows and gaps of 10 s; in brackets: before the first record\n")
    print_table(("what", *(f"{records:,} records" for records in lengths)), rows)


def _print_peak(kind: str, records: str) -> None:
    before, count = _peak(), Count()
    SingleThreadRuntime(_once(kind, Numbers(int(records)), count, size=10 * _SECOND)).execute()
    if count.results != int(records):
        raise SystemExit(f"{kind}: {records} records made {count.results} results")
    print(f"{_peak():.0f} MB ({before:.0f})")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _once(kind: str, source: Numbers, count: Count, *, size: int) -> Build:
    """Return a dataflow in which each key has one result.

    Args:
        kind: its operator, of `KINDS`.
        source: its records.
        count: its sink.
        size: the length of windows, the gap of sessions, or how far the records of a pair may be apart.
    """

    def build(provider: StreamProvider) -> None:
        keyed = _on_time(provider, source, _SECOND, _SECOND)
        if kind == "interval join":
            other = _on_time(provider, source, _SECOND, _SECOND, name=" of the right")
            results = keyed.interval_join("windows", other, before=size, after=size)
        else:
            windows = tumbling(size) if kind == "tumbling" else session(size)
            results = keyed.window(windows).aggregate("windows", agg.count())
        results.sink("count", StatelessSink(count))

    return build


def _is_counted(value: Any) -> bool:
    return value != -1


def _value_of(msg: DataMessage[Any, Any, Any]) -> Any:
    return msg.value


def _on_time(
    provider: StreamProvider, source: Any, bound: Any, every: Any, *, key_fn: Any = _value_of, name: str = ""
) -> Any:
    """Return the keyed records on time, without the -1, which only moves the epoch."""
    stream = provider.new_stream().source(f"source{name}", StatelessSource(source))
    on_time, late = stream.generate_epochs(f"epochs{name}", limit_out_of_orderness(bound), every=every)
    late.filter(f"none{name}", lambda _: False)
    return on_time.filter(f"all but the last{name}", _is_counted).key_distribute(f"key{name}", key_fn)


def _opened(build: Build) -> DrivenRun:
    graph = Graph()
    build(StreamProvider(graph))
    run = DrivenRun(compile_graph(graph), parallelism=1, tracked=True)
    run.open()
    return run


def _windows_of(deltas: Iterable[StateDelta]) -> StateDelta:
    return next(delta for delta in deltas if delta.name == "windows")


def _open_states(run: DrivenRun) -> int:
    return len(run.states()[0, "windows"])


def _bytes(run: DrivenRun) -> int:
    """Return the bytes of the windows' changes since the last call."""
    return sum(_sizes(it.delta)[1] for it in run.deltas() if it.name == "windows")


if __name__ == "__main__":
    main()
