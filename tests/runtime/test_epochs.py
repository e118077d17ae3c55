"""The epochs of generators when the number of workers changes, and when runs resume from snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import MAX, StreamProvider
from malflow.sources import StatefulSource
from malflow.states.keyed import KeyedState
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish


class Seen:
    """Reads timestamps from parts, with epochs that follow them; and what was late."""

    def __init__(self, script: dict[str, list[Any]], **options: Any) -> None:
        self.source = ScriptedSource(
            {part: [it if it is PAUSE else Timed(it, it) for it in items] for part, items in script.items()}
        )
        self.options = options
        self.late: list[Any] = []
        self.epochs: list[Any] = []

    def build(self, provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", StatefulSource(self.source))
        on_time, late = stream.generate_epochs("e", lambda msg, _: msg.timestamp, **self.options)
        on_time.inspect_frontier("f", lambda epoch, _: self.epochs.append(epoch))
        late.inspect("late", lambda msg, _: self.late.append(msg.value))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_snapshot_with_one_epoch_for_all_parts_is_gone_on_from(parallelism: int) -> None:
    seen, store = Seen({"a": [5, 15, 30], "b": [10, 14, 40]}), Store()  # on workers 0 and 1 of two
    program = compiled(seen.build)
    store.states = {"e": {0: KeyedState(), 1: KeyedState()}}
    store.states["e"][1].update({"epoch": 10})
    store.states["e"][0].update({"epoch": 20, "idle": 1})
    store.set_up = (7, 2, {"e": 1}, {"e": None})
    finish(store.restore(program, parallelism))
    assert sorted(seen.late) == [5, 10, 15]
    assert min(seen.epochs) > 10


class Ticking:
    """A generator that goes on by one from the epoch that it receives."""

    def __call__(self, msg: Any, previous: Any) -> int:
        return 1 if previous is None else previous + 1


@pytest.mark.parametrize("per_part", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_restart_goes_on_from_the_generators_own_epoch(per_part: bool, at: int) -> None:
    epochs: list[Any] = []
    source = ScriptedSource({"a": [item for _ in range(8) for item in (Timed(9, 9), PAUSE)]})

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", StatefulSource(source))
        on_time, _ = stream.generate_epochs("e", Ticking(), every=4, per_part=per_part)
        on_time.inspect_frontier("f", lambda epoch, _: epochs.append(epoch))

    program, store = compiled(build), Store()
    run = store.restore(program, 1)
    for _ in range(at):
        run.tick()
    store.commit(run, program)
    run.close()
    finish(store.restore(program, 1))
    assert epochs == [0, 4, 8, MAX]


@pytest.mark.parametrize("per_part", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "epochs"), [(10, 100, [70, 100]), (100, 10, [0, 70]), (None, 50, [75, 100])]
)
def test_another_step_never_takes_an_epoch_back(per_part: bool, before: Any, after: Any, epochs: list[int]) -> None:
    seen = Seen({"a": [75, 71, PAUSE, 60, 72, 76, 80, 110]}, every=before, per_part=per_part)
    program, store = compiled(seen.build), Store()
    run = store.restore(program, 1)
    while not seen.epochs:
        run.tick()
    store.commit(run, program)
    run.close()
    seen.options["every"] = after
    finish(store.restore(compiled(seen.build), 1))
    assert seen.epochs[:2] == epochs
    assert seen.epochs == sorted(set(seen.epochs))
