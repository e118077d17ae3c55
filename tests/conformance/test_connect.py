"""Two streams into one state, on every runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from malflow import ConnectLogic, DataMessage, StreamProvider
from malflow.failures import Replayed
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, dead_letters, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource
from tests.joins.running import joined_flow, script_of
from tests.kit.waiting import wait_until

SECONDS = 300.0
RECORDS = [(n * 5 % 2, "abc"[n % 3], n * 7 % 11 + n, n) for n in range(60)]


def add(msg: Any, state: list[int], output: Any) -> list[int]:
    """Keep a number and send it."""
    output.send(DataMessage(msg.key, msg.value, msg.timestamp))
    state.append(msg.value)
    return state


def subtract(msg: Any, state: list[int], output: Any) -> list[int]:
    """Keep the negative number and send it."""
    return add(DataMessage(msg.key, -msg.value, msg.timestamp), state, output)


def connected(left: Any, right: Any) -> Any:
    """Connect two streams by functions."""
    return left.connect("both", right, add, subtract, default=list)


def expected() -> dict[str, list[int]]:
    """Return the numbers of each key, sorted."""
    numbers: dict[str, list[int]] = {}
    for side, key, _, value in RECORDS:
        numbers.setdefault(key, []).append(-value if side else value)
    return {key: sorted(them) for key, them in numbers.items()}


def test_two_streams_share_a_state_that_snapshots_have(any_parallelism: Any, store: FsspecBackend) -> None:
    script = script_of(RECORDS)
    source = StatefulSource(ScriptedSource([*script[:30], END, *script[30:]]))
    sink: VecSink[Any, Any, Any] = VecSink()
    for _ in range(2):
        any_parallelism(joined_flow(source, 11, connected, StatelessSink(sink)), store, at_end="keep").execute()
    assert Counter(sink.values) == Counter(number for them in expected().values() for number in them)
    assert {key: sorted(state) for key, state in read_state(store, "both")} == expected()


class Unpaid(ConnectLogic[Any, Any, Any, Any, Any, Any]):
    """Sends orders that are not paid within 10."""

    def on_left(self, msg: Any, state: Any, output: Any) -> Any:
        """Wait for the payment of an order, unless that came first."""
        if state == "paid":
            return None
        output.wake(msg.timestamp + 10)
        return msg.value

    def on_right(self, msg: Any, state: Any, output: Any) -> Any:
        """Take a payment."""
        return "paid" if state is None else None

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        """Send an order that waits."""
        output.send(DataMessage(key, f"{state} is unpaid", at))


def test_timers_fire_by_the_epoch_of_both_streams(any_parallelism: Any) -> None:
    items = [
        *[(0, "a", 1, "A"), (0, "b", 2, "B"), (1, "c", 2, None), PAUSE],
        *[(1, "a", 9, None), (0, "c", 5, "C"), PAUSE],
        *[(0, "d", 30, "D"), PAUSE, (1, "b", 12, None), PAUSE],  # the epoch of the payments is 11 until the next one
        *[(0, "e", 31, "E"), PAUSE, (1, "e", 40, None), PAUSE, (0, "f", 60, "F"), (1, "f", 60, None)],
    ]
    sink: VecSink[Any, Any, Any] = VecSink()
    flow = joined_flow(ScriptedSource(script_of(items)), 1, lambda one, two: one.connect("u", two, Unpaid()), sink)
    any_parallelism(flow).execute()
    assert [(it.key, it.value, it.timestamp) for it in sink] == [("d", "D is unpaid", 40)]


class Total:
    """Adds what it can; the others fail until a file is there, after they have changed the state."""

    def __init__(self, sign: int, mended: Path) -> None:
        self._sign, self._mended = sign, mended

    def __call__(self, msg: Any, state: list[int], output: Any) -> list[int]:
        """Keep the number with its sign."""
        state.append(self._sign * msg.value)
        if msg.value % 5 == 0 and not self._mended.exists():
            raise ValueError(f"bad {msg.value}")
        output.send(DataMessage(msg.key, sum(state), msg.timestamp))
        return state


def test_letters_go_back_to_the_input_that_they_came_from(
    any_parallelism: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    mended, sink = tmp_path / "mended", VecSink[Any, Any, Any]()

    def build(provider: StreamProvider) -> None:
        items = provider.new_stream().source("items", ScriptedSource([1, 5, 2, 10, 3, *[PAUSE] * 10_000]))
        sides = [
            items.filter(f"side {n}", lambda value, n=n: value % 2 == n).key_distribute(f"key {n}", lambda msg: "all")
            for n in (1, 0)
        ]
        both = sides[0].connect(
            "both", sides[1], Total(1, mended), Total(-1, mended), default=list, on_error="dead_letter"
        )
        both.sink("out", StatelessSink(sink))

    handle = any_parallelism(build, store).start()
    try:
        wait_until(lambda: handle.progress.records.get("out") == 3, SECONDS)
        handle.snapshot().result(SECONDS)
        assert {(it.value, it.input) for it in dead_letters(store, "both")} == {(5, 0), (10, 1)}
        mended.touch()
        assert handle.replay("both").result(SECONDS) == Replayed(done=2)
        handle.snapshot().result(SECONDS)
        assert [sorted(state) for _, state in read_state(store, "both")] == [[-10, -2, 1, 3, 5]]
    finally:
        handle.stop()
        handle.await_termination(SECONDS)
