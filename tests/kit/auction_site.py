"""The events of Nexmark: people who sell and bid at an auction site, in the shape of its benchmark.

Of 50 events one is a person, three are auctions and 46 are bids. Half of the bids go to one auction of the last
hundred, three quarters come from one bidder of the last hundred. Rows come up to four seconds out of order, and one in
a hundred later than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from random import Random
from typing import Any

__all__ = ["count_char", "digest", "events", "json_lines", "span_of"]

Event = tuple[int, tuple[Any, ...] | None, tuple[Any, ...] | None, tuple[Any, ...] | None]
"""The kind of an event, and its person, auction or bid: the one of its kind, and None for both others."""

_FIRST_ID = 1_000
_START = 1_772_391_540_000
"""1 March 2026, 18:59, in milliseconds: the hour, and so a column of a query, changes among the first events."""

_STEP = 4
"""Milliseconds from an event to the next one."""

_LEAP, _HOUR = 10_000, 3_600_000
"""After so many events the site is closed for an hour: sessions end, and rows come that are an hour late."""

_BOUND = 4_000
"""Milliseconds by which rows are out of order at most, but for those that are late."""

_TEXT = "".join(chr(97 + number * number * 7 % 26) if number % 9 else " " for number in range(4_096))
"""Texts are cut from it: making each of letters would take most of the time."""

_NAMES = ("Ada", "Blaise", "Carl", "Dora", "Emmy", "Fred", "Grace", "Hedy", "Ivan", "Joan", "Kurt")
_CITIES = (("Phoenix", "AZ"), ("Los Angeles", "CA"), ("Boise", "ID"), ("Portland", "OR"), ("Seattle", "WA"))
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def events(count: int, seed: int = 1) -> Iterator[Event]:
    """Yield events in order of arrival; the first ones are the same for any count."""
    uniform = Random(seed).random  # noqa: S311 - events; no other method gives the same in each version of Python
    for number in range(count):
        block, place = divmod(number, 50)
        at = _START + number * _STEP + number // _LEAP * _HOUR - _delay(uniform)
        start, length = int(uniform() * 4_000), 20 + int(uniform() * 40)
        extra = _TEXT[start : start + length]
        if place == 0:
            yield 0, _person(block, at, extra, uniform), None, None
        elif place <= 3:
            yield 1, None, _auction(block * 3 + place - 1, block, at, extra, uniform), None
        else:
            yield 2, None, None, _bid(block * 3 + 2, block, at, extra, uniform)


def _delay(uniform: Any) -> int:
    """Return how late a row comes, in milliseconds."""
    if uniform() < 0.01:
        return _BOUND + int(uniform() * 5 * _BOUND)
    return int(uniform() * uniform() * _BOUND)


def _person(block: int, at: int, extra: str, uniform: Any) -> tuple[Any, ...]:
    name = f"{_NAMES[int(uniform() * len(_NAMES))]} {_NAMES[int(uniform() * len(_NAMES))]}"
    city, state = _CITIES[int(uniform() * len(_CITIES))]
    card = " ".join(f"{int(uniform() * 10_000):04}" for _ in range(4))
    return _FIRST_ID + block, name, f"{name.replace(' ', '.')}@example.com", card, city, state, at, extra


def _auction(auction: int, block: int, at: int, extra: str, uniform: Any) -> tuple[Any, ...]:
    seller = block // 10 * 10 if uniform() < 0.75 else block - int(uniform() * min(block + 1, 500))
    first, item = _price(uniform), f"item {auction % 97}"
    expires = at + 1_000 + int(uniform() * 20_000)
    made = (item, f"{item}, as new", first, first + _price(uniform), at, expires, _FIRST_ID + seller)
    return (_FIRST_ID + auction, *made, 10 + int(uniform() * 5), extra)


def _bid(last: int, block: int, at: int, extra: str, uniform: Any) -> tuple[Any, ...]:
    auction = last // 100 * 100 if uniform() < 0.5 else last - int(uniform() * min(last + 1, 100))
    bidder = block // 100 * 100 if uniform() < 0.75 else block - int(uniform() * min(block + 1, 500))
    path = f"https://auctions.example.com/row-{block % 13}/hall-{auction % 7}/lots"
    chosen = int(uniform() * 8)
    if chosen < len(_CHANNELS):
        return (_FIRST_ID + auction, _FIRST_ID + bidder, _price(uniform), _CHANNELS[chosen], f"{path}?q=1", at, extra)
    number = int(uniform() * 10_000)
    end = f"&channel_id={number}" if chosen < 7 else ""
    return _FIRST_ID + auction, _FIRST_ID + bidder, _price(uniform), f"channel-{number}", f"{path}?q=1{end}", at, extra


def _price(uniform: Any) -> int:
    """Return a price in cents: each power of ten has as many."""
    digits: int = 100 + int(uniform() * 900)
    return digits * int(10 ** int(uniform() * 6))


def json_lines(made: Iterable[Event]) -> Iterator[str]:
    """Yield events as lines of JSON: arrays, with times in milliseconds."""
    for event in made:
        yield json.dumps(event, separators=(",", ":")) + "\n"


def digest(lines: Iterable[str]) -> str:
    """Return the hash of texts in their order."""
    found = sha256()
    for line in lines:
        found.update(line.encode())
    return found.hexdigest()[:24]


def count_char(text: str, char: str) -> int:
    """Return how often a character is in a text; the queries call it."""
    return text.count(char)


def span_of(count: int) -> int:
    """Return the milliseconds from the first of so many events to those that could follow them."""
    return count * _STEP + -(-count // _LEAP) * _HOUR
