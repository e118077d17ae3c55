"""Live answers equal counts by hand, on hosts that answer between two ticks and with the next one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import QueryError
from malflow.runtime.requests.queries import StateAnswer
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory
from tests.kit.threads_host import ThreadsRuntime
from tests.queries.asking import Asker, records_by_tick, totals

KEYS = 4
NUMBERS = [7, 0, 1, 7, 5, 2, 2, 6, 4, 0, 3, 7]
RUNTIMES = pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])


def count_each(_key: Any, _value: int, so_far: int) -> tuple[int, int]:
    return so_far + 1, so_far + 1


def counting(provider: StreamProvider) -> None:
    script = [step for number in NUMBERS for step in (number, PAUSE)]
    keyed = (
        provider.new_stream().source("numbers", ScriptedSource(script)).key_distribute("k", lambda m: m.value % KEYS)
    )
    keyed.stateful_map("count", count_each, default=int)


@pytest.mark.fault("K11")
@pytest.mark.slow
@RUNTIMES
@settings(max_examples=max(settings().max_examples // 3, 3))
@example(actions={2: "snapshot", 4: 3, 5: "snapshot", 7: 1}, workers=2)
@given(
    actions=st.dictionaries(st.integers(1, 20), st.sampled_from(["snapshot", 1, 2, 3]), max_size=5),
    workers=st.integers(1, 3),
)
def test_answers_are_the_states_after_their_tick(kind: Any, actions: dict[int, Any], workers: int) -> None:
    runtime: Any = None

    def ask() -> dict[Any, StateAnswer[Any]]:
        view = runtime.state("count")
        one = {("get", key): view.get(key, default=0) for key in range(KEYS)}
        return {
            **one,
            "many": view.get_many(range(KEYS + 2)),
            "items": view.items(limit=KEYS),
            "few": view.items(limit=2),
        }

    def act(what: Any) -> Any:
        return runtime.snapshot() if what == "snapshot" else runtime.rescale(what)

    asker = Asker(ask, {tick: partial(act, what) for tick, what in actions.items()})
    runtime = kind(counting, in_memory(), parallelism=workers, listeners=[asker])
    runtime.execute()
    answered = 0
    for name, future in asker.asked:
        if future.exception(0) is not None:
            assert isinstance(future.exception(0), QueryError)
            assert "the run ended before" in str(future.exception(0))
            continue
        answered += 1
        expected = totals(NUMBERS[: records_by_tick(asker, future)], KEYS)
        if name in ("many", "items"):
            assert dict(future.result(0)) == expected
        elif name == "few":
            assert len(future.result(0)) == min(2, len(expected))
            assert dict(future.result(0)).items() <= expected.items()
        else:
            assert future.result(0) == expected.get(name[1], 0)
    assert answered > len(asker.asked) / 2
    assert {records_by_tick(asker, it) for _, it in asker.asked if it.exception(0) is None} > {2, 5, 9}
