"""The keywords in the overloads of methods: as many as the method that runs has."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from typing import Any, get_overloads

from malflow import KeyedStream, Table
from malflow.streams import keywords
from malflow.streams.operators.aggregation import Windowed
from malflow.streams.operators.late_windows import LateWindowed

CLASSES = (KeyedStream, Table, Windowed, LateWindowed)


def keywords_of(function: Any) -> set[str]:
    """Return the names of the keywords of a method or an overload, those of its ``**more`` among them."""
    names = set()
    for it in signature(function).parameters.values():
        if it.kind is Parameter.KEYWORD_ONLY:
            names.add(it.name)
        elif it.kind is Parameter.VAR_KEYWORD:
            found = re.match(r"Unpack\[(\w+)", it.annotation)
            assert found
            names |= {*vars(keywords)[found[1]].__annotations__}
    return names


def test_overloads_have_together_the_keywords_of_their_method() -> None:
    methods = {getattr(cls, name) for cls in CLASSES for name in dir(cls) if not name.startswith("_")}
    found = {it.__qualname__: (it, get_overloads(it)) for it in methods if callable(it) and get_overloads(it)}
    assert {"AggregateOperators.aggregate", "CallingOperators.map_async", "Table.join"} <= found.keys()
    for method, overloads in found.values():
        assert keywords_of(method) == set().union(*map(keywords_of, overloads)), method
