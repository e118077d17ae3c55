"""Names of JSON objects are text: names that are unequal in Python, such as 1 and "1", must not become one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from malflow.words import short_repr

__all__ = ["check_names"]

_SCALARS = frozenset({str, int, float, bool, type(None)})


def check_names(values: Sequence[Any]) -> None:
    """Check that no two names of an object in these values are one in JSON; text alone costs next to nothing.

    Raises:
        ValueError: if two names are; it says which.

    >>> check_names([{"a": {2: "x", 3: "y"}}])
    >>> check_names([{1: "x", "1": "y"}])
    Traceback (most recent call last):
    ValueError: its names 1 and '1' are one name in JSON; make one of them another text
    """
    inner = values
    while inner:
        kinds = set(map(type, inner))
        if _SCALARS.issuperset(kinds):
            return
        objects = inner if kinds == {dict} else [it for it in inner if isinstance(it, dict)]
        _check_objects(objects)
        others = () if objects is inner else [it for it in inner if isinstance(it, (list, tuple))]
        parts = chain(chain.from_iterable(map(dict.values, objects)), chain.from_iterable(others))
        if not others and _SCALARS.issuperset(map(type, chain.from_iterable(map(dict.values, objects)))):
            return
        inner = [it for it in parts if isinstance(it, (dict, list, tuple))]


def _check_objects(objects: Sequence[dict[Any, Any]]) -> None:
    try:
        "".join(chain.from_iterable(objects))
    except TypeError:  # some name is no text
        for one in objects:
            _check_object(one)


def _check_object(names: dict[Any, Any]) -> None:
    seen: dict[str, Any] = {}
    for name in names:
        try:
            [text] = json.loads(json.dumps({name: None}))
        except (TypeError, ValueError):
            continue  # the encoder says what is wrong
        if text in seen:
            raise ValueError(
                f"its names {short_repr(seen[text])} and {short_repr(name)} are one name in JSON; make one of them "
                "another text"
            )
        seen[text] = name
