"""Texts, as the generated code works with them: positions count from 1, negative ones from the end."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

__all__ = [
    "all_replaced",
    "character",
    "decimal_text",
    "digest",
    "extracted",
    "first_byte",
    "found_in",
    "from_base64",
    "initcap",
    "joined",
    "json_exists",
    "json_path",
    "json_value",
    "located",
    "overlay",
    "padded",
    "parts_of",
    "place_of",
    "right",
    "split_part",
    "substring",
    "to_base64",
    "translated",
    "tried",
]


def tried(function: Any, value: Any) -> Any:
    """Return the result of a cast; None for a value that does not fit."""
    if value is None:
        return None
    try:
        return function(value)
    except (ValueError, ArithmeticError):
        return None


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """Return a part of a text; None if its length is negative, nothing if it begins before the text."""
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start else 0
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def right(text: str, length: int) -> str:
    """Return the end of a text."""
    return text[-length:] if length > 0 else ""


def padded(text: str, length: int, padding: str, *, left: bool) -> str | None:
    """Return a text with a length, filled up or cut; None if that can't be."""
    if length < 0 or not padding:
        return None
    missing = length - len(text)
    filling = (padding * (missing // len(padding) + 1))[:missing] if missing > 0 else ""
    return filling + text if left and missing > 0 else (text + filling)[:length]


def overlay(text: str, part: str, start: int, length: int | None = None) -> str:
    """Return a text with a part in the place of another; as it is if the place is outside."""
    if not 0 < start <= len(text):
        return text
    length = len(part) if length is None else length
    behind = text[start - 1 + length :] if length >= 0 else ""
    return text[: start - 1] + part + behind


def split_part(text: str, separator: str | int, index: int) -> str | None:
    """Return a part between separators, counted from 0; None if there are fewer."""
    separator = separator if isinstance(separator, str) else chr(separator)
    parts = text.split(separator) if text else []
    return parts[index] if 0 <= index < len(parts) else None


def located(part: str, text: str, start: int) -> int:
    """Return where a text has a part, not before a place; both count from 1, and 0 is nowhere."""
    return text.find(part, max(start - 1, 0)) + 1 if part else 1


def parts_of(text: str, separator: str) -> tuple[str, ...]:
    """Return the parts between separators; the characters if there is no separator."""
    return tuple(text.split(separator) if separator and text else text)


def joined(separator: str | None, *texts: str | None) -> str | None:
    """Return texts with a separator between them, without those that are NULL."""
    return None if separator is None else separator.join(it for it in texts if it is not None)


def translated(text: str, old: str, new: str) -> str:
    """Return a text with each character of one list replaced by its partner in another, or left out."""
    table: dict[int, str | None] = {}
    for at, it in enumerate(old):
        table.setdefault(ord(it), new[at] if at < len(new) else None)
    return text.translate(table)


_WORD = re.compile("[A-Za-z0-9]+")


def initcap(text: str) -> str:
    """Return a text with each of its words in lower case but for the first letter; words are of ASCII, as in Flink."""
    return _WORD.sub(lambda match: match[0].capitalize(), text)


def first_byte(text: str) -> int:
    """Return the first byte of a text in UTF-8, from -128 to 127; 0 if it is empty."""
    byte = text[:1].encode()[:1]
    return int.from_bytes(byte, signed=True)


def character(number: int) -> str:
    """Return the character of a number's last byte; nothing if it is negative."""
    return chr(number & 0xFF) if number >= 0 else ""


def digest(algorithm: str, text: str) -> str:
    """Return the digest of a text in hexadecimal digits."""
    return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()


def to_base64(text: str) -> str:
    """Return a text in Base64, of its bytes in UTF-8."""
    return base64.b64encode(text.encode()).decode()


def from_base64(text: str) -> str:
    """Return the text that is written in Base64.

    Raises:
        ValueError: if it is not Base64.
    """
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"{text!r} is not Base64") from None


def extracted(text: str, pattern: re.Pattern[str], group: int = 0) -> str | None:
    """Return a group of the first match; None if there is none."""
    match = pattern.search(text) if 0 <= group <= pattern.groups else None
    return None if match is None else match[group]


def all_replaced(text: str, pattern: re.Pattern[str], new: str) -> str:
    """Return a text with each match replaced; a dollar sign in the new text is itself, as in Flink."""
    return pattern.sub(lambda _: new, text)


def found_in(text: str, pattern: re.Pattern[str]) -> bool:
    """Whether a text has a match; an empty pattern has none, as in Flink."""
    return pattern.pattern != "" and pattern.search(text) is not None


def place_of(text: str, pattern: re.Pattern[str]) -> int:
    """Return the place of the first match, counted from 1; 0 if there is none."""
    match = pattern.search(text)
    return 0 if match is None else match.start() + 1


def decimal_text(number: Any) -> str:
    """Return the text of a DECIMAL with all of its digits."""
    return format(number if number else abs(number), "f")


_STEP = re.compile(r"""\.(\w+)|\['([^']*)'\]|\["([^"]*)"\]|\[(\d+)\]""")
_PATH = re.compile(rf"\s*(?:lax\s+)?\$((?:{_STEP.pattern})*)\s*")
_NOTHING = object()


@lru_cache(1_024)  # paths are literals
def json_path(path: str) -> tuple[str | int, ...]:
    """Return the steps of a path into JSON.

    Raises:
        ValueError: if it has others than `.name` and `[index]`.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError(f"the path {path!r} has other steps than .name and [index], as in '$.user.tags[0]'")
    return tuple(int(it[3]) if it[3] else it[0] or it[1] or it[2] for it in _STEP.findall(match[1]))


def _within_json(text: str, path: str) -> Any:
    """Return the value at a path; `_NOTHING` if there is none, or the text is not JSON."""
    try:
        found = json.loads(text, parse_float=lambda it: str(Decimal(it)), parse_int=str)
    except (ValueError, RecursionError):
        return _NOTHING
    for step in json_path(path):
        is_there = step in found if isinstance(found, dict) else isinstance(found, list) and step in range(len(found))
        if not is_there:
            return _NOTHING
        found = found[step]
    return found


def json_exists(text: str, path: str) -> bool:
    """Whether a path leads to something in JSON."""
    return _within_json(text, path) is not _NOTHING


def json_value(text: str, path: str) -> str | None:
    """Return the text of a plain value in JSON; None if there is none, or it is an object or a list."""
    found = _within_json(text, path)
    return found if isinstance(found, str) else str(found).lower() if isinstance(found, bool) else None
