"""Parse texts of one JSON value each as the `json` module does, without its two searches for white space."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["json_value", "json_values"]

_json = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = json.scanner.make_scanner(_json)  # type: ignore[attr-defined] # no stub
_SPACE = " \t\n\r"


def json_value(text: str) -> Any:
    """Return the value of a text.

    Raises:
        ValueError: if the text is not one JSON value.
        RecursionError: if the value is nested too deeply.
    """
    (value,) = json_values((text,))
    return value


def json_values(texts: Iterable[str]) -> list[Any]:
    """Return the value of each text; see `json_value`.

    >>> json_values(['{"n": 1}', " [2] "])
    [{'n': 1}, [2]]
    """
    values = []
    scan = _scan
    for text in texts:
        try:
            value, end = scan(text, 0)
        except StopIteration:
            value, end = _json.decode(text), len(text)  # skips leading white space, or raises with the position
        if end != len(text) and text[end:].strip(_SPACE):
            _json.decode(text)  # raises
        values.append(value)
    return values
