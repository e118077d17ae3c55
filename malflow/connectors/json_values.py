"""Parse texts of one JSON value each as the `json` module does, in half its time, or a quarter with msgspec.

With msgspec, of the extra `json`, it parses what it takes. It refuses some of what `json` takes: NaN, numbers that are
too large for a float, halves of surrogate pairs. So `json` decides about all that msgspec refuses. What both take is
the same to the last bit.

Without it, some texts at a time are joined to an array and parsed in one call, in which equal names of fields become
one object: the records are smaller, and faster to read, to pickle and to release. Texts that are not JSON could form an
array with their neighbours, such as ``[1`` and ``2]``. So a random text, which no input can contain on purpose,
separates them in the array. If every second item is this text, no value has swallowed it; otherwise, each text is
parsed alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from secrets import token_hex
from typing import Any

__all__ = ["json_value", "json_values"]

_json = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = json.scanner.make_scanner(_json)  # type: ignore[attr-defined] # no stub
_SPACE = " \t\n\r"
_TOGETHER = 256
"""The maximum number of texts that are parsed in one call."""

_CHARACTERS = 1 << 20
"""About how many characters are joined, judging by the first text: large ones gain nothing, and would be copied."""

_MARK = f"m{token_hex(16)}"  # without its quotes, it is not JSON
_BETWEEN = f',"{_MARK}",'


def json_value(text: str) -> Any:
    """Return the value of a text.

    Raises:
        ValueError: if the text is not one JSON value.
        RecursionError: if the value is nested too deeply.
    """
    (value,) = _one_by_one((text,))
    return value


def json_values(texts: Sequence[str]) -> list[Any]:
    """Return the value of each text; see `json_value`.

    >>> json_values(['{"n": 1}', " [2] "])
    [{'n': 1}, [2]]
    """
    decoded = _decoded(texts)
    if decoded is not None:
        return decoded
    values: list[Any] = []
    start = 0
    while start < len(texts):
        count = max(1, min(_TOGETHER, _CHARACTERS // (len(texts[start]) + 1)))
        some = texts[start : start + count]
        start += count
        found = _together(some)
        values += _one_by_one(some) if found is None else found
    return values


def _decoded(texts: Sequence[str]) -> list[Any] | None:
    """Return the values that msgspec reads; None without it, or if it refuses a text, about which `json` decides."""
    decode = _decoder()
    try:
        return None if decode is None else list(map(decode, texts))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - its errors have no base in Python
        return None


@cache
def _decoder() -> Callable[[str], Any] | None:
    """Return the parser of msgspec; None if it is not installed."""
    try:
        import msgspec  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    decode: Callable[[str], Any] = msgspec.json.Decoder().decode
    return decode


def _together(texts: Sequence[str]) -> list[Any] | None:
    """Return the values of some texts; None if one is not JSON, or the texts must be parsed one by one."""
    text = f"[{_BETWEEN.join(texts)}]"
    try:
        found, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration):
        return None
    is_separated = len(found) == 2 * len(texts) - 1 and found[1::2].count(_MARK) == len(texts) - 1
    return found[::2] if is_separated and end == len(text) else None


def _one_by_one(texts: Sequence[str]) -> Iterator[Any]:
    for text in texts:
        try:
            value, end = _scan(text, 0)
        except StopIteration:
            value, end = _json.decode(text), len(text)  # skips leading white space, or raises with the position
        if end != len(text) and text[end:].strip(_SPACE):
            _json.decode(text)  # raises
        yield value
