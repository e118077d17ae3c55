"""Parts of a source that appear, and disappear, during a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, StreamProvider
from malflow.events import DiscoveryFailed, PartsDiscovered
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition, StatelessSource
from malflow.testing import END, ScriptedSource
from tests.conformance.dataflow import Started
from tests.conformance.test_events import Heard
from tests.kit.log import Log
from tests.kit.waiting import wait_until

SOON = timedelta(milliseconds=50)


class Growing(StatefulSourceImpl[str, Any, int, int]):
    """Parts that a file lists, each with some numbers; an endless one goes on behind them."""

    def __init__(self, folder: Path, log: Log, *, endless: bool = True, every: Any = SOON) -> None:
        self.file = folder / "parts"
        self.log = log
        self.endless = endless
        self.discover_every = every

    def write(self, *parts: str) -> None:
        """Change the parts."""
        beside = self.file.with_suffix(".new")
        beside.write_text("\n".join(parts))
        beside.rename(self.file)

    def list_parts(self) -> list[str]:
        return self.file.read_text().split()

    def build_part(self, part: str, state: int | None) -> StatefulSourcePartition[Any, int, int]:
        self.log.append(("built", part, state))
        return _Grown(part, state or 0, endless=self.endless)

    def build_discovered_part(self, part: str) -> StatefulSourcePartition[Any, int, int]:
        self.log.append(("discovered", part, None))
        return _Grown(part, 0, endless=self.endless)


class _Grown(StatefulSourcePartition[Any, int, int]):
    def __init__(self, part: str, position: int, *, endless: bool) -> None:
        self.part, self.position, self.endless = part, position, endless

    def poll(self) -> tuple[Any, int] | None:
        if self.position >= 5:
            return None
        self.position += 1
        return (self.part, self.position), self.position

    def is_finished(self) -> bool:
        return not self.endless and self.position >= 5

    def snapshot(self) -> int:
        return self.position


def reading(source: Any, log: Log) -> Callable[[StreamProvider], None]:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(source))
        counted = numbers.stateful_map("count", lambda _key, value, n: ((*value, n + 1), n + 1), int)
        counted.inspect("seen", lambda msg, _: log.append(msg.value)).sink("out", VecSink())

    return build_dataflow


def all_of(*parts: str) -> set[tuple[str, int, int]]:
    return {(part, number, number) for part in parts for number in range(1, 6)}


@pytest.mark.fault("F4")
def test_new_parts_while_the_run_goes_on(any_parallelism: Any, store: Any, new_log: Any, tmp_path: Path) -> None:
    built, seen, heard = new_log(), new_log(), Heard()
    source = Growing(tmp_path, built)
    source.write("a")
    with Started(any_parallelism(reading(source, seen), store, listeners=[heard])) as started:
        wait_until(lambda: set(seen) == all_of("a"))
        source.write("a", "b", "c")
        wait_until(lambda: set(seen) == all_of("a", "b", "c"))
        assert started.run.progress.unfinished == ("numbers",)
        source.write("d", "a", "b", "c")
        wait_until(lambda: set(seen) == all_of("a", "b", "c", "d"))
    assert sorted(part for what, part, _ in built if what == "discovered") == ["b", "c", "d"]  # in any process
    assert [event.parts for event in heard.of(PartsDiscovered)] == [("b", "c"), ("d",)]
    assert len(seen) == 20

    later, again = new_log(), new_log()
    source.log = later
    source.write("a", "b", "c", "d", "e")
    with Started(any_parallelism(reading(source, again), store)):
        wait_until(lambda: len(again) >= 5)
    assert set(again) == all_of("e")
    assert {(what, part) for what, part, state in later if state is None} == {("discovered", "e")}


def test_records_of_new_parts_are_late_on_every_worker(any_parallelism: Any, new_log: Any, tmp_path: Path) -> None:
    source = Growing(tmp_path, new_log())
    source.write("a")

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(source))
        on_time, _ = numbers.generate_epochs("epochs", lambda msg, _: msg.timestamp)
        on_time.sink("out", VecSink())

    with Started(any_parallelism(build_dataflow)) as started:
        wait_until(lambda: started.run.progress.records.get("numbers") == 5)
        source.write("a", "b", "c", "e")
        wait_until(lambda: started.run.progress.records["numbers"] == 20)
        wait_until(lambda: started.run.progress.late == {"epochs": 15})


def test_new_parts_between_runs_without_discovery(runtime: Any, store: Any, new_log: Any, tmp_path: Path) -> None:
    log = new_log()
    source = Growing(tmp_path, log, endless=False, every=None)
    source.write("a")
    runtime(reading(source, new_log()), store).execute()
    source.write("a", "b")
    seen = new_log()
    runtime(reading(source, seen), store).execute()
    assert set(seen) == all_of("b")
    assert [entry for entry in log if entry[2] is None] == [("built", "a", None), ("discovered", "b", None)]


def test_a_source_that_discovers_after_its_parts(any_parallelism: Any, log: Log, tmp_path: Path) -> None:
    source = Growing(tmp_path, log, endless=False)
    source.write()
    seen = Log(tmp_path / "seen")
    with Started(any_parallelism(reading(source, seen))) as started:
        wait_until(lambda: started.run.progress.tick > 3)
        source.write("a")
        wait_until(lambda: set(seen) == all_of("a"))
        tick = started.run.progress.tick
        wait_until(lambda: started.run.progress.tick > tick + 3)
        assert started.run.progress.unfinished == ("numbers",)
        source.write("b")  # "a" is gone, and finished
        wait_until(lambda: set(seen) == all_of("a", "b"))


class Vanishing(ScriptedSource):
    """Lists the parts of its script that a file names."""

    discover_every = SOON

    def __init__(self, file: Path, script: dict[str, list[Any]]) -> None:
        super().__init__(script)
        self.file = file

    def list_parts(self) -> list[str]:
        return self.file.read_text(encoding="utf-8").split()


def test_a_part_that_is_gone_after_its_end(any_parallelism: Any, log: Log, tmp_path: Path) -> None:
    """A reader built anew would go on after the `END`, but not in this run."""
    source = Vanishing(tmp_path / "parts", {"a": [1, END, 2], "b": [3]})
    source.file.write_text("a", encoding="utf-8")

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(source))
        numbers.inspect("seen", lambda msg, _: log.append(msg.value)).sink("out", VecSink())

    with Started(any_parallelism(build_dataflow)) as started:
        wait_until(lambda: set(log) == {1})
        source.file.write_text("b", encoding="utf-8")
        wait_until(lambda: set(log) == {1, 3})
        tick = started.run.progress.tick
        wait_until(lambda: started.run.progress.tick > tick + 3)
    assert list(log) == [1, 3]


@pytest.mark.fault("F4")
def test_an_unfinished_part_that_is_gone(any_parallelism: Any, store: Any, new_log: Any, tmp_path: Path) -> None:
    source, seen = Growing(tmp_path, new_log()), new_log()
    source.write("a", "b")
    gone = r"operator 'numbers' failed at part 'b': list_parts\(\) no longer lists it"
    with Started(any_parallelism(reading(source, seen), store)) as started:
        wait_until(lambda: set(seen) == all_of("a", "b"))
        started.run.snapshot().result()
        source.write("a")
        with pytest.raises(OperatorError, match=gone):
            started.finish()
    with pytest.raises(OperatorError, match=gone):
        any_parallelism(reading(source, seen), store).execute()


def test_a_list_of_parts_that_fails(runtime: Any, new_log: Any, tmp_path: Path) -> None:
    source, seen, heard = Growing(tmp_path, new_log()), new_log(), Heard()
    source.write("a")
    with Started(runtime(reading(source, seen), listeners=[heard])):
        wait_until(lambda: set(seen) == all_of("a"))
        source.file.unlink()
        wait_until(lambda: heard.of(DiscoveryFailed))
        source.write("a", "b")
        wait_until(lambda: set(seen) == all_of("a", "b"))
    failed = heard.of(DiscoveryFailed)[0]
    assert failed.source == "numbers"
    assert "FileNotFoundError" in str(failed.error)


@pytest.mark.parametrize("every", ["5x", timedelta(0), timedelta(seconds=-1)])
def test_an_interval_that_is_none(runtime: Any, log: Log, tmp_path: Path, every: Any) -> None:
    source = Growing(tmp_path, log, every=every)
    source.write("a")
    with pytest.raises(GraphError, match=r"source 'numbers' discover_every must be a time above zero, .* or None"):
        runtime(reading(source, log)).execute()


class Plain:
    """A source without positions, duck-typed."""

    discover_every = SOON

    def __init__(self, folder: Path) -> None:
        self.file = folder / "parts"

    def list_parts(self) -> list[str]:
        return self.file.read_text().split()

    def build_part(self, part: str) -> _Grown:
        return _Grown(part, 0, endless=True)


def test_new_parts_of_a_source_without_positions(runtime: Any, log: Log, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "malflow.runtime")
    (tmp_path / "parts").write_text("a")

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatelessSource(Plain(tmp_path)))
        numbers.inspect("seen", lambda msg, _: log.append(msg.value)).sink("out", VecSink())

    with Started(runtime(build_dataflow)):
        wait_until(lambda: len(log) == 5)
        (tmp_path / "parts").write_text("a b")
        wait_until(lambda: len(log) == 10)
    assert {part for part, _ in log} == {"a", "b"}
    assert "source 'numbers' has 1 new part: ['b']" in caplog.text
