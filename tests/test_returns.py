"""Functions that forget to return a value, and functions that only look like it."""

import linecache
import operator
from pathlib import Path
from typing import Any

import pytest

from malflow.callables import may_end_without_return, returns_nothing

FORGETFUL = """
import functools

def calls(value): print(value)
def counts(value):
    value += 1
def passes(value): pass
def is_a_stub(value): ...
def has_a_docstring(value):
    "What it does."
def branches(value):
    if value:
        print(1)
    else:
        print(2)
def opens(value):
    with value:
        print(value)
def has_a_function_that_returns(value):
    def inner():
        return 1
    inner()

def lost(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        function(*arguments)
    return wrapper

@lost
def in_a_wrapper_that_loses_it(value):
    return value

class Forgetful:
    def __call__(self, value):
        self.seen = value
    def method(self, value):
        self.seen = value
    @staticmethod
    def static(value):
        print(value)
    @classmethod
    def of_class(cls, value):
        print(value)

with_an_argument = functools.partial(calls, 1)
object_to_call, method, static, of_class = Forgetful(), Forgetful().method, Forgetful.static, Forgetful.of_class
"""

FORGETFUL_BY_SOURCE = """
def leaves_early(value):
    if value:
        return
    print(value)
def loops(value):
    for one in value:
        print(one)
def searches(value):
    while True:
        if value():
            break
"""
"""What can be told by the source alone."""

INNOCENT = """
import functools
from typing import NoReturn

def returns(value): return value
def returns_none(value): return None
def returns_none_at_last(value): print(value); return None
def returns_none_on_a_line(value):
    print(value)
    return None
def returns_none_somewhere(value):
    if value: return None
    raise ValueError
def returns_none_in_a_case(value):
    match value:
        case 1: print(1)
        case _: return None
def chooses(value): return value.size if value else None
def chooses_none(value): return None if value else value.size
def always_none(value): return value and None
def returns_in_a_try(value):
    try:
        return value()
    except OSError:
        print("it failed")
def returns_in_a_with(value):
    with value:
        return 1
def always_raises(value): raise NotImplementedError
def never_ends(value):
    while True:
        print(value)
def is_said_not_to_end(value) -> NoReturn: always_raises(value)
def is_said_in_a_text(value) -> "NoReturn": always_raises(value)
def yields(value): yield value
async def runs_later(value): print(value)

def kept(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

@kept
def in_a_wrapper_that_keeps_it(value): print(value)

@functools.lru_cache
def in_a_cache(value): print(value)

class Class:
    def __call__(self, value):
        return value
    def method(self, value):
        return value

with_an_argument = functools.partial(returns, 1)
none, calls, object_to_call, method = lambda value: None, lambda value: print(value), Class(), Class().method
"""

MIXED = """
def ends_on_one_path(value):
    if value > 1:
        return value
def ends_after_a_failure(value):
    try:
        return value()
    except OSError:
        print("it failed")
"""

WHOLE = """
def ends_by_a_bare_return(value):
    if value > 1:
        return value
    return
def returns_on_each_path(value):
    if value > 1:
        return value
    return None
def returns_nothing(value): print(value)
"""

_HELPERS = {"functools", "NoReturn", "lost", "kept", "Forgetful"}


def functions_in(text: str, file: Path | None) -> dict[str, Any]:
    """Return what a program defines, read from a file, or without one as in an interactive session."""
    if file is not None:
        file.write_text(text)
        linecache.checkcache(str(file))
    names: dict[str, Any] = {}
    exec(compile(text, "<no file>" if file is None else file, "exec"), names)  # noqa: S102 - as an interpreter does
    return {name: it for name, it in names.items() if name not in _HELPERS and not name.startswith("__")}


def test_a_function_without_a_return_is_found(tmp_path: Path) -> None:
    functions = functions_in(FORGETFUL + FORGETFUL_BY_SOURCE, tmp_path / "flow.py")
    assert [name for name, it in functions.items() if not returns_nothing(it)] == []


def test_a_function_that_may_return_something_is_not(tmp_path: Path) -> None:
    functions = functions_in(INNOCENT, tmp_path / "flow.py")
    assert [name for name, it in functions.items() if returns_nothing(it)] == []


@pytest.mark.parametrize("thing", [operator.itemgetter(0), print, "".join, 3, None, list])
def test_objects_without_code_of_python_are_trusted(thing: Any) -> None:
    assert not returns_nothing(thing)
    assert not may_end_without_return(thing)


def test_without_source_what_is_certain_is_found() -> None:
    functions = functions_in(INNOCENT, None)
    assert [name for name, it in functions.items() if returns_nothing(it)] == []
    found = [name for name, it in functions_in(FORGETFUL, None).items() if returns_nothing(it)]
    assert {"calls", "counts", "branches", "opens", "in_a_wrapper_that_loses_it", "method", "static"} <= set(found)


def test_source_that_changed_since_it_was_read_is_no_source(tmp_path: Path) -> None:
    functions = functions_in(INNOCENT, tmp_path / "flow.py")
    (tmp_path / "flow.py").write_text("\n\ndef other(value):\n    not Python")
    linecache.checkcache(str(tmp_path / "flow.py"))
    assert [name for name, it in functions.items() if returns_nothing(it)] == []


def test_a_path_without_a_return_is_found_beside_one_with_a_value(tmp_path: Path) -> None:
    mixed, whole = functions_in(MIXED, tmp_path / "mixed.py"), functions_in(WHOLE, tmp_path / "whole.py")
    assert all(map(may_end_without_return, mixed.values()))
    assert not any(map(may_end_without_return, whole.values()))
    assert not any(map(may_end_without_return, functions_in(MIXED, None).values()))
