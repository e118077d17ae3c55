"""Messages and calls that sinks receive."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import DataMessage, NoKey, StreamProvider
from malflow.sinks import StatefulSink, StatelessSink, StdOutSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from tests.conformance.dataflow import sis
from tests.kit.backends import kept_states
from tests.kit.log import Log


class Ledger:
    """A stateful sink: one page a part, each message numbered within its page."""

    def __init__(self, lines: Log, closed: Log) -> None:
        self.lines = lines
        self.closed = closed

    @property
    def pages(self) -> dict[str, list[tuple[int, Any]]]:
        pages: dict[str, list[tuple[int, Any]]] = {}
        for part, number, message in self.lines:
            pages.setdefault(part, []).append((number, message))
        return pages

    def assign_part(self, msg: Any) -> str:
        return f"page-{msg.value % 3}"

    def build_part(self, part: str, state: int | None) -> Page:
        return Page(self, part, state or 0)


@pytest.fixture
def ledger(new_log: Any) -> Ledger:
    return Ledger(new_log(), new_log())


class Page:
    def __init__(self, ledger: Ledger, part: str, written: int) -> None:
        self.ledger, self.part, self.written = ledger, part, written

    def sink(self, msg: Any) -> None:
        self.ledger.lines.append((self.part, self.written, msg))
        self.written += 1

    def snapshot(self) -> int:
        return self.written

    def collect(self) -> int:
        return self.snapshot()

    def close(self) -> None:
        self.ledger.closed.append(self.part)


def test_std_out_sink_prints_each_message(runtime: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", sis([2, "b"])).key_local("k", lambda msg: 1)
        keyed.sink("out", StatelessSink(StdOutSink()))

    runtime(build_dataflow).execute()
    assert capsys.readouterr().out == "{ key: 1, value: 2, timestamp: 0 }\n{ key: 1, value: 'b', timestamp: 1 }\n"


def test_vec_sink_collects_messages(runtime: Any) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()
    runtime(lambda p: p.new_stream().source("s", sis("ab")).sink("out", StatelessSink(collected))).execute()
    assert list(collected) == [DataMessage(NoKey, "a", 0), DataMessage(NoKey, "b", 1)]
    assert len(collected) == 2
    assert repr(collected).startswith("VecSink([DataMessage(key=NoKey")
    assert [m.value for m in collected.drain()] == ["a", "b"]
    assert list(collected) == []


def test_a_sink_of_one_method_will_do(any_parallelism: Any, log: Log) -> None:
    class Print:
        def sink(self, msg: Any) -> None:
            log.append(msg)

    any_parallelism(lambda p: p.new_stream().source("s", sis(range(3))).sink("out", StatelessSink(Print()))).execute()
    assert log == [DataMessage(NoKey, n, n) for n in range(3)]


def test_stateful_sink_has_one_writer_for_each_part(any_parallelism: Any, ledger: Ledger) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", sis(range(9))).key_distribute("k", lambda m: m.value)
        stream.sink("ledger", StatefulSink(ledger))

    any_parallelism(build_dataflow).execute()
    for remainder in range(3):
        messages = [(n, DataMessage(3 * n + remainder, 3 * n + remainder, 3 * n + remainder)) for n in range(3)]
        lines = sorted(ledger.pages[f"page-{remainder}"], key=lambda line: line[1].value)
        assert [message for _, message in lines] == [message for _, message in messages]
        assert sorted(n for n, _ in lines) == [0, 1, 2]
    assert sorted(ledger.closed) == ["page-0", "page-1", "page-2"]


def test_a_stateful_sink_goes_on_from_its_state(any_parallelism: Any, store: Any, ledger: Ledger) -> None:
    for items in (range(6), range(6, 12)):
        any_parallelism(
            lambda p, items=items: p.new_stream().source("s", sis(items)).sink("ledger", StatefulSink(ledger)), store
        ).execute()
    assert {part: [n for n, _ in lines] for part, lines in ledger.pages.items()} == {
        f"page-{remainder}": [0, 1, 2, 3] for remainder in range(3)
    }


def test_a_stateful_sink_on_a_stream_without_keys(runtime: Any, ledger: Ledger) -> None:
    runtime(lambda p: p.new_stream().source("s", sis([5])).sink("ledger", StatefulSink(ledger))).execute()
    assert ledger.pages == {"page-2": [(0, DataMessage(NoKey, 5, 0))]}


def test_a_sink_below_a_built_in_one_may_have_its_own_sink(runtime: Any) -> None:
    class Loud(VecSink[Any, Any, Any]):
        def sink(self, msg: Any) -> None:
            heard.append(msg.value)
            super().sink(msg)

    heard: list[Any] = []
    loud = Loud()
    runtime(lambda p: p.new_stream().source("s", sis("ab")).sink("out", StatelessSink(loud))).execute()
    assert heard == loud.values == ["a", "b"]


class Deaf:
    """A sink whose reader goes away after the first record."""

    on_driver = True
    reader_is_gone = False

    def sink(self, msg: Any) -> None:
        self.reader_is_gone = True


@pytest.mark.fault("F15")
def test_a_run_that_nobody_reads_any_more_ends_with_a_snapshot(runtime: Any, store: FsspecBackend) -> None:
    def build(size: int, sink: Any) -> Any:
        script = [item for number in range(size) for item in (number, PAUSE)]
        return lambda provider: (
            provider.new_stream().source("numbers", ScriptedSource(script)).sink("out", StatelessSink(sink))
        )

    with pytest.raises(SystemExit) as end:
        runtime(build(2_000, Deaf()), store).execute()
    assert end.value.code == 141
    [position] = kept_states(store, "numbers").values()
    assert 0 < position < 2_000
    rest: VecSink[Any, int, int] = VecSink()
    runtime(build(position + 2, rest), store).execute()
    assert rest.values == list(range((position + 1) // 2, position + 2))
