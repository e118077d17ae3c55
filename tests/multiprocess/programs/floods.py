"""``python -m tests.multiprocess.programs.floods NAME METHOD``: more records at once than any pipe takes.

It prints the total of each key, as JSON, and the number of workers at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from malflow import MultiProcessRuntime, StreamProvider
from malflow.events import Event, TickFinished
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.nights import NIGHTLY
from tests.multiprocess.runs import add

LARGE = 50_000_000
LINE = 10_000_000
KEYS = 97
FLOOD = 10_000_000 if NIGHTLY else 2_000_000
PARTS = 4
MANY = 20_000


def length(_key: int, value: Any, total: int) -> tuple[int, int]:
    """Add the length of a value."""
    return add(_key, len(value[1]), total)


def large_records(provider: StreamProvider, sink: Any) -> None:
    """Records of 50 MB between two workers."""
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(4)))
    values = numbers.map("large", lambda number: (number, bytes(LARGE + number)))
    values.key_distribute("key", lambda msg: msg.value[0]).stateful_map("total", length, int).sink("out", sink)


def large_output(provider: StreamProvider, sink: Any) -> None:
    """Records of 50 MB for a sink of the coordinator."""
    numbers = provider.new_stream().source("numbers", ScriptedSource({part: [part] for part in range(PARTS)}))
    values = numbers.map("large", lambda number: (number, bytes(LARGE + number)))
    values.sink("out", sink)


def large_text(provider: StreamProvider, sink: Any) -> None:
    """Lines of 10 MB, printed in all processes."""

    def tell(number: int) -> int:
        print("x" * LINE)
        return number

    numbers = provider.new_stream().source("numbers", ScriptedSource({part: [part] for part in range(PARTS)}))
    told = numbers.map("tell", tell).key_distribute("key", lambda msg: msg.value)
    told.stateful_map("total", add, int).sink("out", sink)


def flood(provider: StreamProvider, sink: Any) -> None:
    """Millions of records of one tick."""

    def add_and_count(_key: int, value: int, state: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        count, total = state[0] + 1, state[1] + value
        return total if count >= FLOOD // KEYS else -1, (count, total)

    counts = provider.new_stream().source("counts", SingleIteratorSource([FLOOD]))
    keyed = counts.flat_map("numbers", range).key_distribute("key", lambda msg: msg.value % KEYS)
    totals = keyed.stateful_map("total", add_and_count, default=lambda: (0, 0))
    totals.filter("last", lambda total: total >= 0).sink("out", sink)


def one_worker(provider: StreamProvider, sink: Any) -> None:
    """All records to one worker."""
    numbers = provider.new_stream().source("numbers", ScriptedSource({part: range(MANY) for part in range(PARTS)}))
    one = numbers.map("padded", lambda number: (number, "x" * 1_000)).key_distribute("key", lambda _: 0)
    one.stateful_map("total", length, int).sink("out", sink)


def all_to_all(provider: StreamProvider, sink: Any) -> None:
    """All workers send to all others at the same time, twice in each tick."""
    script = [item for start in range(0, MANY, 2_000) for item in (*range(start, start + 2_000), PAUSE)]
    numbers = provider.new_stream().source("numbers", ScriptedSource(dict.fromkeys(range(PARTS), script)))
    padded = numbers.map("padded", lambda number: (number, "x" * 1_000))
    first = padded.key_distribute("first", lambda msg: msg.value[0] % 41)
    again = first.stateful_map("pass", lambda _key, value, count: (value, count + 1), int)
    again.key_distribute("second", lambda msg: msg.value[0] % 43).stateful_map("total", length, int).sink("out", sink)


def large_states(provider: StreamProvider, sink: Any) -> None:
    """States of 50 MB, which move to other workers."""

    def keep(key: int, number: int, _state: bytes) -> tuple[tuple[int, bytes], bytes]:
        state = bytes(LARGE + number)
        return (key, state[:number]), state

    script = {part: [part, PAUSE, part] for part in range(PARTS)}
    numbers = provider.new_stream().source("numbers", ScriptedSource(script)).key_distribute("key", lambda msg: msg.key)
    numbers.stateful_map("keep", keep, bytes).sink("out", sink)


FLOWS: Mapping[str, Callable[[StreamProvider, Any], None]] = {
    it.__name__: it for it in (large_records, large_output, large_text, large_states, flood, one_worker, all_to_all)
}


def totals_of(messages: Iterable[Any]) -> dict[str, Any]:
    """Return the last value of each key, or the length of a large one."""
    return {str(it.key): it.value if isinstance(it.value, int) else len(it.value[1]) for it in messages}


class Rescales:
    """A listener that asks for other numbers of workers, once."""

    runtime: MultiProcessRuntime | None = None

    def on_event(self, event: Event, /) -> None:
        """Handle an event."""
        if isinstance(event, TickFinished) and self.runtime is not None:
            for parallelism in (2, 3):
                self.runtime.rescale(parallelism)
            self.runtime = None


def main(name: str, method: Any) -> None:
    """Run a flow to its end."""
    sink: VecSink[Any, Any, Any] = VecSink()
    rescales = Rescales()
    runtime = MultiProcessRuntime(
        lambda provider: FLOWS[name](provider, sink),
        processes=PARTS,
        parallelism=PARTS,
        start_method=method,
        listeners=[rescales],
    )
    if name == large_states.__name__:
        rescales.runtime = runtime
    runtime.execute()
    print(json.dumps(totals_of(sink)))
    print(runtime.progress.parallelism)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
