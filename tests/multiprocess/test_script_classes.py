"""Classes of the script: worker processes have them before they read anything of the user's."""

from __future__ import annotations

import enum
import functools
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from malflow import GraphError, MultiProcessRuntime, OperatorError, RestartPolicy, SingleThreadRuntime, StreamProvider
from malflow.events import Restarted
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import JsonLinesSource
from tests.kit.backends import at_once
from tests.multiprocess.runs import Heard, processes, run_map, scripted
from tests.multiprocess.test_deaths import SOON, TICK, Dies

pytestmark = pytest.mark.slow

Put: TypeAlias = Callable[[Any], Any]


@pytest.fixture
def of_script(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return what makes a class one of the running script."""

    def put(kind: Any) -> Any:
        kind.__module__, kind.__qualname__ = "__main__", kind.__name__
        monkeypatch.setattr(sys.modules["__main__"], kind.__name__, kind, raising=False)
        return kind

    return put


def totals(total: Any, source: Any, sink: VecSink[Any, Any, Any], hook: Any = None) -> Callable[[StreamProvider], None]:
    """Return what builds running totals whose states are of a class."""

    def add(_key: int, value: int, state: Any) -> tuple[int, Any]:
        state.sum += value
        return state.sum, state

    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("numbers", source).key_distribute("key", lambda msg: msg.value % 3)
        hooked = keyed if hook is None else keyed.inspect("hook", hook)
        hooked.stateful_map("sum", add, total).sink("out", sink)

    return build


class _Total:
    def __init__(self) -> None:
        self.sum = 0


@pytest.mark.parametrize("first", [SingleThreadRuntime, processes])
def test_a_state_of_a_class_of_the_script_is_restored(
    tmp_path: Path, of_script: Put, first: Callable[..., SingleThreadRuntime | MultiProcessRuntime]
) -> None:
    total = of_script(type("Total", (_Total,), {}))
    backend, results = FsspecBackend(str(tmp_path)), VecSink[Any, Any, Any]()
    first(totals(total, scripted(range(6)), VecSink()), backend).execute()
    processes(totals(total, scripted(range(9)), results), backend).execute()
    assert sorted(results.values) == [9, 12, 15]


class Level(enum.StrEnum):
    HIGH = "high"


def test_structs_of_msgspec_travel_with_their_fields_and_methods(of_script: Put, tmp_path: Path) -> None:
    level = of_script(Level)

    class Row(msgspec.Struct, rename={"number": "n"}):
        number: int
        level: Level | None = None
        notes: list[str] = msgspec.field(default_factory=list)

        def __post_init__(self) -> None:
            self.notes[:] = ["made"]

        def next(self) -> Row:
            return Row(self.number + 1, self.level)

    class More(Row, kw_only=True):
        extra: int = 3

    row, more = of_script(Row), of_script(More)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1, "level": "high"}\n{"n": 2}\n')
    msgspec.json.decode('{"n": 1, "level": "high"}', type=row)  # msgspec keeps what it knows of the enum in it
    results: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("rows", JsonLinesSource(path, types=row))
        keyed = rows.map("next", lambda it: it.next()).key_distribute("n", lambda msg: msg.value.number)
        keyed.map("more", lambda it: (it, more(it.number, it.level, extra=4))).sink("out", results)

    processes(build).execute()
    found = sorted(results.values, key=lambda it: it[0].number)
    assert [(one.number, one.level, one.notes) for one, _ in found] == [(2, level.HIGH, ["made"]), (3, None, ["made"])]
    assert [(type(other), other.number, other.extra) for _, other in found] == [(more, 2, 4), (more, 3, 4)]


@pytest.mark.nightly
def test_a_state_of_a_class_of_the_script_survives_a_death(tmp_path: Path, of_script: Put) -> None:
    total, heard = of_script(type("Total", (_Total,), {})), Heard()
    build = totals(total, scripted(range(9)), VecSink(), Dies("SIGKILL", tmp_path, at=7))
    backend, policy = at_once(tmp_path / "state"), RestartPolicy(backoff=SOON)
    processes(build, backend, TICK, restart=policy, listeners=[heard]).execute()
    assert len(heard.of(Restarted)) == 1


def test_a_filter_with_a_warning_of_the_script_holds_in_workers(of_script: Put) -> None:
    loud, quiet = (of_script(type(name, (UserWarning,), {})) for name in ("Loud", "Quiet"))

    def warn(value: int) -> int:
        warnings.warn(quiet("not told"), stacklevel=1)
        warnings.warn(loud("told"), stacklevel=1)
        return value

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", loud)
        warnings.simplefilter("ignore", quiet)
        run_map(warn)
    assert [type(it.message) for it in told] == [loud]


def test_a_filter_that_cannot_be_sent_leaves_the_others(of_script: Put) -> None:
    class Local(UserWarning):
        """A class that is pickled neither by name nor found there."""

    quiet = of_script(type("Quiet", (UserWarning,), {}))

    def warn(value: int) -> int:
        warnings.warn(quiet("not told"), stacklevel=1)
        return value

    warnings.simplefilter("ignore", quiet)
    warnings.simplefilter("ignore", Local)
    assert run_map(warn) == [0]


def test_a_level_of_logging_may_be_of_the_script(of_script: Put, caplog: pytest.LogCaptureFixture) -> None:
    level = of_script(enum.IntEnum("Level", {"FEW": 25}))
    log = logging.getLogger("tests.multiprocess.levels")

    def tell(value: int) -> int:
        log.log(24, "quiet")
        log.log(26, "loud")
        return value

    with caplog.at_level(level.FEW, log.name):
        run_map(tell)
    assert [it.getMessage() for it in caplog.records if it.name == log.name] == ["loud"]


# Classes that can't be pickled


def test_a_cached_property_travels(of_script: Put) -> None:
    @of_script
    class Config:
        @functools.cached_property
        def double(self) -> list[int]:
            return [2]

    def mapper(value: int) -> int:
        config = Config()
        assert config.double is config.double
        return value * config.double[0]

    assert run_map(mapper, [3]) == [6]


def test_a_class_that_the_dataflow_does_not_use_stops_nothing(of_script: Put) -> None:
    of_script(type("Locked", (), {"lock": threading.Lock()}))
    record = of_script(type("Record", (), {}))
    [found] = run_map(lambda _: record())
    assert type(found) is record


def test_a_class_that_cannot_be_pickled_is_named_with_its_operator(of_script: Put) -> None:
    locked = of_script(type("Locked", (), {"lock": threading.Lock()}))
    of_script(type("Other", (locked,), {"__init__": lambda _: locked}))
    match = (
        "operator 'map' can't run in worker processes: .*class 'Locked' of the script can't be pickled: move it into"
    )
    with pytest.raises(GraphError, match=match):
        run_map(lambda _: isinstance(locked, type))


def test_an_object_of_a_class_that_was_left_out_is_refused(of_script: Put) -> None:
    of_script(type("Locked", (), {"lock": threading.Lock()}))
    match = r"class 'Locked' of the script can't be sent to other processes: TypeError: .*lock.*; move it into a module"
    with pytest.raises(OperatorError, match=match):
        run_map(lambda _: vars(sys.modules["__main__"])["Locked"]())


# Values


@pytest.mark.parametrize("view", [memoryview(b"abcdefgh"), memoryview(bytearray(8)).cast("i", (1, 2))])
def test_a_view_of_memory_arrives_as_a_view(view: memoryview) -> None:
    [found] = run_map(lambda _: view)
    assert isinstance(found, memoryview)
    assert (found, found.format, found.shape, found.readonly) == (view, view.format, view.shape, view.readonly)
