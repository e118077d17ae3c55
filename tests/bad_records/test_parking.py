"""Parked keys: after a record fails, later records with its key wait, so each key keeps its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OnError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.config import load
from malflow.failures import Replay, Replayed
from malflow.operators.calls.call_options import CallOptions
from malflow.operators.calls.calling_out import CallingOut
from malflow.operators.contract import OperatorContext
from malflow.operators.failures.dead_letters import Letters, letter_of
from malflow.operators.failures.surviving import guarded
from malflow.partitioners import rendezvous_select
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource, assert_exactly_once
from malflow.testing.driven import DrivenRun
from malflow.testing.inputs import Feed, feed_of
from malflow.testing.trial import built
from tests.bad_records.operators import OPERATORS, Item
from tests.kit.memory_store import MemoryStore

pytestmark = pytest.mark.slow

KEYS, WORDS = ["a", "b"], ["good", "bad", "worse"]


@dataclass
class Model:
    """The expected processed and parked records by key: each key has a queue that moves only from its head."""

    done: dict[str, list[int]] = field(default_factory=dict)
    parked: dict[str, list[list[int]]] = field(default_factory=dict)
    position: int = 0

    def process(self, key: str, number: int, fails: bool) -> None:
        """Process the next record."""
        self.position += 1
        if self.parked.get(key):
            self.parked[key].append([number, 0])
        elif fails:
            self.parked[key] = [[number, 1]]
        else:
            self.done.setdefault(key, []).append(number)

    def replay(self, numbers: set[int], fails: Callable[[int], bool]) -> Replayed:
        """Try records again; return the outcome."""
        tried = kept = 0
        for key, queue in self.parked.items():
            wanted = [number for number, _ in queue if number in numbers]
            while queue and queue[0][0] in numbers:
                tried += 1
                wanted.remove(queue[0][0])
                if fails(queue[0][0]):
                    queue[0][1] += 1
                    break
                self.done.setdefault(key, []).append(queue.pop(0)[0])
            kept += len(wanted)
        return Replayed(tried, parked=kept)

    def discard(self, numbers: set[int]) -> Replayed:
        """Remove records."""
        before = sum(map(len, self.parked.values()))
        for key, queue in self.parked.items():
            self.parked[key] = [it for it in queue if it[0] not in numbers]
        return Replayed(before - sum(map(len, self.parked.values())))


BROKEN: set[str] = set()
"""The words for which the functions fail now."""


def take(_key: str, value: tuple[str, int, str], seen: list[int]) -> Any:
    """Note a number, then fail for a broken word."""
    seen.append(value[1])
    if value[2] in BROKEN:
        raise ValueError(f"{value[2]} at {object()}")
    return seen, seen


def note(msg: Any, seen: list[int], output: Any) -> Any:
    """Send and note a number, then fail for a broken word."""
    output.send(msg)
    return take(msg.key, msg.value, seen)[1]


SOME = st.none() | st.sets(st.integers(0, 3), min_size=1)
"""All letters, or only the letters of records whose number modulo 4 is one of these."""

OPERATIONS = st.one_of(
    st.tuples(st.just("process"), st.integers(1, 4)),
    st.tuples(st.just("replay"), SOME),
    st.tuples(st.just("fail_at"), st.sets(st.sampled_from(WORDS[1:]))),
    st.tuples(st.just("discard"), SOME),
    st.sampled_from([("snapshot",), ("crash",)]),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(WORDS)), min_size=6, max_size=20)


@pytest.mark.fault("N12")
@pytest.mark.parametrize("way", ["map", "stateful_map", "stateful_op"])
@given(records=RECORDS, operations=st.lists(OPERATIONS, min_size=6, max_size=24), by_function=st.booleans())
def test_the_records_of_a_key_keep_their_order(
    way: str, records: list[tuple[str, str]], operations: list[Any], by_function: bool
) -> None:
    values = [(key, number, word) for number, (key, word) in enumerate(records)]
    policy: Any = (lambda failure: "park") if by_function else "park"

    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("values", SingleIteratorSource([]))
        keyed = stream.key_distribute("key", lambda msg: msg.value[0])
        if way == "map":
            seen = keyed.map("take", lambda value: take("", value, []) and value, on_error=policy)
            seen.stateful_map("seen", lambda _, it, seen: (None, [*seen, it[1]]), list).sink("out", VecSink())
        elif way == "stateful_map":
            keyed.stateful_map("take", take, list, on_error=policy).sink("out", VecSink())
        else:
            keyed.stateful_op("take", note, list, on_error=policy).sink("out", VecSink())

    job = Job(build_dataflow, values, "seen" if way == "map" else "take")
    trial = Trial(job, values)
    for name, *arguments in operations:
        getattr(trial, name)(*arguments)
        assert job.done() == {key: it for key, it in trial.model.done.items() if it}
        assert job.parked() == {key: it for key, it in trial.model.parked.items() if it}
    job.close()


class Trial:
    """Apply the same steps to a job and to its model.

    Args:
        job: the job.
        values: its records.
    """

    def __init__(self, job: Job, values: list[tuple[str, int, str]]) -> None:
        self.model, self._saved = Model(), Model()
        self._job, self._values = job, values
        self.fail_at({"bad", "worse"})

    def _fails(self, number: int) -> bool:
        return self._values[number][2] in BROKEN

    def process(self, records: int) -> None:
        """Process the next records, if there are any."""
        for key, number, _ in self._values[self.model.position : self.model.position + records]:
            self._job.process()
            self.model.process(key, number, self._fails(number))

    def fail_at(self, words: set[str]) -> None:
        """Set the words for which functions fail from now on."""
        BROKEN.clear()
        BROKEN.update(words)

    def replay(self, some: set[int] | None) -> None:
        """Replay some letters, or all."""
        assert self._job.ask(self._numbers(some), discards=False) == self.model.replay(
            self._numbers(some) or set(range(len(self._values))), self._fails
        )

    def discard(self, some: set[int] | None) -> None:
        """Discard some letters, or all."""
        numbers = self._numbers(some) or set(range(len(self._values)))
        assert self._job.ask(self._numbers(some), discards=True) == self.model.discard(numbers)

    def _numbers(self, some: set[int] | None) -> set[int] | None:
        return None if some is None else {number for number in range(len(self._values)) if number % 4 in some}

    def snapshot(self) -> None:
        """Take a snapshot."""
        self._job.snapshot()
        self._saved = deepcopy(self.model)

    def crash(self) -> None:
        """Start again from the last snapshot."""
        self._job.restart()
        self.model = deepcopy(self._saved)

    def rescale(self, workers: int) -> None:
        """Continue with that many workers."""
        self._job.run.rescale(workers)


class Job:
    """The runs of a job, with its letters inspected between ticks."""

    def __init__(self, build_dataflow: Any, values: list[Any], state: str) -> None:
        self._build, self._values, self._state = build_dataflow, values, state
        self._store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
        self._kept = 0
        self._start(1)

    def _start(self, workers: int) -> None:
        self._feed: Feed = feed_of(self._values, built(self._build).sources)
        self._feed.allowed = self._kept
        self.run = DrivenRun(built(self._build, self._replaced), parallelism=workers, persistence=self._store)
        self.run.resume()

    def _replaced(self, node: Any) -> Any:
        is_source = node.name == "values"
        return replace(node, source=self._feed.source("values", keyed=False)) if is_source else node

    def process(self) -> None:
        """Process the next record."""
        self._feed.allowed += 1
        assert self.run.tick() == 1

    def ask(self, numbers: set[int] | None, *, discards: bool) -> Replayed:
        """Replay or discard the letters of these records."""
        ids = None if numbers is None else tuple(it.id for it in self.letters() if it.value[1] in numbers)
        found: list[Replayed] = []
        tick = self.run.ticks.begin(replays=(Replay("take", ids, discards),))
        reports = self.run.run(tick)
        self.run.ticks.end(tick, reports)
        found += [it.replayed["take"] for it in reports if "take" in it.replayed]
        return Replayed(*map(sum, zip(*found, strict=True)))

    def snapshot(self) -> None:
        """Take a snapshot."""
        self.run.snapshots.take(ending=True)
        self._kept = self._feed.allowed

    def restart(self) -> None:
        """Start again from the last snapshot."""
        workers = self.run.parallelism
        self.close()
        self._start(workers)

    def close(self) -> None:
        """End the run."""
        self.run.close()

    def letters(self) -> Iterator[Any]:
        """Yield the letters, oldest first."""
        states: list[Any] = [state for (_, name), state in self.run.states().items() if name == "take/letters"]
        found = [letter_of("take", entry, fields) for state in states for entry, fields in state.items()]
        return iter(sorted(found, key=lambda it: [int(part) for part in it.id.split("-")]))

    def parked(self) -> dict[str, list[list[int]]]:
        """Return the numbers of the parked records and their attempts, by key."""
        parked: dict[str, list[list[int]]] = {}
        for it in self.letters():
            assert it.is_parked
            assert (it.error == "Parked") == (it.attempts == 0)
            parked.setdefault(it.key, []).append([it.value[1], it.attempts])
        return parked

    def done(self) -> dict[str, list[int]]:
        """Return the numbers of the records in the state, by key."""
        states: list[Any] = [state for (_, name), state in self.run.states().items() if name == self._state]
        return {key: list(seen) for state in states for key, seen in state.items()}


def flow(items: Any, on_error: Any = "park", sink: Any = None) -> Callable[[StreamProvider], None]:
    """Build a dataflow that parses texts by their first letter."""

    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", ScriptedSource(items))
        keyed = texts.key_distribute("key", lambda msg: msg.value[0])
        keyed.map("parse", lambda text: int(text[1:]), on_error=on_error).sink(
            "out", VecSink() if sink is None else sink
        )

    return build_dataflow


def unless_mended(_key: Any, text: str, is_mended: bool) -> Any:
    """Fail for a question mark until an exclamation mark has been seen."""
    if "?" in text and not is_mended:
        raise ValueError(text)
    return text, is_mended or "!" in text


@pytest.mark.slow
@pytest.mark.fault("N12")
def test_parked_keys_and_replays_are_exactly_once_under_any_schedule() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        texts: Any = provider.new_stream().source("texts", SingleIteratorSource([]))
        keyed = texts.key_distribute("key", lambda msg: msg.value[0])
        policy = lambda failure: "park" if failure.key != "c" else "dead_letter"  # noqa: E731
        keyed.stateful_map("take", unless_mended, bool, on_error=policy).sink("out", VecSink())

    items = ["a1", "b?", "b2", "c?", "c!", "b3", "a?", "c?", "a!", "c4"]
    assert_exactly_once(build_dataflow, items, max_examples=25, replays={4: ["take"], 6: ["take"], 9: ["take"]})


def test_replays_of_a_test_must_fit_its_dataflow() -> None:
    for replays, message in (
        ({9: ["parse"]}, r"replays takes numbers of records, from 0 to 1; got 9"),
        ({0: "parse"}, r"replays takes lists of operators; got 'parse'"),
        ({0: ["prse"]}, r"no operator 'prse' can have dead letters; did you mean 'parse'\?"),
    ):
        with pytest.raises(GraphError, match=message):
            assert_exactly_once(flow([]), ["a1", "b1"], replays=replays)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("debug", [False, True])
def test_every_operator_parks_the_keys_of_its_input(name: str, debug: bool) -> None:
    items = [Item(1, 1, 5), Item(1, 2, 6, 0), Item(2, 3, 6), Item(1, 4, 7), Item(1, 5, 8, 0), Item(2, 6, 8)]
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
    _, apply = OPERATORS[name]

    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("items", SingleIteratorSource(items))
        timed = stream.event_time("time", "time", out_of_orderness=8).key_distribute("key", "key")
        apply(timed, "park").sink("out", VecSink())

    runtime = SingleThreadRuntime(build_dataflow, store, parallelism=2, debug=debug)
    runtime.execute()
    assert [(it.value.number, it.error) for it in dead_letters(store, "it")] == [
        (2, "ValueError"),
        (4, "Parked"),
        (5, "Parked"),
    ]
    counts = runtime.progress.counts["it"]
    assert (counts["failed"], counts["letters"], counts["kept"], counts["parked"]) == (1, 3, 3, 1)


def test_a_text_of_a_parked_key_stays_and_holds_the_others() -> None:
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)

    def build_dataflow(provider: StreamProvider) -> None:
        values: Any = provider.new_stream().source("values", ScriptedSource([lambda: 1, 2]))
        keyed = values.key_distribute("key", lambda _msg: "k")
        keyed.map("fail", lambda value: 1 // (value == 2), on_error="park").sink("out", VecSink())

    SingleThreadRuntime(build_dataflow, store).execute()
    assert [(it.is_text, it.key) for it in dead_letters(store)] == [(True, "'k'"), (False, "k")]
    run = DrivenRun(built(build_dataflow), parallelism=2, persistence=store)
    run.resume()
    for discards, expected in ((False, Replayed(texts=1, parked=1)), (True, Replayed(2))):
        tick = run.ticks.begin(replays=(Replay("fail", None, discards),))
        reports = run.run(tick)
        run.ticks.end(tick, reports)
        found = [it.replayed["fail"] for it in reports if "fail" in it.replayed]
        assert Replayed(*map(sum, zip(*found, strict=True))) == expected
    run.close()


def test_parked_letters_are_bounded() -> None:
    items = ["a", "a1", "a2", "a3"]
    with pytest.raises(OperatorError, match=r"keeps as many dead letters as it may: 2.*this one is of a parked key"):
        SingleThreadRuntime(flow(items, OnError("park", keep=2))).execute()
    runtime = SingleThreadRuntime(flow(items, OnError("park", keep=2, full="drop_oldest")))
    runtime.execute()
    counts = runtime.progress.counts["parse"]
    assert (counts["letters"], counts["dropped"], counts["kept"], counts["parked"]) == (4, 2, 2, 1)


@pytest.mark.fault("N13")
def test_only_keys_that_an_exchange_distributed_can_be_parked(tmp_path: Any) -> None:
    def build(on_error: Any, local: bool = False, taken: bool = False) -> Any:
        def build_dataflow(provider: StreamProvider) -> None:
            texts: Any = provider.new_stream().source("texts", ScriptedSource(["a", "1"]))
            if local:
                texts = texts.key_local("key", lambda msg: msg.value)
            elif taken:
                texts = texts.key_distribute("key", lambda msg: msg.value)
                provider.on_dead_letters(lambda letters: letters.sink("bad", VecSink()), ["parse"])
            texts.map("parse", int, on_error=on_error).sink("out", VecSink())

        return build_dataflow

    refused = r"operator 'parse' can't have on_error='park': its input is not distributed by \.key_distribute\(\)"
    for local in (False, True):
        with pytest.raises(GraphError, match=refused) as caught:
            SingleThreadRuntime(build("park", local=local)).execute()
        assert __file__ in str(caught.value)
    with pytest.raises(GraphError, match=r"can't have on_error='park': on_dead_letters\(\) takes its letters"):
        SingleThreadRuntime(build("park", taken=True)).execute()
    for taken, reason in ((False, "keys no exchange has distributed"), (True, "letters are taken as a stream")):
        with pytest.raises(OperatorError, match=rf"returned 'park' for an operator whose {reason}"):
            SingleThreadRuntime(build(lambda failure: "park", taken=taken)).execute()
    file = tmp_path / "malflow.toml"
    file.write_text('[operators.parse]\non_error = "park"')
    with pytest.raises(GraphError, match=refused):
        load(file, env={}).runtime(build("fail")).execute()
    file.write_text('[errors]\ndefault = "park"')
    for build_dataflow, parked in ((build("fail"), 0), (flow(["a", "a1"], "fail"), 1)):
        runtime = load(file, env={}).runtime(build_dataflow)
        runtime.execute()
        assert runtime.progress.counts["parse"]["parked"] == parked


def test_keys_flow_under_another_policy_and_wait_again_under_the_first() -> None:
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
    items = ["a", "a1"]
    for policy, more, expected in (
        ("park", [], []),
        ("fail", ["a2"], [2]),
        ("skip", ["a3"], [3]),
        ("park", ["a4"], []),
    ):
        items += more
        sink: VecSink[Any, Any, Any] = VecSink()
        SingleThreadRuntime(flow(items, policy, sink), store, parallelism=2).execute()
        assert sink.values == expected
    assert [it.value for it in dead_letters(store)] == ["a", "a1", "a4"]


@pytest.mark.fault("N12")
def test_calls_of_a_parked_key_in_a_later_batch_of_the_tick_follow() -> None:
    async def answer(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    context = OperatorContext("call")
    letters = Letters(context, rendezvous_select)
    operator = guarded(CallingOut(CallOptions(answer, 4)), context, OnError("park"), letters)
    batches = [Batch(["k"], ["bad"], [0]), Batch(["k", "other"], ["later", "good"], [1, 2])]
    found = [batch.values for (batch,) in operator.run([batches])]
    operator.close()
    assert [list(values) for values in found] == [[], ["good"]]
    assert [(it.value, it.attempts) for _, it in letters.chosen(None)] == [("bad", 1), ("later", 0)]
