"""Epochs that are multiples of a step make nothing late, through restarts and changes of the number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from malflow import MAX, StreamProvider, limit_out_of_orderness
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish

pytestmark = pytest.mark.slow

GENERATORS: dict[str, Any] = {
    "bound of 0": limit_out_of_orderness(0),
    "bound of 3": limit_out_of_orderness(3),
    "now and then": lambda msg, _: msg.timestamp if msg.timestamp % 3 == 0 else None,
    "a step ahead": lambda msg, before: msg.timestamp - 5 if before is None else before + 1,
    "further from greater ones": lambda msg, before: msg.timestamp if before is None or before % 2 else before + 3,
    "to the seven": lambda msg, _: msg.timestamp // 7 * 7,
}
STREAMS = ("parts", "whole", "keyed")

timestamps = st.lists(st.one_of(*[st.integers(-10, 40)] * 4, st.just(PAUSE)), max_size=14)
scripts = st.dictionaries(st.sampled_from(range(4)), timestamps, min_size=1)
changes = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["rescale", "restart"]), st.integers(1, 3)), max_size=4)


class Multiples:
    """Expects epochs to be multiples that ascend, and no record at or before one."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_data(self, msg: Any, last: Any, output: Any) -> Any:
        assert last == "new" or msg.timestamp > last
        return last

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        assert epoch is MAX or epoch % self.every == 0
        for key, last in list(states.items()):
            states[key] = epoch if last == "new" else max(epoch, last)


class Flow:
    """One stream with a generator of epochs twice: with a step, and without."""

    def __init__(self, script: dict[int, list[Any]], kind: str, generator: str, every: int) -> None:
        timed = {
            part: [item if item is PAUSE else Timed((part, at), item) for at, item in enumerate(items)]
            for part, items in script.items()
        }
        self.source = ScriptedSource(timed)
        self.kind, self.generator, self.every = kind, GENERATORS[generator], every
        self.late: dict[bool, Counter[Any]] = {False: Counter(), True: Counter()}
        self.on_time: Counter[Any] = Counter()

    def build(self, provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("source", StatefulSource(self.source))
        if self.kind == "keyed":
            stream = stream.key_distribute("key", lambda msg: msg.value[1] % 3)
        options: dict[str, Any] = {"per_part": self.kind == "parts"}
        _, late = stream.generate_epochs("each", self.generator, **options)
        late.inspect("late", partial(self._see, self.late[False]))
        on_time, late = stream.generate_epochs("multiples", self.generator, every=self.every, **options)
        late.inspect("late by multiples", partial(self._see, self.late[True]))
        on_time = on_time.inspect("on time", partial(self._see, self.on_time))
        on_time.stateful_op("punctual", Multiples(self.every), lambda: "new")

    @staticmethod
    def _see(seen: Counter[Any], msg: Any, _: Any) -> None:
        seen[msg.value] += 1


@given(
    script=scripts,
    kind=st.sampled_from(STREAMS),
    generator=st.sampled_from(sorted(GENERATORS)),
    every=st.sampled_from([1, 2, 5, 16]),
    start=st.integers(1, 3),
    changes=changes,
)
def test_a_record_that_is_late_would_be_late_without_a_step(
    script: dict[int, list[Any]],
    kind: str,
    generator: str,
    every: int,
    start: int,
    changes: Sequence[tuple[int, str, int]],
) -> None:
    flow, store = Flow(script, kind, generator, every), Store()
    program = compiled(flow.build)
    run = store.restore(program, start)
    for ticks, change, parallelism in changes:
        for _ in range(ticks):
            if not run.is_finished:
                run.tick()
        if change == "rescale":
            run.rescale(parallelism)
            continue
        store.commit(run, program)
        run.close()
        run = store.restore(program, parallelism)
    finish(run)
    assert flow.late[True] <= flow.late[False]
    if every == 1:
        assert flow.late[True] == flow.late[False]
    records = Counter((part, at) for part, items in script.items() for at, it in enumerate(items) if it is not PAUSE)
    assert flow.on_time + flow.late[True] == records
    event(f"{kind}, {'fewer late' if flow.late[True] < flow.late[False] else 'as many late'}")
