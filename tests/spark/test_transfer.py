"""Errors for objects that can't be pickled or unpickled, and the reasons extracted from Spark's errors."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from malflow.errors import OperatorError
from malflow.runtime.spark.session.java import spark_message
from malflow.runtime.spark.session.session import check_spark
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.runtime.transport.pickling import NotPicklable, dump_columns, load_columns, load_states
from malflow.runtime.transport.states import dumps_state
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.files.data_file import encode_delta
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta


class NoGo:
    def __reduce__(self) -> Any:
        raise ValueError("can't go")


def come_back() -> Any:
    raise ValueError("can't come back")


class NoComeBack:
    def __reduce__(self) -> Any:
        return come_back, ()


class NoState:
    def __getstate__(self) -> Any:
        return 1

    def __setstate__(self, state: Any) -> None:
        raise ValueError(f"can't come back from {state}")


class Needy:
    def __new__(cls, need: int = 0) -> Needy:
        if need == 0:
            raise ValueError("can't come back without")
        return super().__new__(cls)


def columns(value: Any, at: int = 3, size: int = 2_000) -> tuple[Any, ...]:
    """Return columns with one value replaced."""
    values: list[Any] = [float(number) for number in range(size)]
    values[at] = value
    return [f"k{number}" for number in range(size)], values, list(range(size)), ()


class Ends:
    """Raises an exception that ends a process, when it is pickled or unpickled."""

    def __init__(self, kind: type[BaseException], comes: bool) -> None:
        self.kind = kind
        self.comes = comes

    def __reduce__(self) -> Any:
        if self.comes:
            return end, (self.kind,)
        raise self.kind


def end(kind: type[BaseException]) -> Any:
    raise kind


ENDING = [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration]


@pytest.mark.fault("I15")
@pytest.mark.parametrize("kind", ENDING)
def test_end_of_a_process_is_an_operator_error(kind: type[BaseException]) -> None:
    with pytest.raises(NotPicklable, match=rf"operator 'x' failed at key 'k3': its value .*sent .*{kind.__name__}"):
        dump_columns(columns(Ends(kind, comes=False)), "x")
    data = dump_columns(columns(Ends(kind, comes=True)), "x")
    with pytest.raises(NotPicklable, match=rf"operator 'x' failed at key 'k3': its value .*read .*{kind.__name__}"):
        load_columns(data, "x")
    states = pickle.dumps({"sum": {"a": 1, "b": Ends(kind, comes=True)}})
    with pytest.raises(NotPicklable, match=rf"operator 'sum' failed at key 'b': its state .*{kind.__name__}"):
        load_states(states, lambda found: found)


@pytest.mark.fault("I15")
@pytest.mark.parametrize("kind", ENDING)
def test_a_state_that_ends_the_process_is_named_by_a_snapshot(kind: type[BaseException]) -> None:
    delta = Delta({key: Ends(kind, comes=False) if key == 5 else key for key in range(2_000)})
    with pytest.raises(StateNotSerializable) as caught:
        list(encode_delta(PickleCodec(), delta, BaseException))
    assert (caught.value.key, caught.value.reason) == (5, f"{kind.__name__}: ")
    assert type(caught.value.__cause__) is kind


@pytest.mark.fault("I3")
def test_lack_of_memory_is_no_fault_of_a_value_and_is_tried_again() -> None:
    """Only a `NotPicklable` is not."""
    sent, read = Ends(MemoryError, comes=False), dump_columns(columns(Ends(MemoryError, comes=True)), "x")
    deeds: list[tuple[Callable[[], object], str]] = [
        (lambda: dump_columns(columns(sent), "x"), "send its records to another process"),
        (lambda: load_columns(read, "x"), "read records of another process"),
        (lambda: dumps_state("x", {"a": 1, "b": sent}), "write its states"),
    ]
    for deed, text in deeds:
        with pytest.raises(
            OperatorError, match=f"operator 'x' failed: a process has too little memory to {text}; "
        ) as it:
            deed()
        assert type(it.value) is OperatorError
        assert it.value.operator == "x"
    with pytest.raises(MemoryError):
        load_states(pickle.dumps({"x": {"b": Ends(MemoryError, comes=True)}}), lambda found: found)


@pytest.mark.spark
def test_an_error_travels_without_the_record_that_can_not() -> None:
    check_spark()
    error = OperatorError("it failed", operator="x", record=("k", Ends(SystemExit, comes=False), None))
    error.__cause__ = SystemExit()
    found = loaded_error(dumps_error(error))
    assert isinstance(found, OperatorError)
    assert (found.operator, found.key, type(found.__cause__)) == ("x", "k", SystemExit)


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [it], lambda it: {"a": (1, it)}])
def test_a_value_that_can_not_be_pickled_is_named(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(
        NotPicklable, match=r"operator 'x' failed at key 'k3': its value .*ValueError: can't go"
    ) as info:
        dump_columns(columns(wrap(NoGo())), "x")
    assert (info.value.operator, info.value.key, info.value.timestamp) == ("x", "k3", 3)


def test_a_generator_is_named_with_its_type() -> None:
    with pytest.raises(
        NotPicklable, match=r"its value .* of type generator can't be sent to another process: TypeError"
    ):
        dump_columns(columns(it for it in [1]), "x")


@pytest.mark.fault("I15")
@pytest.mark.parametrize("thing", [NoComeBack(), NoState(), Needy(1)])
@pytest.mark.parametrize("at", [0, 3, 1_500])
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [it, 1], lambda it: {"a": (1, it)}])
def test_a_value_that_can_not_be_read_again_is_named(thing: Any, at: int, wrap: Callable[[Any], Any]) -> None:
    data = dump_columns(columns(wrap(thing), at), "x")
    with pytest.raises(NotPicklable, match=rf"operator 'x' failed at key 'k{at}': its value .*can't come back"):
        load_columns(data, "x")


def test_a_key_or_a_timestamp_that_can_not_be_read_again_is_named() -> None:
    for what, facts in (("key", ([NoState()], [1], [1])), ("timestamp", (["k"], [1], [NoState()]))):
        data = dump_columns((*facts, ()), "x")
        with pytest.raises(
            NotPicklable, match=f"its {what} <NoState> of type NoState can't be read in another process"
        ):
            load_columns(data, "x")


def test_a_state_that_can_not_be_read_again_is_named() -> None:
    data = pickle.dumps({"sum": {"a": 1, "b": NoState()}})
    with pytest.raises(NotPicklable, match=r"operator 'sum' failed at key 'b': its state .* of type NoState") as info:
        load_states(data, lambda found: found)
    assert info.value.key == "b"


def test_a_class_of_a_module_that_lacks_says_how_to_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)
    here = type("Here", (), {"__module__": "only_here"})
    vars(module)["Here"] = here
    data = dump_columns(columns(here()), "x")
    monkeypatch.delitem(sys.modules, "only_here")
    with pytest.raises(NotPicklable, match=r"key 'k3'.* of type Here .*No module named 'only_here'.*--py-files"):
        load_columns(data, "x")


PLACES = '  File "x.py", line 1, in f\n    g()\n    ~^^\n'
TRACE = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"[PYTHON] It failed: {TRACE}{PLACES}ValueError: why\n\nSQLSTATE: 38000\n=== Streaming Query ===\nx",
         "[PYTHON] It failed: ValueError: why"),
        (f"It failed:\n{TRACE}{PLACES}KeyError: 1\n", "It failed: KeyError: 1"),
        (f"Aborted: Python: {TRACE}{PLACES}A: b\n\nThe above exception was the direct cause of ...\n\n{TRACE}{PLACES}"
         "ValueError: two\nlines\n\n\tat org.x(y.scala)\n\nDriver stacktrace:",
         "Aborted: Python: ValueError: two lines"),
        ("one\ntwo\n\tat org.x", "one two"),
        ("one", "one"),
        ("", "Exception"),
        (f"{TRACE}{PLACES}ValueError: bare", "ValueError: bare"),
        ("Aborted\n\tat org.x\nSuppressed: java.io.IOException: No space left on device\n\tat org.x",
         "Aborted Suppressed: java.io.IOException: No space left on device; free some space in Spark's folder for "
         "temporary files: spark.local.dir or, on the machines of a cluster, SPARK_LOCAL_DIRS"),
        (f"{TRACE}{PLACES}MemoryError\n",
         "MemoryError; a process of Python ran out of memory: raise spark.executor.pyspark.memory if it is set, use "
         "more workers, or keep less in a state"),
    ],
)  # fmt: skip
def test_message_of_spark_keeps_the_reason(text: str, told: str) -> None:
    assert spark_message(Exception(text)) == told
    assert not re.search("SQLSTATE|Traceback", told)


def test_an_error_that_can_not_be_told_is_named_by_its_class() -> None:
    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert spark_message(Gone()) == "Gone"
