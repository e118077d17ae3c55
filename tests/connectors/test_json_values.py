"""JSON values parsed together, beside `json.loads` of each text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow.connectors import json_values as parsing
from malflow.connectors.json_values import json_value, json_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.builds(
    "{}{}{}".format, st.sampled_from(["", " ", "\t\r"]), VALUES.map(json.dumps), st.sampled_from(["", " \n"])
)
MUTATED = st.builds(
    lambda text, cuts: (
        "".join(
            text[:at] + new + text[at + len(new) - 1 :] if new else text[:at] + text[at + 1 :] for at, new in cuts[:1]
        )
        or text
    ),
    VALUES.map(json.dumps),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["", *'{}[]",:01.eE+-tNI\\\x00\x1f\x7fé'])), max_size=1),
)
"""JSON with a character too many, too few, or another one."""

CUT = st.text(alphabet='[]{}",:1a \\', max_size=8)
"""Pieces of JSON, which could form values together with others."""


@pytest.fixture(params=["json", "msgspec"], autouse=True, scope="module")
def parser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Parse with msgspec, and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "json":
            patch.setattr(parsing, "_decoder", lambda: None)
        yield


def alone(texts: list[str]) -> Any:
    """Return what `json.loads` makes of the texts: values as they are written, or the first error."""
    try:
        return [repr(json.loads(text)) for text in texts]
    except ValueError as error:
        return str(error)


def together(texts: list[str]) -> Any:
    try:
        return [repr(value) for value in json_values(texts)]
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@given(st.lists(TEXTS | CUT | MUTATED, max_size=6))
@example(["[1", "2]"])
@example(["[1", "2],3"])
@example(["1]", "[2"])
@example(['"a', 'b"'])
@example(['{"a":[{}', "{}]},{}"])
@example(['"a\\', '"'])
@example(["1", ""])
@example(
    ["NaN", "-Infinity", "1e400", '"\\ud800"', "-0", "-0.0", "1E5", '{"a": 1, "a": 2}', str(10**30), "[01]", "\ufeff1"]
)
def test_each_text_has_the_value_that_it_has_alone(texts: list[str]) -> None:
    assert together(texts) == alone(texts)


def test_a_bad_text_among_many_is_found() -> None:
    texts = [f'{{"n": {number}}}' for number in range(1_000)]
    assert json_values(texts) == [{"n": number} for number in range(1_000)]
    with pytest.raises(json.JSONDecodeError, match="column 3"):
        json_values([*texts[:700], "[1", "2]", *texts[700:]])


def test_large_texts_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_decoder", lambda: None)
    joined: list[int] = []
    together = parsing._together
    monkeypatch.setattr(parsing, "_together", lambda texts: joined.append(len(texts)) or together(texts))  # type: ignore[func-returns-value]
    texts = [json.dumps("x" * (1 << 20))] * 3 + ["1"] * 300
    assert json_values(texts) == [json.loads(text) for text in texts]
    assert joined == [1, 1, 1, 256, 44]


def test_values_may_equal_the_mark() -> None:
    texts = [f'"{parsing._MARK}"', "1", f'["{parsing._MARK}"]']
    assert json_values(texts) == [parsing._MARK, 1, [parsing._MARK]]


def test_names_of_fields_are_one_object() -> None:
    first, second = json_values(['{"town": 1}', '{"town": 2}'])
    assert next(iter(first)) is next(iter(second))


def test_a_value_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(RecursionError):
        json_value("[" * 100_000)
    with pytest.raises(RecursionError):
        json_values(["1", "[" * 100_000])
