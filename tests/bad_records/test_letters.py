"""Dead letters as state: kept, bounded, restored, moved, renamed and dropped with their operator."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, NoKey, OnError, OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider, agg
from malflow.failures import Replayed
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, MsgpackCodec, dead_letters, read_state, snapshots
from malflow.testing import PAUSE, ScriptedSource, Timed, assert_exactly_once
from malflow.windows import tumbling
from tests.bad_records.operators import Rude
from tests.kit.memory_store import MemoryStore
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> FsspecBackend:
    """Return a backend in a folder of its own."""
    return FsspecBackend(str(tmp_path))


def parse(value: Any) -> int:
    """Fail at texts that are no numbers."""
    return int(value)


def total(_key: Any, value: Any, so_far: int) -> tuple[int, int]:
    """Fail at numbers that are divisible by 7."""
    return so_far + 7 // (value % 7) * 0 + value, so_far + value


def flow(
    items: Sequence[Any], sink: Any = None, *, on_error: Any = "dead_letter", name: str = "parse", keyed: bool = True
) -> Callable[[StreamProvider], None]:
    """Build a dataflow that parses texts, then adds up the numbers of each key."""

    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", ScriptedSource(items))
        if keyed:
            texts = texts.key_distribute("key", lambda msg: str(msg.value)[:1])
        numbers = texts.map(name, parse, on_error=on_error)
        if keyed:
            numbers = numbers.stateful_map("total", total, int, on_error="dead_letter")
        numbers.sink("out", VecSink() if sink is None else sink)

    return build_dataflow


def counts_of(runtime: Any) -> dict[str, int]:
    """Return the parser's counts, except those that are zero in all tests here."""
    counts = dict(runtime.progress.counts["parse"])
    assert [counts.pop(name) for name in ("skipped", "retried", "parked")] == [0, 0, 0]
    return counts


def values(store: Any, operator: str | None = None) -> list[Any]:
    return [letter.value for letter in dead_letters(store, operator)]


TEXTS = st.lists(st.sampled_from(["1", "2", "7", "14", "x", "xy", "z", "10", ""]), max_size=12)


@given(
    runs=st.lists(st.tuples(TEXTS, st.integers(1, 4), st.sampled_from(["dead_letter", "skip", "keep"])), max_size=5),
    keyed=st.booleans(),
)
def test_letters_are_kept_over_runs_of_any_size_and_policy(runs: list[tuple[Any, int, str]], keyed: bool) -> None:
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
    items: list[Any] = []
    parsed: list[Any] = []
    added: list[Any] = []
    for more, parallelism, policy in runs:
        items += more
        bad = [text for text in more if not text.isdigit()]
        parsed += bad if policy == "dead_letter" else bad if policy == "keep" else []
        on_error: Any = {"keep": lambda failure: "dead_letter"}.get(policy, policy)
        added += [int(text) for text in more if text.isdigit() and int(text) % 7 == 0] if keyed else []
        SingleThreadRuntime(flow(items, on_error=on_error, keyed=keyed), store, parallelism=parallelism).execute()
        found = list(dead_letters(store))
        assert sorted(it.value for it in found if it.operator == "parse") == sorted(parsed)
        assert sorted(it.value for it in found if it.operator == "total") == sorted(added)
        assert len({(it.operator, it.id) for it in found}) == len(found)


@pytest.mark.fault("N7")
def test_letters_are_exactly_once_under_any_schedule() -> None:
    items = ["1", "x", "7", "y", "2", "x", "14", "z", "xy", "3"]
    assert_exactly_once(flow([]), items, max_examples=25)


def test_a_letter_tells_all_about_its_failure(store: FsspecBackend) -> None:
    runtime = SingleThreadRuntime(flow(["1", "x"]), store)
    runtime.execute()
    (letter,) = dead_letters(store)
    assert (letter.operator, letter.key, letter.value, letter.timestamp) == ("parse", "x", "x", 1)
    assert (letter.error, letter.message) == ("ValueError", "invalid literal for int() with base 10: 'x'")
    assert letter.place is not None
    assert letter.place.startswith(f"parse ({__file__}:")
    assert letter.trace.endswith("    return int(value)\n           ^^^^^^^^^^\nValueError: " + letter.message)
    assert "malflow/operators" not in letter.trace
    assert (letter.attempts, letter.worker, letter.is_text) == (1, 0, False)
    assert letter.id == f"{letter.tick}-0-1"
    assert letter.at.tzinfo is not None
    assert counts_of(runtime) == {"failed": 1, "letters": 1, "dropped": 0, "kept": 1}


class Sealed:
    """A value that can't be pickled, nor shown."""

    def __reduce__(self) -> Any:
        raise RuntimeError("sealed")

    def __repr__(self) -> str:
        raise RuntimeError("sealed")


def explode(value: Any) -> Any:
    """Fail in the ways that a value names."""
    if value == "long":
        raise ValueError("m" * 1_000_000)
    if value == "address":
        raise ValueError(object())
    if value == "rude":
        raise Rude
    raise ValueError("a value")


@pytest.mark.fault("N4")
def test_no_failure_and_no_record_is_too_strange_for_a_letter(store: FsspecBackend) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        items = ["long", "address", "rude", Sealed(), lambda: 1]
        stream = provider.new_stream().source("items", ScriptedSource(items))
        stream.map("explode", explode, on_error="dead_letter").sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, store).execute()
    long, address, rude, sealed, function = dead_letters(store)
    assert len(long.message) == len(long.trace) == 4096
    assert address.message == "<object object at 0x...>"
    assert (rude.error, rude.message) == ("Rude", "<its str raised RuntimeError>")
    assert (sealed.is_text, sealed.value) == (True, "<Sealed instance at 0x...>")
    assert function.is_text
    assert function.value.endswith("<lambda> at 0x...>")
    assert (sealed.key, long.key) == (repr(NoKey), NoKey)


@pytest.mark.fault("N4")
def test_a_record_that_the_codec_cannot_write_becomes_a_text(tmp_path: Any) -> None:
    store = FsspecBackend(str(tmp_path), codec=MsgpackCodec())

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource([{1, 2}, range(3), "plain"]))
        stream.map("explode", explode, on_error="dead_letter").sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, store).execute()
    found = [(it.value, it.is_text) for it in dead_letters(store)]
    assert ("range(0, 3)", True) in found
    assert ("plain", False) in found


@pytest.mark.fault("N5")
def test_too_many_letters_end_the_run_and_keep_the_last_snapshot(store: FsspecBackend) -> None:
    policy = OnError("dead_letter", keep=2)
    SingleThreadRuntime(flow(["x", "y"], on_error=policy, keyed=False), store).execute()
    with pytest.raises(
        OperatorError,
        match=r"operator 'parse' failed at .*'z'.*it keeps as many dead letters as it may: 2, or .*this one is Val",
    ):
        SingleThreadRuntime(flow(["x", "y", "z"], on_error=policy, keyed=False), store).execute()
    assert values(store) == ["x", "y"]


@pytest.mark.fault("N5")
def test_the_oldest_letters_are_dropped_if_the_policy_says_so(store: FsspecBackend) -> None:
    policy = OnError("dead_letter", keep=2, full="drop_oldest")
    runtime = SingleThreadRuntime(flow(["a", "b", "c", "d"], on_error=policy, keyed=False), store)
    runtime.execute()
    assert values(store) == ["c", "d"]
    assert counts_of(runtime) == {"failed": 4, "letters": 4, "dropped": 2, "kept": 2}


@pytest.mark.fault("N5")
def test_letters_are_bounded_by_their_bytes(store: FsspecBackend) -> None:
    policy = OnError("dead_letter", keep_bytes=20_000, full="drop_oldest")
    items = [f"{number}" + "x" * 4_000 for number in range(20)]
    SingleThreadRuntime(flow(items, on_error=policy, keyed=False), store).execute()
    kept = [len(pickle.dumps(fields)) for _, fields in read_state(store, "parse/letters")]
    assert 1 <= len(kept) < 5
    assert sum(kept) < 21_000
    assert values(store)[-1] == items[-1]


def test_letters_go_with_a_renamed_operator_and_are_dropped_with_it(store: FsspecBackend) -> None:
    SingleThreadRuntime(flow(["x", "7"]), store).execute()
    with pytest.raises(SnapshotError, match=r"'parse/letters' \(letters, 1 key\).*renamed=\{'parse': 'parsed'\}"):
        SingleThreadRuntime(flow(["x", "7"], name="parsed"), store).execute()
    renamed = flow(["x", "7", "y"], name="parsed")
    SingleThreadRuntime(renamed, store, parallelism=3, renamed={"parse": "parsed"}).execute()
    assert sorted(values(store, "parsed")) == ["x", "y"]
    SingleThreadRuntime(flow(["x", "7", "y"], name="third"), store, allow_dropped_state=["parsed"]).execute()
    assert values(store) == [7]


def test_an_operator_without_letters_is_in_no_snapshot(store: FsspecBackend) -> None:
    SingleThreadRuntime(flow(["1", "2"]), store).execute()
    newest = list(snapshots(store))[-1]
    assert "total" in newest.operators
    assert not [name for name in newest.operators if "letters" in name]


@pytest.mark.fault("N6")
def test_letters_that_will_not_outlive_the_run_are_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.runtime"):
        SingleThreadRuntime(flow(["1", "x"])).execute()
    assert "dead letters of 'parse' and 'total' end with the run, which has no persistence" in caplog.text


@pytest.mark.fault("N6")
def test_letters_that_a_stream_takes_are_not_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.runtime"):
        SingleThreadRuntime(taken(["1", "x", "7"], None, VecSink(), ["parse"])).execute()
    assert "dead letters of 'total' end with the run" in caplog.text


def test_letters_stay_under_the_policy_to_fail(store: FsspecBackend) -> None:
    SingleThreadRuntime(flow(["1", "x"]), store).execute()
    SingleThreadRuntime(flow(["1", "x", "2"], on_error="fail"), store, parallelism=2).execute()
    assert values(store) == ["x"]


def taken(
    items: Sequence[Any], numbers: Any, letters: Any, operators: Any = None, post: Any = lambda it: it
) -> Callable[[StreamProvider], None]:
    """Build a dataflow whose dead letters go to a sink."""

    def build_dataflow(provider: StreamProvider) -> None:
        provider.on_dead_letters(lambda stream: post(stream).sink("letters", letters), operators)
        flow(items, numbers)(provider)

    return build_dataflow


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_letters_that_are_taken_are_a_stream_and_no_state(store: FsspecBackend, parallelism: int, debug: bool) -> None:
    items, numbers, letters = ["1", "x", "7", "y", "2"], VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()
    runtime = SingleThreadRuntime(taken(items, numbers, letters), store, parallelism=parallelism, debug=debug)
    runtime.execute()
    assert sorted((it.value.operator, it.value.value, it.key) for it in letters) == [
        ("parse", "x", NoKey),
        ("parse", "y", NoKey),
        ("total", 7, NoKey),
    ]
    assert all(it.timestamp == it.value.at for it in letters)
    assert sorted(it.value for it in numbers) == [1, 2]
    assert values(store) == []
    assert counts_of(runtime) == {"failed": 2, "letters": 2, "dropped": 0, "kept": 0}


def test_only_the_named_operators_give_their_letters(store: FsspecBackend) -> None:
    letters: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(taken(["1", "x", "7"], None, letters, ["total"]), store).execute()
    assert [it.operator for it in letters.values] == ["total"]
    assert values(store) == ["x"]


def test_a_stream_of_letters_has_operators_and_its_own_time() -> None:
    letters: VecSink[Any, Any, Any] = VecSink()

    def by_operator(stream: Any) -> Any:
        return stream.key_distribute("operator", lambda msg: msg.value.operator).aggregate("number", agg.count())

    SingleThreadRuntime(taken(["x", "y", "7", "1"], None, letters, post=by_operator), parallelism=2).execute()
    assert sorted((it.key, it.value) for it in letters) == [("parse", 1), ("parse", 2), ("total", 1)]

    def windows(stream: Any) -> Any:
        keyed = stream.key_distribute("operator", lambda msg: msg.value.operator)
        return keyed.window(tumbling(timedelta(hours=1))).aggregate("number", agg.count())

    with pytest.raises(GraphError, match=r"'number' has windows that wait for epochs.*an input has none"):
        SingleThreadRuntime(taken([], None, VecSink(), post=windows)).execute()


def test_letters_of_the_last_tick_are_taken_too() -> None:
    letters: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("texts", ScriptedSource(["a", "b"]))
        timed = stream.event_time("time", lambda msg: msg.timestamp, out_of_orderness=0).key_distribute("k", str)
        counts = timed.window(tumbling(10)).aggregate("count", agg.count())
        counts.map("fail", lambda it: 1 // 0, on_error="dead_letter").sink("out", VecSink())
        provider.on_dead_letters(lambda stream: stream.sink("letters", letters))

    SingleThreadRuntime(build_dataflow, parallelism=2).execute()
    assert [it.error for it in letters.values] == ["ZeroDivisionError"] * 2


def test_taken_letters_are_exactly_once_under_any_schedule() -> None:
    items = ["1", "x", "7", "y", "2", "x", "14", "z", "xy", "3"]
    assert_exactly_once(
        taken([], None, VecSink(), post=lambda stream: stream.map("value", lambda it: (it.operator, it.value))),
        items,
        max_examples=15,
    )


@pytest.mark.parametrize(
    ("operators", "post", "message"),
    [
        (["prse"], None, r"names operator 'prse', which is not in the dataflow; did you mean 'parse'\?"),
        (["out"], None, r"names operator 'out', which is a sink, whose dead letters stay in snapshots"),
        ("parse", None, r"takes a list of operators; got a string"),
        ([], None, r"finds no operator with on_error='dead_letter'"),
        (
            None,
            lambda stream: stream.map("again", str, on_error="dead_letter"),
            r"operator 'again' processes dead letters, and can only fail or skip",
        ),
    ],
)
def test_mistakes_about_taking_letters(operators: Any, post: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        SingleThreadRuntime(taken([], None, VecSink(), operators, post or (lambda it: it))).execute()
    assert __file__ in str(caught.value)


def sealed_or_late(value: Any) -> Any:
    """Fail at every value."""
    raise ValueError("bad")


@pytest.mark.fault("N9")
def test_letters_behind_the_epoch_and_texts_stay(store: FsspecBackend) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        items = [Timed("a", 1), Timed(lambda: 1, 2), Timed("b", 3), *[PAUSE] * 10_000]
        stream = provider.new_stream().source("items", ScriptedSource(items))
        before = stream.map("before", lambda it: 1 // (it != "a") and it, on_error="dead_letter")
        timed = before.event_time("time", lambda msg: msg.timestamp, out_of_orderness=0)
        timed.map("after", sealed_or_late, on_error="dead_letter").sink("out", VecSink())

    handle = SingleThreadRuntime(build_dataflow, store).start()
    try:
        wait_until(lambda: handle.progress.counts.get("after", {}).get("letters") == 2, 60)
        assert handle.replay("after").result(60) == Replayed(done=0, late=1, texts=1)
        assert handle.replay("before").result(60) == Replayed(done=1)
        assert handle.discard("after").result(60) == Replayed(done=2)
    finally:
        handle.stop()
        handle.await_termination(60)
    assert [(it.value, it.attempts) for it in dead_letters(store)] == [("a", 2)]


def of_number(key: Any, number: int, state: Any) -> Any:
    raise ValueError(number)


def program_of(items: Any, keep: int) -> Any:
    """Build a dataflow in which each record becomes a letter, of which the newest are kept."""

    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", ScriptedSource(items)).key_distribute("k", lambda msg: msg.value % 8)
        policy = OnError("dead_letter", keep=keep, full="drop_oldest")
        keyed.stateful_map("m", of_number, int, on_error=policy).sink("o", VecSink())

    return build


@pytest.mark.fault("N5")
def test_the_oldest_letters_are_dropped_after_workers_have_joined() -> None:
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
    items = [it for number in range(40) for it in (number, PAUSE)]
    SingleThreadRuntime(program_of(items, 1000), store, parallelism=4).execute()
    assert [it.value for it in dead_letters(store)] == [*range(40)]  # oldest first, over all workers
    SingleThreadRuntime(program_of([*items, 100, PAUSE, 101], 10), store).execute()
    assert [it.value for it in dead_letters(store)] == [*range(32, 40), 100, 101]
