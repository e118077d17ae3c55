"""Records that sources can't read, as dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import Budget, GraphError, OnError, OperatorError, Retry, SingleThreadRuntime, StreamProvider
from malflow.config import load
from malflow.connectors import connect
from malflow.connectors.files.csv_source import CsvSource
from malflow.connectors.files.json_source import JsonLinesSource, TextFileSource
from malflow.connectors.kafka import KafkaRecord, KafkaSource
from malflow.connectors.redis import RedisStreamSource
from malflow.failures import Replay, Replayed
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters, read_state
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl
from malflow.testing.driven import DrivenRun
from malflow.testing.trial import built
from tests.kit.memory_store import MemoryStore

pytestmark = pytest.mark.slow


def flow(make: Callable[[], Any], sink: Any = None) -> Callable[[StreamProvider], None]:
    """Build a dataflow that reads a source."""

    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("lines", make())
        stream.sink("out", VecSink() if sink is None else sink)

    return build_dataflow


def stored() -> FsspecBackend:
    """Return a store in memory."""
    return FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)


FILES: dict[str, tuple[Any, bytes, list[Any], Any]] = {
    "csv": (CsvSource, b"a,b\n1,2\n3\n4,5\n", [{"a": "1", "b": "2"}, {"a": "4", "b": "5"}], ("3", 1, 3)),
    "json": (JsonLinesSource, b'{"a": 1}\n{"a\n{"a": 2}\n', [{"a": 1}, {"a": 2}], ('{"a', 1, 2)),
    "text": (TextFileSource, b"one\n\xff\nthree\n", ["one", "three"], (b"\xff", 1, 2)),
}


@pytest.mark.fault("N14")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("way", ["argument", "policy", "url", "configuration"])
def test_a_record_that_a_file_source_cannot_read_becomes_a_letter(name: str, way: str, tmp_path: Path) -> None:
    kind, content, good, (value, timestamp, line) = FILES[name]
    file = tmp_path / f"in.{name if name != 'json' else 'jsonl'}"
    file.write_bytes(content)
    make = {
        "argument": lambda: kind(file, on_error="dead_letter"),
        "policy": lambda: kind(file, on_error=OnError("dead_letter", keep=5)),
        "url": lambda: connect(f"{file}?on_error=dead_letter&format={name}"),
        "configuration": lambda: kind(file),
    }[way]
    store, sink = stored(), VecSink[Any, Any, Any]()
    settings = load(
        None, env={}, overrides={"operators.lines.on_error": "dead_letter"} if way == "configuration" else {}
    )
    runtime = SingleThreadRuntime(settings.configured(flow(make, sink)), store, parallelism=2)
    runtime.execute()
    assert sink.values == good
    (letter,) = dead_letters(store)
    assert (letter.operator, letter.key, letter.value) == ("lines", str(file), value)
    assert (letter.timestamp, letter.place, letter.error) == (timestamp, f"{file} line {line}", "BadRecord")
    assert (letter.attempts, letter.trace, letter.is_text) == (1, "", False)
    operator = runtime.progress.operators["lines"]
    assert (operator.taken, operator.failed, operator.letters) == (2, 1, 1)


LINES = st.lists(st.sampled_from(["1", "2", "{", "[1]", "x"]), max_size=12)


@pytest.mark.fault("N14")
@given(runs=st.lists(st.tuples(LINES, st.integers(1, 3), st.sampled_from(["dead_letter", "skip"])), max_size=4))
def test_letters_of_sources_are_kept_over_runs(runs: list[tuple[list[str], int, str]], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("lines")
    store, sink = stored(), VecSink[Any, Any, Any]()
    good, bad = 0, []
    files: list[str] = []
    for number, (lines, parallelism, policy) in enumerate(runs):
        file = folder / f"{number}.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        files.append(str(file))
        how: Any = policy
        make = lambda: JsonLinesSource(list(files), on_error=how)  # noqa: B023, E731 - it runs in this round
        SingleThreadRuntime(flow(make, sink), store, parallelism=parallelism).execute()
        good += sum(line not in ("{", "x") for line in lines)
        if policy == "dead_letter":
            bad += [(str(file), line) for line in lines if line in ("{", "x")]
        found = list(dead_letters(store))
        assert sorted((it.key, it.value) for it in found) == sorted(bad)
        assert len({it.id for it in found}) == len(found)
        assert len(sink.values) == good


EVENTS = st.sampled_from([("tick",), ("tick",), ("tick",), ("snapshot",), ("crash",), ("rescale", 1), ("rescale", 3)])


@pytest.mark.fault("N14")
@given(files=st.lists(LINES, min_size=1, max_size=3), events=st.lists(EVENTS, max_size=20))
def test_letters_of_sources_are_exactly_once(files: list[list[str]], events: list[Any], tmp_path_factory: Any) -> None:
    folder, store = tmp_path_factory.mktemp("lines"), stored()
    for number, lines in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def build_dataflow(provider: StreamProvider) -> None:
        source = JsonLinesSource(f"{folder}/*.jsonl", on_error="dead_letter")
        keyed = provider.new_stream().source("lines", source).key_distribute("key", lambda msg: msg.key)
        keyed.stateful_map("seen", lambda _, it, seen: (it, [*seen, it]), list).sink("out", VecSink())

    def started(workers: int) -> DrivenRun:
        run = DrivenRun(built(build_dataflow), parallelism=workers, persistence=store)
        run.resume()
        return run

    run = started(2)
    for name, *arguments in events:
        if name == "crash":
            run.close()
            run = started(run.parallelism)
        elif name == "snapshot":
            run.snapshots.take(ending=True)
        else:
            getattr(run, name)(*arguments)
    while not run.is_finished:
        run.tick()
    run.snapshots.take(ending=True)
    run.close()
    bad, good = [], {}
    for number, lines in enumerate(files):
        key = str(folder / f"{number}.jsonl")
        bad += [(key, line, at) for at, line in enumerate(lines) if line in ("{", "x")]
        good[key] = [json.loads(line) for line in lines if line not in ("{", "x")]
    assert sorted((it.key, it.value, it.timestamp) for it in dead_letters(store)) == sorted(bad)
    assert dict(read_state(store, "seen")) == {key: seen for key, seen in good.items() if seen}


@pytest.mark.fault("N15")
def test_a_file_of_bad_records_is_read_in_ticks_of_a_limited_size(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n" * 20_000 + "1\n")
    sink = VecSink[Any, Any, Any]()
    policy = OnError("dead_letter", keep=100_000)
    runtime = SingleThreadRuntime(flow(lambda: JsonLinesSource(file, on_error=policy), sink))
    runtime.execute()
    assert sink.values == [1]
    assert runtime.progress.operators["lines"].letters == 20_000
    assert runtime.progress.tick > 2


@pytest.mark.fault("N15")
def test_a_record_that_cannot_be_read_counts_as_polled_and_not_as_emitted(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n1\n")
    run = DrivenRun(built(flow(lambda: JsonLinesSource(file, on_error="dead_letter"))), parallelism=1)
    run.open()
    assert (run.tick(), run.ticks.counts["lines"]) == (1, 0)
    run.close()


def test_letters_of_sources_have_the_limits_of_others(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n" * 10 + "1\n" * 10)
    with pytest.raises(OperatorError, match=r"'lines' failed at .*keeps as many dead letters as it may: 3"):
        SingleThreadRuntime(flow(lambda: JsonLinesSource(file, on_error=OnError("dead_letter", keep=3)))).execute()
    policy = OnError("skip", budget=Budget(0.2, least=10))
    with pytest.raises(OperatorError, match=r"'lines' failed at 10 of the last \d+ records.*BadRecord 10 times"):
        SingleThreadRuntime(flow(lambda: JsonLinesSource(file, on_error=policy))).execute()


def test_a_stream_takes_the_letters_of_sources(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("1\n{\n2\n")
    letters = VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        flow(lambda: JsonLinesSource(file, on_error="dead_letter"))(provider)
        provider.on_dead_letters(lambda stream: stream.sink("bad", letters))

    store = stored()
    SingleThreadRuntime(build_dataflow, store).execute()
    assert [(it.operator, it.value) for it in letters.values] == [("lines", "{")]
    assert list(dead_letters(store)) == []


@pytest.mark.fault("N17")
@pytest.mark.parametrize("name", FILES)
def test_raw_records_are_read_again_by_the_mended_source(name: str, tmp_path: Path) -> None:
    kind, content, _, (raw, timestamp, _) = FILES[name]
    file, store = tmp_path / "in", stored()
    file.write_bytes(content)
    SingleThreadRuntime(flow(lambda: kind(file, on_error="dead_letter")), store).execute()
    mended, value = {
        "csv": (lambda: CsvSource(file, fields=["a"], header=True, delimiter=";", on_error="dead_letter"), {"a": "3"}),
        "json": (lambda: Loose(file, on_error="dead_letter"), raw),
        "text": (lambda: TextFileSource(file, encoding="latin-1", on_error="dead_letter"), "\xff"),
    }[name]
    if name == "csv":
        file.write_text("a\n")
    for make, done in ((lambda: kind(file, on_error="dead_letter"), []), (mended, [(value, timestamp)])):
        if name == "csv" and not done:
            continue
        sink = VecSink[Any, Any, Any]()
        run = DrivenRun(built(flow(make, sink)), parallelism=3, persistence=store)
        run.resume()
        tick = run.ticks.begin(polls=False, replays=(Replay("lines"),))
        reports = run.run(tick)
        run.ticks.end(tick, reports)
        assert sum(it.replayed["lines"].done for it in reports if "lines" in it.replayed) == 1
        assert [(it.value, it.timestamp) for it in sink] == done
        assert run.ticks.counts["lines"] == run.ticks.counts["lines/out"] == len(done)
        run.snapshots.take(ending=True)
        run.close()
        letters = [(it.attempts, it.place, it.value) for it in dead_letters(store)]
        assert [(attempts, value) for attempts, _, value in letters] == ([] if done else [(2, raw)])
        assert [place for _, place, _ in letters] == ([] if done else [f"{file} line {FILES[name][3][2]}"])


@pytest.mark.fault("N17")
def test_codecs_of_kafka_and_redis_read_again() -> None:
    kafka = partial(KafkaSource, "orders", servers="localhost:1", decode="json")
    assert kafka().read_again(("orders", 0), b"[1]") == [1]
    assert kafka().read_again(("orders", 0), None) is None
    raw = KafkaRecord(b"k", b"1", "orders", 0, 5, 7, ())
    whole = kafka(decode_key="text", emit="record")
    assert whole.read_again(("orders", 0), raw) == raw._replace(key="k", value=1)
    assert kafka().read_again(("orders", 0), raw) == 1
    with pytest.raises(ValueError, match="line 1 column 2"):
        whole.read_again(("orders", 0), raw._replace(value=b"{"))
    redis = partial(RedisStreamSource, "redis://localhost:1", "clicks", decode="json")
    assert redis(field="n").read_again("clicks", {b"n": b"1"}) == 1
    assert redis().read_again("clicks", {b"n": b"1", b"m": b"2"}) == {"n": 1, "m": 2}
    with pytest.raises(KeyError):
        redis(field="n").read_again("clicks", {b"m": b"1"})


class Loose(JsonLinesSource):
    """Reads lines that are not JSON as text."""

    def read_again(self, part: str, raw: Any) -> Any:
        """Return the text."""
        return raw


def test_letters_of_a_source_that_cannot_read_again_are_discarded_only() -> None:
    class Once(StatefulSourceImpl[str, int, int, int]):
        policy = OnError("dead_letter")

        def list_parts(self) -> list[str]:
            return ["a"]

        def build_part(self, part: str, state: int | None) -> Any:
            return self

        def poll(self) -> None:
            return None

        def is_finished(self) -> bool:
            return False

        def snapshot(self) -> int:
            return 0

    handle = SingleThreadRuntime(flow(lambda: StatefulSource(Once()))).start()
    with pytest.raises(GraphError, match=r"'lines' is a source without read_again\(\).*discard its letters"):
        handle.replay("lines")
    assert handle.discard("lines").result(60) == Replayed()
    handle.stop()
    handle.await_termination(60)


@pytest.mark.parametrize(
    ("on_error", "message"),
    [
        ("park", r"JsonLinesSource on_error must be 'fail', 'skip', 'dead_letter' or a plain function; got 'park'"),
        (
            OnError("park"),
            r"JsonLinesSource on_error takes an OnError with one of 'fail', 'skip', 'dead_letter', and w",
        ),
        (OnError("skip", retry=Retry(2)), r"and without retry="),
        (OnError(lambda failure: "skip"), r"takes an OnError with one of 'fail'"),
    ],
)
def test_policies_that_a_source_cannot_have_are_refused(on_error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=message):
        JsonLinesSource(tmp_path / "in.jsonl", on_error=on_error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"operators.lines.on_error": "park"}, r"operator 'lines' can't have on_error='park': a source has no keys"),
        ({"operators.lines.retry.attempts": 2}, r"source 'lines' can't have this policy: .*without retry="),
    ],
)
def test_configured_policies_that_a_source_cannot_have_are_refused(settings: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n1\n")
    build = load(None, env={}, overrides=settings).configured(flow(lambda: JsonLinesSource(file)))
    with pytest.raises(GraphError, match=message):
        SingleThreadRuntime(build).execute()


@pytest.mark.parametrize("default", ["skip", "dead_letter", "park"])
def test_the_configured_default_is_that_of_sources_too(default: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n1\n")
    runtime = SingleThreadRuntime(
        load(None, env={}, overrides={"errors.default": default}).configured(flow(lambda: JsonLinesSource(file)))
    )
    runtime.execute()
    counts = runtime.progress.counts["lines"]
    assert (counts["failed"], counts["skipped"], counts["letters"]) == (1, default == "skip", default != "skip")


def test_a_function_of_a_source_still_gets_its_error(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{\n1\n")
    seen: list[Any] = []
    runtime = SingleThreadRuntime(flow(lambda: JsonLinesSource(file, on_error=seen.append)))
    runtime.execute()
    assert [it.line for it in seen] == [1]
