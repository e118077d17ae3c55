"""With an epoch for each part, lateness is a function of each part's records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider, limit_out_of_orderness
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish

pytestmark = pytest.mark.slow

GENERATORS: dict[str, Callable[..., Any]] = {
    "bound of 0": limit_out_of_orderness(0),
    "bound of 3": limit_out_of_orderness(3),
    "now and then": lambda msg, _: msg.timestamp if msg.timestamp % 3 == 0 else None,
    "by the epoch before": lambda msg, before: msg.timestamp - 5 if before is None else before + 1,
    "to the ten": lambda msg, _: msg.timestamp // 10 * 10 - 1,
}

timestamps = st.lists(st.one_of(st.integers(0, 30), st.just(PAUSE)), max_size=12)
scripts = st.dictionaries(st.sampled_from(["epoch", "idle", *range(5)]), timestamps, max_size=5)
kinds = st.lists(
    st.tuples(st.sampled_from(sorted(GENERATORS)), st.sampled_from([None, 1, 3, 10])), min_size=1, max_size=2
)
changes = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["rescale", "restart", "snapshot"]), st.integers(1, 4)), max_size=5
)


def scripted(script: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    """Pair each timestamp with a unique value."""
    return {
        part: [item if item is PAUSE else Timed((part, at, item), item) for at, item in enumerate(items)]
        for part, items in script.items()
    }


def judged(
    timestamps: Iterable[tuple[Any, int]], generator: Callable[..., Any], every: int | None
) -> tuple[list[Any], list[Any]]:
    """Part the records of one part into those on time and the late ones."""
    epoch: Any = None
    on_time, late = [], []
    for value, timestamp in timestamps:
        known = epoch is not None and max(n for n in range(-50, epoch + 1) if n % (every or 1) == 0)
        (late if known is not False and timestamp <= known else on_time).append((value, timestamp))
        candidate = generator(Timed(value, timestamp), epoch)
        if candidate is not None and (epoch is None or candidate > epoch):
            epoch = candidate
    return on_time, late


class Punctual:
    """Notes the last epoch that each key's worker saw, and expects no record at or before it."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        assert state == "new" or msg.timestamp > state
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in states:
            states[key] = epoch if states[key] == "new" else max(epoch, states[key])


class Flow:
    """Two generators in a row, and what came out."""

    def __init__(self, script: dict[Any, list[Any]], generators: Sequence[Any], *, in_order: bool = False) -> None:
        self.source = ScriptedSource(script)
        self.source.in_order = in_order
        self.generators = generators
        self.seen: list[list[Any]] = [[], [], []]

    def build(self, provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("source", StatefulSource(self.source)).map("copy", tuple)
        for number, (name, every) in enumerate(self.generators):
            stream, late = stream.generate_epochs(f"epochs {number}", GENERATORS[name], every=every)
            late.inspect(f"late {number}", partial(self._see, number))
        stream = stream.inspect("on time", partial(self._see, 2))
        stream.stateful_op("punctual", Punctual(), lambda: "new")

    def _see(self, number: int, msg: Any, _: Any) -> None:
        self.seen[number].append(msg.value)


def expected(script: dict[Any, list[Any]], generators: Sequence[Any]) -> list[list[Any]]:
    seen: list[list[Any]] = [[], [], []]
    for items in script.values():
        records = [(item.value, item.timestamp) for item in items if item is not PAUSE]
        for number, (name, every) in enumerate(generators):
            records, late = judged(records, GENERATORS[name], every)
            seen[number] += [value for value, _ in late]
        seen[2] += [value for value, _ in records]
    return [sorted(values, key=repr) for values in seen]


@pytest.mark.fault("E27")
@given(
    script=scripts.map(scripted),
    generators=kinds,
    start=st.integers(1, 4),
    changes=changes,
)
def test_lateness_depends_on_the_part_alone(
    script: dict[Any, list[Any]], generators: list[Any], start: int, changes: list[tuple[int, str, int]]
) -> None:
    flow = Flow(script, generators)
    run_through(flow, start, changes)
    assert [sorted(values, key=repr) for values in flow.seen] == expected(script, generators)


@given(
    script=scripts.map(scripted),
    generators=kinds,
    start=st.integers(1, 4),
    changes=changes,
)
def test_parts_in_order_are_each_read_to_their_end(
    script: dict[Any, list[Any]], generators: list[Any], start: int, changes: list[tuple[int, str, int]]
) -> None:
    flow = Flow(script, generators, in_order=True)
    run_through(flow, start, changes)
    everything = [item.value for items in script.values() for item in items if item is not PAUSE]
    assert sorted([value for values in flow.seen for value in values], key=repr) == sorted(everything, key=repr)
    if start == 1 and all(change == "snapshot" for _, change, _ in changes):
        for values in flow.seen:  # of all parts but the first, nothing comes before the one ahead has ended
            parts = [part for part, _ in groupby(value[0] for value in values)]
            assert len(parts) == len(set(parts))


def run_through(flow: Flow, start: int, changes: list[tuple[int, str, int]]) -> None:
    """Run to the end, with changes on the way."""
    store, program = Store(), compiled(flow.build)
    run = store.restore(program, start)
    for ticks, change, parallelism in changes:
        for _ in range(ticks):
            if not run.is_finished:
                run.tick()
        if change == "rescale":
            run.rescale(parallelism)
            continue
        store.commit(run, program)
        if change == "restart":
            run.close()
            run = store.restore(program, parallelism)
    finish(run)
