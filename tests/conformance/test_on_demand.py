"""Parts that are handed out one after the other: results, late records and states as where all are read at once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import JsonLinesSource, StatefulSource
from malflow.testing import CRASH, PAUSE, Crash, Timed
from malflow.windows import tumbling
from tests.conformance.dataflow import SECONDS
from tests.kit.backends import kept_states
from tests.kit.bounded import BoundedSource

PARTS = 26
"""More than two for each of the workers of any case."""

DRAWN = random.Random(40)  # noqa: S311 - for tests
TIMES = {part: [DRAWN.randrange(60) for _ in range(DRAWN.choice([0, 1, 4, 20]))] for part in range(PARTS)}
"""The timestamps of the records of each part, in no order."""


def script(*, marks: Sequence[Any] = (), gap: int = 3) -> dict[int, list[Any]]:
    """Return the records of each part, with a pause now and then."""
    return {
        part: [it for at, when in enumerate(times) for it in ([PAUSE] if at % gap == 0 else []) + [Timed(when, when)]]
        + [*marks]
        for part, times in TIMES.items()
    }


def on_time_and_late(times: Mapping[Any, Sequence[int]]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the counts of windows of ten for each part, and the late records: those not above the part's epoch."""
    windows: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    for part, stamps in times.items():
        epoch = -1
        for stamp in stamps:
            if stamp > epoch:
                windows[part, stamp // 10 * 10] += 1
            else:
                late[part, stamp] += 1
            epoch = max(epoch, stamp)
    return windows, late


def timed(source: Any, windows: Any, late: Any, *, exchange: bool = False, **how: Any) -> Any:
    """Count records in windows, by part or by a key of all workers."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(source))
        on_time, behind = stream.generate_epochs("epochs", limit_out_of_orderness(0), **how)
        behind.sink("late", late)
        if exchange:
            on_time = on_time.key_distribute("key", lambda msg: msg.value % 3)
        counted = on_time.window(tumbling(10)).aggregate("windows", agg.count())
        counted.map("window", lambda it: (it.start, it.value)).sink("window counts", windows)

    return build


@pytest.mark.parametrize("how", [{}, {"every": 5}, {"idle_after": timedelta(hours=1)}])
def test_windows_and_late_records_of_parts(any_parallelism: Any, how: dict[str, Any]) -> None:
    windows: VecSink[Any, Any, Any] = VecSink()
    late: VecSink[Any, Any, Any] = VecSink()
    any_parallelism(timed(BoundedSource(script()), windows, late, **how), part_assignment="dynamic").execute()
    expected, behind = on_time_and_late(TIMES)
    if "every" not in how:
        assert Counter((it.key, it.value) for it in late) == behind
        assert {(it.key, it.value[0]): it.value[1] for it in windows} == expected
    found = Counter({(it.key, it.value[0]): it.value[1] for it in windows})
    assert found.total() + len(late.values) == sum(map(len, TIMES.values()))
    assert Counter((it.key, it.value) for it in late) <= behind, "none is late because its part was begun late"


def test_windows_of_keys_from_all_parts(any_parallelism: Any) -> None:
    windows: VecSink[Any, Any, Any] = VecSink()
    late: VecSink[Any, Any, Any] = VecSink()
    build = timed(BoundedSource(script(), knows_sizes=False), windows, late, exchange=True)
    any_parallelism(build, part_assignment="dynamic").execute()
    _, behind = on_time_and_late(TIMES)
    records = Counter((stamp % 3, stamp // 10 * 10) for times in TIMES.values() for stamp in times)
    records.subtract(Counter({}) | Counter(_windows_of_late(behind)))
    assert Counter((it.key, it.value) for it in late) == behind
    assert {(it.key, it.value[0]): it.value[1] for it in windows} == {it: n for it, n in records.items() if n}


def _windows_of_late(late: Counter[Any]) -> Counter[Any]:
    windows: Counter[Any] = Counter()
    for (_, stamp), count in late.items():
        windows[stamp % 3, stamp // 10 * 10] += count
    return windows


def test_a_union_waits_for_unread_parts(any_parallelism: Any) -> None:
    """The other stream has ended before most parts are begun."""
    out: VecSink[Any, Any, Any] = VecSink()
    late: VecSink[Any, Any, Any] = VecSink()
    rising = {part: [it for at in range(0, 60, 6) for it in (Timed(at, at), PAUSE)] for part in range(PARTS)}
    other = BoundedSource({"other": [Timed(100, at) for at in range(60)]})

    def build(provider: StreamProvider) -> None:
        streams = []
        for name, source in (("parts", BoundedSource(rising)), ("other", other)):
            stream = provider.new_stream().source(name, StatefulSource(source))
            on_time, behind = stream.generate_epochs(f"epochs of {name}", limit_out_of_orderness(0))
            behind.sink(f"late {name}", late)
            streams.append(on_time.key_distribute(f"key of {name}", lambda _: 0))
        both = streams[0].union(streams[1], name="both").window(tumbling(10)).aggregate("windows", agg.count())
        both.map("window", lambda it: (it.start, it.value)).sink("out", out)

    any_parallelism(build, part_assignment="dynamic").execute()
    assert not late.values
    per_window = Counter(at // 10 * 10 for at in range(0, 60, 6))
    assert dict(out.values) == {start: 10 + PARTS * count for start, count in per_window.items()}


def test_a_join_of_two_sources_with_equal_parts(any_parallelism: Any, store: FsspecBackend) -> None:
    """Streams keyed by equal parts meet, whichever is begun first."""
    left = BoundedSource({part: [1, PAUSE, 2, PAUSE, 3] for part in range(PARTS)})
    right = BoundedSource({float(part): [10, PAUSE, 20] for part in reversed(range(PARTS + 4))}, knows_sizes=False)

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("left", StatefulSource(left))
        tens = provider.new_stream().source("right", StatefulSource(right))
        both = numbers.union(tens, name="both")
        both.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("out", VecSink())

    any_parallelism(build, store).execute()
    assert kept_states(store, "sum") == {part: 36 if part < PARTS else 30 for part in range(PARTS + 4)}


def slow(value: Any) -> Any:
    """Return the value after a while, in which a run can be asked something."""
    time.sleep(0.002)
    return value


def counted(source: Any, out: Any, mapper: Any = str) -> Any:
    """Count the records of each part, right after the source."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(source)).map("slow", mapper)
        stream.stateful_map("count", lambda part, _, n: ((part, n + 1), n + 1), int).sink("counts", out)

    return build


COUNTS = {part: len(times) for part, times in TIMES.items() if times}


def test_a_crash_reads_each_part_once(any_parallelism: Any, store: FsspecBackend) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    crashes = BoundedSource({part: [*items, CRASH if part % 9 == 4 else PAUSE] for part, items in script().items()})
    crashed = 0
    for workers in (2, 3, 2):  # two workers may crash in one tick
        try:
            any_parallelism(counted(crashes, out), store, "5ms", parallelism=workers).execute()
        except (Crash, OperatorError):
            crashed += 1
    assert crashed
    any_parallelism(counted(BoundedSource(script(marks=[PAUSE])), out), store).execute()
    assert kept_states(store, "count") == COUNTS


def test_a_rescale_in_the_middle_reads_each_part_once(any_parallelism: Any, store: FsspecBackend) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    rows = {part: 4 + part % 5 for part in range(40)}
    source = BoundedSource({part: [it for row in range(count) for it in (row, PAUSE)] for part, count in rows.items()})
    handle = any_parallelism(counted(source, out, slow), store, parallelism=2).start()
    for workers in (3, 4, 2):
        handle.rescale(workers).result(SECONDS)
    assert handle.await_termination(SECONDS)
    assert kept_states(store, "count") == rows
    assert sorted(out.values) == sorted((part, row + 1) for part, count in rows.items() for row in range(count))


def test_files_are_read_by_all_workers(runtime: Any, tmp_path: Path) -> None:
    sizes = [3 + int(3 * DRAWN.paretovariate(1.3)) for _ in range(60)]
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}.jsonl").write_text("".join(f"[{number}, {row}]\n" for row in range(size)))
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("files", JsonLinesSource(f"{tmp_path}/*.jsonl")).sink("out", out)

    runtime(build, parallelism=4).execute()
    assert sorted(map(tuple, out.values)) == [(file, row) for file, size in enumerate(sizes) for row in range(size)]
    for number in range(len(sizes)):
        rows = [row for file, row in out.values if file == number]
        assert rows == sorted(rows), "the order within a part stays"


def test_a_listed_file_that_is_gone_names_source_and_part(runtime: Any, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(f"{number}\n" * (31 - number))
    last = tmp_path / "29.txt"

    class Listing(JsonLinesSource):
        """Loses a file after it has listed it."""

        def list_parts(self) -> list[str]:
            parts = super().list_parts()
            last.unlink(missing_ok=True)
            return parts

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("files", Listing(f"{tmp_path}/*.txt")).sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"'files'.*29\.txt"):
        runtime(build, parallelism=4).execute()


def test_parts_that_wait_for_a_worker_are_named_by_why() -> None:
    script = {part: [it for at in range(200) for it in (Timed(at, at), PAUSE)] for part in range(40)}

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(BoundedSource(script)))
        timed = numbers.event_time("times", lambda msg: msg.timestamp, out_of_orderness=1)
        keyed = timed.inspect("slow", lambda msg, _: time.sleep(0.001)).key_distribute("keys", lambda msg: 1)
        keyed.window(tumbling(10)).aggregate("sums", agg.count()).sink("out", VecSink())

    run = SingleThreadRuntime(build, parallelism=2, part_assignment="dynamic").start()
    time.sleep(0.3)
    answer = run.why("sums")
    run.stop()
    run.await_termination()
    assert (answer.cause, answer.facts["source"]) == ("waits", "numbers")
    assert "parts of source 'numbers' have not been begun" in answer.text
