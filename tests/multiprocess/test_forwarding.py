"""What user code prints, logs and warns of in worker processes reaches the handlers of the program, in order."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, RunFailed, StreamProvider
from malflow.sinks import StatelessSinkImpl, VecSink
from malflow.testing import ScriptedSource
from tests.multiprocess.groups import ROOT, started
from tests.multiprocess.runs import METHODS, processes, run_map

pytestmark = pytest.mark.slow

LONG = 10_000_000
LOG = logging.getLogger("tests.multiprocess.user")


def returning(act: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a function that acts, and returns its argument."""

    def mapper(value: Any) -> Any:
        act(value)
        return value

    return mapper


# Printed text


@METHODS
def test_lines_arrive_in_order_with_their_worker(capsys: pytest.CaptureFixture[str], method: str) -> None:
    run_map(returning(print), range(1_000), start_method=method)
    lines = capsys.readouterr().out.splitlines()
    workers = {line.partition("] ")[0] for line in lines}
    assert workers in ({"[worker 0"}, {"[worker 1"})
    assert [line.partition("] ")[2] for line in lines] == [str(number) for number in range(1_000)]


def test_lines_of_several_processes_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    script = {part: [f"{part} {number} {'x' * 1_000}" for number in range(500)] for part in "abcd"}

    def build(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("lines", ScriptedSource(script))
        lines.map("print", returning(print)).sink("out", VecSink[Any, Any, Any]())

    processes(build, processes=4).execute()
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    for part in "abcd":
        assert [line for line in lines if line.startswith(part)] == script[part]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_text_without_a_newline_arrives(capsys: pytest.CaptureFixture[str], stream: str) -> None:
    run_map(returning(lambda value: print("number ", value, sep="", end="", file=getattr(sys, stream))), [1])
    assert getattr(capsys.readouterr(), stream[3:]).partition("] ")[2] == "number 1\n"


def test_text_of_threads_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(name: str) -> None:
        for number in range(500):
            sys.stdout.write(f"{name} {number}\n")

    def act(_value: int) -> None:
        threads = [threading.Thread(target=tell, args=[name]) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run_map(returning(act))
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines) == sorted(f"{name} {number}" for name in "abc" for number in range(500))


@pytest.mark.parametrize("count", [1, 2])
def test_lines_before_a_process_ends_are_not_lost(capsys: pytest.CaptureFixture[str], count: int) -> None:
    def act(_value: int) -> None:
        for number in range(100):
            print(number)
        print("x" * LONG)
        os._exit(3)

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource([1])).map("print", returning(act))
        numbers.key_distribute("key", lambda msg: msg.value).sink("out", VecSink[Any, Any, Any]())

    with pytest.raises(RunFailed, match="has exited with code 3"):
        processes(build, processes=count).execute()
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [*map(str, range(100)), "x" * LONG]


def test_flushed_text_before_a_process_ends_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    def act(_value: int) -> None:
        print("last words", end="", flush=True)
        os._exit(3)

    with pytest.raises(RunFailed, match="has exited with code 3"):
        run_map(returning(act))
    assert "last words" in capsys.readouterr().out


class Closing(StatelessSinkImpl[Any, Any, Any]):
    """A sink in each worker process that prints when it is closed."""

    def sink(self, msg: Any) -> None:
        """Drop a message."""

    def close(self) -> None:
        """Close it."""
        print("closed")


def test_text_that_is_printed_at_the_end_arrives(capsys: pytest.CaptureFixture[str]) -> None:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", ScriptedSource({"a": [1], "b": [2]})).sink("out", Closing())

    processes(build).execute()
    assert sorted(capsys.readouterr().out.splitlines()) == ["[worker 0] closed", "[worker 1] closed"]


# Log records


@METHODS
def test_records_have_their_worker_and_arrive_in_order(caplog: pytest.LogCaptureFixture, method: str) -> None:
    with caplog.at_level(logging.INFO):
        run_map(returning(lambda value: LOG.info("number %d", value)), range(100), start_method=method)
    mine = [record for record in caplog.records if record.name == LOG.name]
    assert [record.getMessage() for record in mine] == [f"number {number}" for number in range(100)]
    assert {vars(record)["worker"] for record in mine} in ({"0"}, {"1"})
    assert {record.levelname for record in mine} == {"INFO"}
    assert {record.filename for record in mine} == {Path(__file__).name}
    assert os.getpid() not in {record.process for record in mine}


def test_records_below_the_level_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    class Rendered:
        def __str__(self) -> str:
            raise AssertionError("a record below the level was rendered")

    def act(_value: int) -> None:
        LOG.info("%s", Rendered())
        logging.getLogger("tests.multiprocess.user.loud").info("loud")
        assert not LOG.isEnabledFor(logging.INFO)

    with caplog.at_level(logging.WARNING), caplog.at_level(logging.INFO, "tests.multiprocess.user.loud"):
        run_map(returning(act))
    assert [record.getMessage() for record in caplog.records if record.name.startswith(LOG.name)] == ["loud"]


def test_disabled_logging_is_disabled_in_worker_processes(caplog: pytest.LogCaptureFixture) -> None:
    def act(_value: int) -> None:
        LOG.error("an error")
        LOG.critical("a disaster")

    logging.disable(logging.ERROR)
    try:
        run_map(returning(act))
    finally:
        logging.disable(logging.NOTSET)
    assert [record.getMessage() for record in caplog.records if record.name == LOG.name] == ["a disaster"]


def test_a_logged_exception_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def divide(value: int) -> None:
        try:
            print(1 // value)
        except ZeroDivisionError:
            LOG.exception("no result", stack_info=True)

    run_map(returning(divide))
    [record] = [record for record in caplog.records if record.name == LOG.name]
    text = logging.Formatter().format(record)
    assert text.startswith("no result\nTraceback (most recent call last):")
    assert "in divide\n    print(1 // value)\n" in text
    assert "ZeroDivisionError: integer division or modulo by zero" in text
    assert record.stack_info is not None
    assert record.stack_info.startswith("Stack (most recent call last):")


def test_extras_arrive_and_those_that_cannot_be_pickled_as_text(caplog: pytest.LogCaptureFixture) -> None:
    class Local:
        def __repr__(self) -> str:
            return "a local object"

    extra = {"numbers": [1, 2], "lock": None, "local": None, "function": None}

    def act(_value: int) -> None:
        LOG.warning(
            "%s", {"an": "argument"}, extra=extra | {"lock": threading.Lock(), "local": Local(), "function": act}
        )

    run_map(returning(act))
    [record] = [record for record in caplog.records if record.name == LOG.name]
    assert record.getMessage() == "{'an': 'argument'}"
    facts = vars(record)
    assert facts["numbers"] == [1, 2]
    assert facts["lock"].startswith("<unlocked _thread.lock object")
    assert facts["local"] == "a local object"
    assert "act" in facts["function"]


def test_a_broken_record_is_reported_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_map(returning(lambda _: LOG.warning("%d", "no number"))) == [0]
    assert "--- Logging error ---" in capsys.readouterr().err


def test_records_before_a_process_ends_are_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    def act(_value: int) -> None:
        for number in range(1_000):
            LOG.warning("number %d", number)
        os._exit(3)

    with pytest.raises(RunFailed, match="has exited with code 3"):
        run_map(returning(act))
    mine = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    assert mine == [f"number {number}" for number in range(1_000)]


def test_loggers_use_their_own_handlers_and_filters() -> None:
    class Kept(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.texts: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.texts.append(record.getMessage())

    def act(_value: int) -> None:
        for text in ("plain", "secret"):
            logging.getLogger("tests.multiprocess.own").warning(text)

    logger, kept, at_root = logging.getLogger("tests.multiprocess.own"), Kept(), Kept()
    logger.addHandler(kept)
    logger.addFilter(lambda record: "secret" not in record.getMessage())
    logger.propagate = False
    logging.root.addHandler(at_root)
    try:
        run_map(returning(act))
    finally:
        logging.root.removeHandler(at_root)
        logger.propagate = True
        logger.filters.clear()
        logger.handlers.clear()
    assert kept.texts == ["plain"]
    assert not [it for it in at_root.texts if "has 1 part for 2 workers" not in it]


def test_lines_and_records_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    def act(value: int) -> None:
        print("printed", value)
        LOG.warning("logged %d", value)

    handler = logging.StreamHandler(sys.stdout)
    LOG.addHandler(handler)
    try:
        run_map(returning(act), range(100))
    finally:
        LOG.removeHandler(handler)
    lines = [line.rpartition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"{what} {number}" for number in range(100) for what in ("printed", "logged")]


# Warnings


class Spoken(UserWarning):
    """A warning with two arguments, whose pickle has one."""

    def __init__(self, what: str, whom: str) -> None:
        super().__init__(f"{what}, {whom}")


class Holding(UserWarning):
    """A warning that can't be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@METHODS
def test_a_warning_is_shown_with_its_place(method: str) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run_map(returning(lambda value: warnings.warn(f"number {value}", stacklevel=1)), range(3), start_method=method)
    assert [(str(it.message), it.category, Path(it.filename).name) for it in shown] == [
        (f"number {number}", UserWarning, Path(__file__).name) for number in range(3)
    ]


def test_filters_of_warnings_apply_in_worker_processes() -> None:
    def act(_value: int) -> None:
        warnings.warn("it will go", DeprecationWarning, stacklevel=1)
        warnings.warn("it is odd", stacklevel=1)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        run_map(returning(act))
    assert [str(it.message) for it in shown] == ["it is odd"]


@METHODS
def test_filters_of_warnings_of_modules_that_a_process_imports_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    (tmp_path / "heavy.py").write_text("class Slow(UserWarning): pass\nclass Slower(Slow): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "heavy", raising=False)
    heavy: Any = importlib.import_module("heavy")

    def act(_value: int) -> bool:
        was_loaded = "heavy" in sys.modules
        found = importlib.import_module("heavy")
        warnings.warn("it is slow", found.Slower, stacklevel=1)
        warnings.warn("it is odd", stacklevel=1)
        return was_loaded

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", heavy.Slow)
        assert run_map(act, start_method=method) == [False]
    assert [str(it.message) for it in shown] == ["it is odd"]


def test_a_warning_that_is_an_error_names_the_operator() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OperatorError, match=r"operator 'map' failed .*UserWarning: it is odd"):
            run_map(returning(lambda _: warnings.warn("it is odd", stacklevel=1)))


def test_warnings_are_logged_if_the_program_captures_them(caplog: pytest.LogCaptureFixture) -> None:
    logging.captureWarnings(capture=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=False)
            logging.captureWarnings(capture=True)
            run_map(returning(lambda _: warnings.warn("it is odd", stacklevel=1)))
    finally:
        logging.captureWarnings(capture=False)
    [record] = [record for record in caplog.records if record.name == "py.warnings"]
    assert "UserWarning: it is odd" in record.getMessage()


@pytest.mark.parametrize(
    "warning",
    [
        pytest.param(lambda: Spoken("hello", "you"), id="cannot_be_unpickled"),
        pytest.param(lambda: Holding("hello"), id="cannot_be_pickled"),
    ],
)
def test_a_warning_that_cannot_travel_is_shown_as_text(warning: Callable[[], Warning]) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert run_map(returning(lambda _: warnings.warn(warning(), stacklevel=1))) == [0]
    assert [str(it.message).partition(",")[0] for it in shown] == ["hello"]


STRICT = """
import warnings
from malflow import MultiProcessRuntime
from malflow.sinks import StatelessSinkImpl, VecSink
from malflow.sources import SingleIteratorSource


def warn(value):
    warnings.warn("it is odd")
    return value


def build(provider):
    provider.new_stream().source("numbers", SingleIteratorSource([1])).map("warn", warn).sink("out", VecSink())


MultiProcessRuntime(build, processes=1, start_method="METHOD").execute()
"""


@METHODS
@pytest.mark.nightly
def test_an_option_of_python_about_warnings_applies_in_workers(tmp_path: Path, method: str) -> None:
    program = STRICT.replace("METHOD", method)
    with started([sys.executable, "-W", "error", "-c", program], tmp_path / "strict", PYTHONPATH=str(ROOT)) as strict:
        strict.end(1)
        assert "OperatorError: operator 'warn' failed" in strict.errors
        assert "UserWarning: it is odd" in strict.errors
    with started([sys.executable, "-W", "ignore", "-c", program], tmp_path / "mild", PYTHONPATH=str(ROOT)) as mild:
        mild.end()
        assert mild.errors == ""


@pytest.mark.nightly
def test_a_program_that_shows_all_warnings_ends_without_one(tmp_path: Path) -> None:
    program = STRICT.replace("METHOD", "forkserver").replace('warnings.warn("it is odd")', "pass")
    with started([sys.executable, "-X", "dev", "-c", program], tmp_path, PYTHONPATH=str(ROOT)) as made:
        made.end()
        assert made.errors == ""


# Without worker processes


def test_user_code_runs_in_this_process_without_workers(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def act(value: int) -> int:
        print("printed", value)
        LOG.warning("logged %d", value)
        return os.getpid()

    lock = threading.Lock()
    assert run_map(act, range(2), processes=0) == [os.getpid()] * 2
    assert run_map(returning(lambda _: lock.locked()), processes=0) == [0], "nothing is pickled"
    assert capsys.readouterr().out == "printed 0\nprinted 1\n"
    assert [it.getMessage() for it in caplog.records if it.name == LOG.name] == ["logged 0", "logged 1"]
    assert os.getpid() not in run_map(act, range(2))
