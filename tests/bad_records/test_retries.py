"""Calls that are repeated before the policy decides about their records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import GraphError, OnError, Retry, SingleThreadRuntime, StreamProvider
from malflow.config import load
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import SingleIteratorSource
from tests.bad_records.operators import KINDS, MARKED, OPERATORS, Item, Left
from tests.kit.memory_store import MemoryStore

pytestmark = pytest.mark.slow

AT_ONCE = Retry(3, first=0, on=(Exception,))


@st.composite
def flaky(draw: st.DrawFn) -> Item:
    """Draw a record for which a function fails a few times."""
    fails = draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
    return Item(
        draw(st.integers(0, 2)),
        draw(st.integers(0, 20)),
        draw(st.integers(1, 8)),  # never late
        draw(st.integers(0, len(KINDS) - 1)) if fails else None,
        Left(fails),
    )


@pytest.mark.fault("N11")
@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=15)
@given(items=st.lists(flaky(), max_size=16), parallelism=st.sampled_from([1, 3]), debug=st.booleans())
def test_an_attempt_that_failed_leaves_no_trace(name: str, items: list[Item], parallelism: int, debug: bool) -> None:
    fails = [item.left[0] for item in items if item.left]
    marked = [
        replace(item, left=Left(3 if times >= 3 else 0), marks=[]) for item, times in zip(items, fails, strict=True)
    ]
    MARKED.clear()
    found, letters, progress = run(name, items, parallelism, debug, OnError("dead_letter", retry=AT_ONCE))
    expected, _, _ = run(name, marked, parallelism, debug, None)
    assert found == expected
    assert not MARKED
    assert not any(it.value.marks for it in letters)
    lost = [item for item, times in zip(items, fails, strict=True) if times >= 3]
    assert sorted(map(contents, (it.value for it in letters))) == sorted(map(contents, lost))
    assert all(it.attempts == 3 for it in letters)
    (it,) = [it for key, it in progress.operators.items() if key == "it"]
    assert (it.failed, it.letters, it.retries) == (len(lost), len(lost), sum(min(2, times) for times in fails))


def contents(item: Item) -> tuple[int, int, int]:
    """Return the fields of a record."""
    return item.key, item.number, item.time


def run(name: str, items: list[Item], parallelism: int, debug: bool, on_error: Any) -> tuple[Any, Any, Any]:
    """Return an operator's output by key, its dead letters and the progress; no record is bad without a policy."""
    sink: VecSink[Any, Any, Any] = VecSink()
    prepare, apply = OPERATORS[name]
    store = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = prepare(provider.new_stream().source("items", SingleIteratorSource(items)))
        if on_error is None:
            stream = stream.filter("good", lambda item: item.left == [0])
        apply(stream, on_error or "fail").sink("out", sink)

    runtime = SingleThreadRuntime(build_dataflow, store, parallelism=parallelism, debug=debug)
    runtime.execute()
    found = sorted(((msg.key, msg.value) for msg in sink), key=lambda it: repr(it[0]))
    return found, list(dead_letters(store)), runtime.progress


def words(on_error: Any) -> Any:
    """Build a dataflow that parses texts."""

    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", SingleIteratorSource(["1", "x"]))
        texts.map("parse", int, on_error=on_error).sink("out", VecSink())

    return build_dataflow


def test_only_the_named_exceptions_are_retried() -> None:
    for kinds, retries in (((ValueError,), 2), ((TimeoutError,), 0)):
        runtime = SingleThreadRuntime(words(OnError("skip", retry=Retry(3, first=0, on=kinds))))
        runtime.execute()
        assert runtime.progress.counts["parse"]["retried"] == retries


@pytest.mark.fault("N11")
def test_pauses_are_made_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("malflow.operators.failures.guard.sleep", pauses.append)
    retry = Retry(4, first=0.1, factor=3, longest=0.5, on=(ValueError,))
    with pytest.raises(Exception, match="operator 'parse' failed at key NoKey, value 'x'"):
        SingleThreadRuntime(words(OnError(retry=retry))).execute()
    assert pauses == [0.1, pytest.approx(0.3), 0.5]


def test_memory_is_never_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail(value: str) -> str:
        calls.append(1)
        raise MemoryError

    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", SingleIteratorSource(["x"]))
        texts.map("parse", fail, on_error=OnError("skip", retry=AT_ONCE)).sink("out", VecSink())

    with pytest.raises(Exception, match="MemoryError"):
        SingleThreadRuntime(build_dataflow).execute()
    assert calls == [1]


@pytest.mark.parametrize(
    ("retry", "message"),
    [
        (
            Retry(4, first=0.5),
            r"may pause for 3\.5 s in sum, and the whole run waits meanwhile; at most 1 s is allowed",
        ),
        (Retry(1_000, first=0), r"must have at most 100 attempts; got 1,000"),
        (3, r"OnError retry must be a Retry; got 3"),
    ],
)
def test_too_long_a_retry_is_refused_when_it_is_built(retry: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        OnError("skip", retry=retry)
    assert OnError(retry=Retry(3)).retry == Retry(3)


def test_a_retry_can_be_configured(tmp_path: Any) -> None:
    file = tmp_path / "malflow.toml"
    file.write_text("""
        [errors]
        default = "skip"
        [operators.parse.retry]
        attempts = 4
        first = "1ms"
        on = ["ValueError"]
    """)
    settings = load(file, env={})
    assert not settings.warnings
    for on_error, fate in (("fail", "skipped"), ("dead_letter", "letters")):
        runtime = settings.runtime(words(on_error))
        runtime.execute()
        counts = runtime.progress.counts["parse"]
        assert (counts["retried"], counts[fate]) == (3, 1)


def test_a_configured_retry_must_suit_its_operator(tmp_path: Any) -> None:
    for text, message in (
        ("operators.texts.retry.attempts = 2", "operator 'texts' can't have a retry: it has no function"),
        ("operators.parse.retry.attempts = 9", r"operator 'parse' can't have this retry: .*may pause for"),
    ):
        file = tmp_path / "malflow.toml"
        file.write_text(text)
        with pytest.raises(Exception, match=message):
            load(file, env={}).runtime(words("fail")).execute()
