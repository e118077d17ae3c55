"""The stateful operators, with Malstrom's cases."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import MAX, DataMessage, ExpireMap, StatefulLogic, StreamProvider
from tests.conformance.dataflow import messages_of, sis, values_of
from tests.kit.backends import kept, kept_states
from tests.kit.log import Log

SUMS_BY_PARITY = [total for k in range(50) for total in (k * (k + 1), (k + 1) ** 2)]


def is_odd(msg: Any) -> bool:
    return bool(msg.value & 1)


def running_sum(key: Any, value: int, state: int) -> tuple[int, int]:
    return state + value, state + value


def kept_state(build: Any, items: Any, runtime: Any, store: Any, operator: str) -> dict[Any, Any]:
    """Run, and return what the last snapshot holds for an operator, over all workers."""

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("source", sis(items)))

    runtime(build_dataflow, store).execute()
    return kept_states(store, operator)


def test_stateful_map_keeps_a_state_for_each_key(runtime: Any) -> None:
    out = values_of(
        runtime, range(100), lambda s: s.key_distribute("odd", is_odd).stateful_map("sum", running_sum, default=int)
    )
    assert out == SUMS_BY_PARITY
    assert sum(out) == 84575


def test_by_key_on_any_worker(any_parallelism: Any) -> None:
    out = messages_of(
        any_parallelism,
        range(100),
        lambda s: s.key_distribute("odd", is_odd).stateful_map("sum", running_sum, default=int),
    )
    assert [m.value for m in out if m.key is False] == SUMS_BY_PARITY[::2]
    assert [m.value for m in out if m.key is True] == SUMS_BY_PARITY[1::2]


def test_one_key_sums_all(any_parallelism: Any) -> None:
    out = values_of(
        any_parallelism, range(10), lambda s: s.key_distribute("all", lambda _: 0).stateful_map("sum", running_sum, int)
    )
    assert out == [0, 1, 3, 6, 10, 15, 21, 28, 36, 45]


def keep_last(msg: Any, state: Any, output: Any) -> Any:
    return None if len(msg.value) > 3 else msg.value


def test_the_keys_held_are_those_seen(any_parallelism: Any, store: Any) -> None:
    items = [(1, "foo"), (5, "bar")]
    held = kept_state(
        lambda s: s.key_distribute("k", lambda m: m.value[0]).map("v", lambda v: v[1]).stateful_op("last", keep_last),
        items,
        any_parallelism,
        store,
        "last",
    )
    assert held == {1: "foo", 5: "bar"}


def test_a_dropped_key_is_not_held(any_parallelism: Any, store: Any) -> None:
    items = [(1, "foo"), (1, "hello")]
    held = kept_state(
        lambda s: s.key_distribute("k", lambda m: m.value[0]).map("v", lambda v: v[1]).stateful_op("last", keep_last),
        items,
        any_parallelism,
        store,
        "last",
    )
    assert held == {}


def test_a_snapshot_holds_the_state(runtime: Any, store: Any) -> None:
    held = kept_state(
        lambda s: s.key_distribute("odd", lambda _: False).stateful_map("sum", running_sum, int),
        [1],
        runtime,
        store,
        "sum",
    )
    assert held == {False: 1}


def test_a_key_dropped_after_a_snapshot_is_gone_from_the_next(runtime: Any, store: Any) -> None:
    def drop_odd(key: int, value: int, state: int) -> tuple[int, int | None]:
        return state + value, None if value == 7 else state + value

    for items in ([1, 2], [7]):

        def build_dataflow(provider: StreamProvider, items: Any = items) -> None:
            stream = provider.new_stream().source("source", sis(items)).key_distribute("odd", is_odd)
            stream.stateful_map("sum", drop_odd, default=int)

        runtime(build_dataflow, store).execute()
    assert kept(store).states["sum"][0] == {False: 2}


def test_none_makes_the_next_state_the_default(any_parallelism: Any) -> None:
    def until_three(key: Any, value: int, state: list[int]) -> tuple[list[int], list[int] | None]:
        state.append(value)
        return list(state), None if len(state) == 3 else state

    out = values_of(
        any_parallelism,
        range(5),
        lambda s: s.key_distribute("all", lambda _: "all").stateful_map("runs", until_three, default=list),
    )
    assert out == [[0], [0, 1], [0, 1, 2], [3], [3, 4]]


def test_without_a_default_a_missing_state_is_none(any_parallelism: Any) -> None:
    out = values_of(
        any_parallelism,
        "aab",
        lambda s: s.key_distribute("k", lambda m: m.value).stateful_map("s", lambda k, v, s: (s, v)),
    )
    assert sorted(out, key=str) == [None, None, "a"] or sorted(out, key=str) == ["a", None, None]


def test_ttl_map_keeps_what_has_not_expired(runtime: Any) -> None:
    def add(key: bool, value: int, timestamp: int, entries: ExpireMap[str, int, int]) -> Any:
        total = entries.get("key", 0) + value
        entries.insert("key", total, timestamp + 15)
        return total, entries

    def build(s: Any) -> Any:
        on_time, _ = s.generate_epochs("none", lambda msg, previous: previous)
        return on_time.key_distribute("odd", is_odd).ttl_map("sum", add)

    assert values_of(runtime, range(100), build) == SUMS_BY_PARITY


@pytest.mark.parametrize("batch", [1, 100])
def test_ttl_map_forgets_at_the_epoch_and_not_before(any_parallelism: Any, batch: int) -> None:
    def seen(key: str, value: int, timestamp: int, entries: ExpireMap[str, int, int]) -> Any:
        old = entries.insert("last", value, timestamp + 10)
        return (old, value), entries

    items = [1, 5, 16, 17, 40]  # each record's epoch follows it: 5 expires at 15, which the epoch 16 has passed

    def build(s: Any) -> Any:
        stamped = s.assign_timestamps("when", lambda msg: msg.value)
        on_time, _ = stamped.generate_epochs("now", lambda msg, _: msg.timestamp)
        return on_time.key_distribute("all", lambda _: "all").ttl_map("seen", seen)

    assert values_of(any_parallelism, items, build) == [(None, 1), (1, 5), (5, 16), (16, 17), (17, 40)]
    assert values_of(any_parallelism, [1, 30, 31, 32], build) == [(None, 1), (1, 30), (30, 31), (31, 32)]
    assert values_of(any_parallelism, [5, 16, 17], build) == [(None, 5), (5, 16), (16, 17)]


class Summing(StatefulLogic[Any, int, int, Any, int]):
    """Sums by key, emits and drops every sum at each epoch."""

    def on_data(self, msg: Any, state: int, output: Any) -> int:
        return state + msg.value

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in list(states):
            output.send(DataMessage(key, states.pop(key), epoch))


def test_on_epoch_output_precedes_the_epoch(any_parallelism: Any, log: Log) -> None:
    class Logging:
        def on_data(self, msg: Any, output: Any) -> None:
            log.append(msg.value)

        def on_epoch(self, epoch: Any, output: Any) -> None:
            log.append(("epoch", epoch))

    def build(s: Any) -> Any:
        on_time, _ = s.generate_epochs("fives", lambda msg, _: msg.timestamp if msg.value % 5 == 4 else None)
        return (
            on_time.key_distribute("all", lambda _: 0)
            .stateful_op("sums", Summing(), int)
            .stateless_op("log", Logging())
        )

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("source", sis(range(12))))

    any_parallelism(build_dataflow).execute()
    own = [entry for entry in log if entry != ("epoch", MAX)]
    assert [entry for entry in own if not isinstance(entry, tuple)] == [10, 35, 21]
    if any_parallelism.keywords["parallelism"] == 1:
        assert own == [10, ("epoch", 4), 35, ("epoch", 9), 21]


def test_on_schedule_runs_without_input(runtime: Any, log: Log) -> None:
    class Ticking:
        def on_data(self, msg: Any, state: Any, output: Any) -> Any:
            return 1

        def on_schedule(self, states: Any, output: Any) -> None:
            log.append(len(states))
            for key in states:
                output.send(DataMessage(key, "tick", 0))

    out = values_of(runtime, range(3), lambda s: s.key_distribute("all", lambda _: "k").stateful_op("t", Ticking()))
    assert log[0] == 0
    assert log[-1] == 1
    assert out == ["tick"] * sum(log)


def test_on_epoch_sees_keys_in_first_seen_order(runtime: Any, log: Log) -> None:
    class Order:
        def on_data(self, msg: Any, state: Any, output: Any) -> Any:
            return (state or 0) + 1

        def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
            log.append(list(states))

    values_of(runtime, "cabacab", lambda s: s.key_distribute("k", lambda m: m.value).stateful_op("o", Order()))
    assert log == [["c", "a", "b"]]


def test_equal_keys_share_one_state(any_parallelism: Any) -> None:
    keys = [1, 1.0, True, "1"]
    out = messages_of(
        any_parallelism,
        range(8),
        lambda s: s.key_distribute("k", lambda m: keys[m.value % 4]).stateful_map(
            "n", lambda k, v, n: (n + 1, n + 1), int
        ),
    )
    assert sorted(m.value for m in out if m.key == 1) == [1, 2, 3, 4, 5, 6]
    assert sorted(m.value for m in out if m.key == "1") == [1, 2]


def test_an_emitted_state_is_as_it_was_when_emitted(any_parallelism: Any) -> None:
    out = values_of(
        any_parallelism,
        range(3),
        lambda s: s.key_distribute("all", lambda _: 0).stateful_map("l", lambda k, v, s: (s.append(v) or s, s), list),
    )
    assert out == [[0], [0, 1], [0, 1, 2]]


def test_a_state_sent_by_a_logic_is_as_it_was_when_sent(any_parallelism: Any) -> None:
    def grow(msg: Any, state: Any, output: Any) -> Any:
        if state is None:
            state = {"seen": []}
        state["seen"].append(msg.value)
        output.send(DataMessage(msg.key, state, msg.timestamp))
        return state

    out = values_of(any_parallelism, range(3), lambda s: s.key_distribute("all", lambda _: 0).stateful_op("g", grow))
    assert out == [{"seen": [0]}, {"seen": [0, 1]}, {"seen": [0, 1, 2]}]
