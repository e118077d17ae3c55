"""Names of JSON objects that are unequal in Python, and one as text, are refused by whatever writes JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.connectors.codecs import JsonEncoder
from malflow.connectors.http import HttpSink
from malflow.connectors.json_names import check_names
from malflow.sinks import JsonLinesSink

TWICE: list[Any] = [
    {1: "a", "1": "b"},
    {None: 1, "null": 2},
    {True: 1, "true": 2},
    {1.5: 1, "1.5": 2},
    [{"a": ({2: 1, "2": 2},)}],
    {"a": {"b": [{1: 1, "1": 2}]}},
]


def of_codec(value: Any, _: Path) -> object:
    return JsonEncoder().encode(value)


def of_column(value: Any, _: Path) -> object:
    return JsonEncoder().encode_column([{"fine": 1}, value, "x"])


def of_http(value: Any, _: Path) -> object:
    return HttpSink("http://h")._body([value])


def of_lines(value: Any, folder: Path) -> object:
    sink: Any = JsonLinesSink(folder / "out.jsonl")
    try:
        return sink._line(value)
    finally:
        sink.close()


class _Pairs:
    def __init__(self, names: dict[Any, Any]) -> None:
        self.pairs = names.items()


@pytest.mark.parametrize("write", [of_codec, of_column, of_http, of_lines])
@pytest.mark.parametrize("value", TWICE, ids=repr)
def test_two_names_that_are_one_in_json_are_refused(value: Any, write: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"its names .* are one name in JSON; make one of them another text"):
        write(value, tmp_path)


def test_names_in_the_result_of_a_function_are_checked() -> None:
    with pytest.raises(ValueError, match="its names 1 and '1' are one name in JSON"):
        JsonEncoder(default=lambda it: dict(it.pairs)).encode([_Pairs({1: "a", "1": "b"})])


@pytest.mark.parametrize("write", [of_codec, of_column, of_http, of_lines])
def test_names_that_stay_apart_are_written(write: Callable[..., Any], tmp_path: Path) -> None:
    write({1: "a", 2: {"1": [{}, {None: 1}]}, "x": ()}, tmp_path)


_NAMES = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 2.0, "1", "null", "true", "0.5", "2.0", "x"])
)
_VALUES = st.recursive(
    st.integers() | st.text(max_size=2) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(_NAMES, inner, max_size=3)
    ),
)


@given(st.lists(_VALUES, max_size=4))
def test_values_are_refused_if_json_has_a_name_twice_and_only_then(values: list[Any]) -> None:
    seen: list[bool] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen.append(len(pairs) > len(dict(pairs)))

    json.loads(json.dumps(values), object_pairs_hook=note)
    try:
        check_names(values)
    except ValueError:
        assert any(seen)
    else:
        assert not any(seen)
