"""Partitioners, which map keys to workers, and the stable hash beneath them.

The default partitioner maps a key to one of 32,768 slots by its hash, and a slot to a worker by a table.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from datetime import MAXYEAR, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from numbers import Complex, Integral, Rational
from struct import Struct
from threading import Event
from typing import Any
from uuid import UUID

from malflow.message import NoKey
from malflow.words import short_repr

__all__ = [
    "FORMER_PLACEMENTS",
    "PLACEMENT",
    "SLOTS",
    "STABLE_KEYS_MET",
    "Partitioner",
    "check_key",
    "former_select",
    "index_select",
    "part_select",
    "rendezvous_select",
    "slot_of",
    "slot_owners",
    "stable_hash",
]

Partitioner = Callable[[Any, Sequence[int]], int]
"""``(key, workers) -> worker``: deterministic; returns one of `workers`."""

PLAIN_TYPES = frozenset({int, str, bool, bytes, type(NoKey)})
"""Types whose values are all valid keys."""

STABLE_KEYS_MET = Event()
"""Set once this process has seen a key with a `__stable_key__`, which may equal a key on another worker."""

SLOTS = 1 << 15
"""The number of slots, and so the highest number of workers. It is part of the format of state."""

_LONGEST = 10_000
"""Maximum digits before or after the point of a Decimal key."""

_LANES = 8
"""The scores of workers per digest: 64 bytes of BLAKE2b hold eight of 8 bytes. Keys in older snapshots were placed with
it, so it can't change."""

_EIGHT_SCORES = Struct("<8Q")
_PERSON = b"malflow.worker"
_FIRST_BLOCK = blake2b(salt=bytes(8), person=_PERSON)
_new_hash = blake2b(digest_size=8, person=b"malflow.key").copy  # takes half as long as creating one
_HIGH_BITS = SLOTS - 1 & ~0xFF
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - subtracted from wall-clock times
_DAYS, _SECONDS, _MICROSECONDS = (vars(timedelta)[name].__get__ for name in ("days", "seconds", "microseconds"))
_OF_CONTENTS = (str, bytes, tuple, frozenset)
_OF_VALUES = (int, float, complex, Decimal, Fraction, date, time, timedelta, UUID)


PLACEMENT = "malflow.partitioners.rendezvous_select@4"
"""The name of `rendezvous_select`'s placement in snapshots; it changes whenever any key is placed differently."""

FORMER_PLACEMENTS = (
    "malflow.partitioners.rendezvous_select",
    "malflow.partitioners.rendezvous_select@2",
    "malflow.partitioners.rendezvous_select@3",
)
"""Earlier names of the placement: when zoned pandas Timestamps and numpy datetimes were not placed like datetimes; when
the place of an enum member depended on the enum's module, which differs if a script is imported; and when there were no
slots, see `former_select`.
"""


def rendezvous_select(key: Any, workers: Sequence[int]) -> int:
    """Select a worker by the slot of the key: some bits of its stable hash.

    All processes find the same worker without asking each other: this is the rendezvous. It takes the same time with
    any number of workers. Each worker has an equal number of slots, within one; when workers are added or removed, a
    minimal number of keys moves. Equal keys (``1 == 1.0 == True``) map to the same worker in every process, on every
    machine, in every version.

    Args:
        key: the key.
        workers: the numbers of the workers, in any order, 32,768 at most.

    Raises:
        TypeError: if the key has no stable hash.
        ValueError: if there are no workers or too many, or the key is NaN.

    >>> rendezvous_select("carrier", range(1))
    0
    """
    number = slot_owners(len(workers))[slot_of(key)]
    return workers[number] if type(workers) is range else sorted(workers)[number]


def slot_of(key: Any) -> int:
    """Return the slot of a key, ``(stable_hash(key) >> 8) % SLOTS``.

    Raises:
        TypeError: if the key has no stable hash.
        ValueError: if the key is NaN.
    """
    kind = type(key)
    if kind is str:
        encoded = b"s" + key.encode("utf-8", "surrogatepass")
    elif kind is int:
        encoded = b"i" + key.to_bytes(key.bit_length() // 8 + 1, "little", signed=True)
    else:
        encoded = _encode(key)
    digest = _new_hash()
    digest.update(encoded)
    found = digest.digest()
    return found[1] | (found[2] << 8) & _HIGH_BITS


@lru_cache(maxsize=64)
def slot_owners(workers: int) -> Sequence[int]:
    """Return the worker, from 0, of each slot.

    The table for one more worker is that of the others, of which each in turn that has the most slots gives its last
    one, until the new worker has its share. So all have equal numbers of slots, within one, and none moves between
    workers that stay.

    Raises:
        ValueError: if there are no workers, or more than slots.
    """
    if not 1 <= workers <= SLOTS:
        reason = "there are no workers to select from" if workers < 1 else f"there are more than {SLOTS:,} workers"
        raise ValueError(reason)
    held = [list(range(SLOTS))]
    givers = deque(held)  # in their turn: those with the most slots, then those with one less
    for others in range(1, workers):
        taken: list[int] = []
        for _ in range(SLOTS // (others + 1)):
            taken.append(givers[0].pop())
            givers.rotate(-1)
        held.append(taken)
        givers.append(taken)
    owners = array("H", bytes(2 * SLOTS))
    for worker, slots in enumerate(held):
        for slot in slots:
            owners[slot] = worker
    return owners


def part_select(key: Any, workers: Sequence[int]) -> int:
    """Stand for the placement of a stream that is keyed by the parts of its source.

    The parts are dealt to workers: see `malflow.engine.parts.dealing.deal`. A run replaces this function by its
    `malflow.engine.parts.places.PartPlaces`. By itself it selects a worker as `rendezvous_select` does.
    """
    return rendezvous_select(key, workers)


def former_select(key: Any, workers: Sequence[int]) -> int:
    """Select the worker that `rendezvous_select` selected before there were slots: that of the greatest hash.

    Keys in older snapshots were placed by it: rendezvous hashing after Thaler and Ravishankar, "Using name-based
    mappings to increase hit rates", 1998. One 64-byte BLAKE2b digest of the key holds the scores of eight workers.

    Raises:
        TypeError: if the key has no stable hash.
        ValueError: if there are no workers, or the key is NaN.
    """
    encoded = _encode(key)
    first = _scores(encoded, 0)
    others: dict[int, tuple[int, ...]] = {}
    chosen, best = None, -1
    for worker in workers:
        if 0 <= worker < _LANES:
            score = first[worker]
        else:
            block, lane = divmod(worker, _LANES)
            if block not in others:
                others[block] = _scores(encoded, block)
            score = others[block][lane]
        if score > best:
            chosen, best = worker, score
    if chosen is None:
        raise ValueError("there are no workers to select from")
    return chosen


def _scores(encoded: bytes, block: int) -> tuple[int, ...]:
    """Return the scores of eight workers, starting at ``8 * block``."""
    if block == 0:
        digest = _FIRST_BLOCK.copy()  # takes half as long as creating one
        digest.update(encoded)
    else:
        digest = blake2b(encoded, salt=block.to_bytes(_LANES, "little"), person=_PERSON)
    return _EIGHT_SCORES.unpack(digest.digest())


def index_select(key: Any, workers: Sequence[int]) -> int:
    """Select the worker at index ``key % len(workers)``, for integer keys that are already evenly distributed.

    Raises:
        TypeError: if the key is not an integer.
        ValueError: if there are no workers.

    >>> index_select(7, [0, 1, 2])
    1
    """
    if not isinstance(key, Integral):
        raise TypeError(
            f"index_select needs an integer key; got {short_repr(key)}; use rendezvous_select for other keys"
        )
    if not workers:
        raise ValueError("there are no workers to select from")
    return workers[int(key) % len(workers)]


def stable_hash(key: Any) -> int:
    """Hash a key to 64 bits: equal keys have the same hash in every process, on every machine, in every version.

    Raises:
        TypeError: if the key, or an element of it, has no stable hash.
        ValueError: if the key, or an element of it, is NaN.
    """
    digest = _new_hash()
    digest.update(_encode(key))
    return int.from_bytes(digest.digest(), "little")


def check_key(key: Any) -> None:
    """Check that a key is valid: hashable, with a stable hash, and neither None nor NaN.

    Raises:
        TypeError: if it is None, unhashable or has no stable hash.
        ValueError: if it is NaN.
    """
    if type(key) in PLAIN_TYPES:
        return
    if key is None:
        raise TypeError("None cannot be used as a key; use a placeholder such as '' for records without one")
    _encode(key)
    hash(key)


def _encode(key: Any) -> bytes:
    """Encode a key as bytes: keys that are equal, and the same key of a dict, have equal encodings.

    Unequal keys have different encodings, apart from a few of pandas and numpy.
    """
    if type(key) is int:
        return _encode_integer(key)
    if type(key) not in PLAIN_TYPES:
        cls = type(key)
        if hasattr(cls, "__stable_key__"):
            _admit_stable_key(key)
            return _encode_parts(b"o", [_encode(cls.__qualname__), _encode(key.__stable_key__())])
        if _is_of_numpy(cls):  # type: ignore[arg-type] # mypy considers a class unhashable
            key = _python_key(key)
        _check_equality(key)
    if isinstance(key, str):
        return b"s" + str.encode(key, "utf-8", "surrogatepass")
    if isinstance(key, (Complex, Decimal)):
        return _encode_number(key)
    if isinstance(key, tuple):
        return _encode_parts(b"t", [_encode(part) for part in key])
    if isinstance(key, bytes):
        return b"b" + key
    if key is None or key is NoKey:
        return b"-" if key is None else b"n"
    return _encode_object(key)


def _admit_stable_key(key: Any) -> None:
    """Record that a stable key was seen; reject a class compared by identity. Its keys would never be equal."""
    cls = type(key)
    if not STABLE_KEYS_MET.is_set():
        STABLE_KEYS_MET.set()
    missing = [name for name in ("__eq__", "__hash__") if getattr(cls, name) is getattr(object, name)]
    if missing and not isinstance(key, Enum):
        raise TypeError(
            f"{short_repr(key)} of type {cls.__qualname__} has a __stable_key__() but no {' and no '.join(missing)}: "
            "two "
            "keys would never be equal; define both __eq__ and __hash__ in terms of __stable_key__()"
        )


@lru_cache
def _is_of_numpy(cls: type) -> bool:
    """Whether this is a numpy scalar class; numpy need not be installed."""
    return any(base.__name__ == "generic" and base.__module__ == "numpy" for base in cls.__mro__)


def _python_key(key: Any) -> Any:
    """Return the Python equivalent of a numpy scalar; a datetime out of Python's range keeps its own form.

    Raises:
        TypeError: if it has no equivalent.
        ValueError: if it is NaT.
    """
    kind = type(key).__name__
    if isinstance(key, (str, bytes)):
        return key[:]  # item() would drop NUL at the end
    if kind not in ("datetime64", "timedelta64"):
        return key.item()  # a long double returns itself
    _check_time(key)
    if kind == "datetime64":
        _check_hash_of_a_date(key)
        return _moment_of_numpy(key)
    span = key.astype("m8[us]")
    if span != key or not isinstance(span.item(), timedelta):
        raise TypeError(
            f"numpy's {short_repr(key)} has no stable hash: it is not a whole number of microseconds; use int(key)"
        )
    return span.item()


def _check_time(key: Any) -> None:
    if key != key:  # noqa: PLR0124 - as NaN
        raise ValueError(
            f"{short_repr(key)} cannot be used as a key: NaT does not equal itself; replace or filter it before keying"
        )


def _check_hash_of_a_date(key: Any) -> None:
    """Reject a day of a numpy version that hashes days as dates: it would equal a date and a datetime. These differ."""
    day = key.item()
    if type(day) is date and hash(key) == hash(day):
        raise TypeError(
            f"numpy's {short_repr(key)} has no stable hash: this version of numpy hashes it like a date; update numpy, "
            "or use key.item()"
        )


def _moment_of_numpy(key: Any) -> Any:
    """Return the datetime that equals a numpy datetime, or else its text. It is the same for equal values."""
    moment = key.astype("M8[us]")
    if moment == key and isinstance(moment.item(), datetime):
        return moment.item()
    return ("numpy.datetime64", _text_of_numpy(str(key)))


def _text_of_numpy(text: str) -> str:
    """Normalise numpy's text of a datetime. Its length depends on its unit, but equal datetimes must have equal text.

    >>> _text_of_numpy("2020"), _text_of_numpy("2020-01-01T00"), _text_of_numpy("2020-01-01T00:00:00.500")
    ('2020-01-01T00:00:00', '2020-01-01T00:00:00', '2020-01-01T00:00:00.5')
    """
    day, _, clock = text.partition("T")
    day += "-01" * (2 - day[1:].count("-"))
    clock, _, fraction = clock.partition(".")
    clock = clock or "00"
    clock += ":00" * (2 - clock.count(":"))
    fraction = fraction.rstrip("0")
    return f"{day}T{clock}.{fraction}" if fraction else f"{day}T{clock}"


def _check_equality(key: Any) -> None:
    """Reject a key of a class with its own ``__eq__``: equality does not follow from its contents."""
    cls = type(key)
    equality: Any = cls.__eq__
    by_hand = _is_by_hand(equality)
    if isinstance(key, _OF_CONTENTS):
        has_own = equality not in _equalities_of(key, _OF_CONTENTS)
    elif isinstance(key, _OF_VALUES):  # those written in C, as in pandas, compare values
        has_own = hasattr(equality, "__code__") and equality not in _equalities_of(key, _OF_VALUES)
    else:
        has_own = by_hand and (is_dataclass(key) or isinstance(key, Enum))
    if has_own:
        raise TypeError(
            f"{short_repr(key)} of type {cls.__qualname__} has no stable hash: the class defines its own __eq__; add a "
            "method __stable_key__() that returns equal keys for equal objects, and a __hash__ consistent with it"
        )


def _is_by_hand(equality: Any) -> bool:
    """Whether an ``__eq__`` is written in Python, rather than generated by `dataclass`."""
    code = getattr(equality, "__code__", None)
    return code is not None and code.co_filename != "<string>"


def _equalities_of(key: Any, kinds: Sequence[type]) -> list[object]:
    return [kind.__eq__ for kind in kinds if isinstance(key, kind)]


def _encode_number(key: Any) -> bytes:
    if key != key:  # noqa: PLR0124 - the definition of NaN
        raise ValueError(
            f"{short_repr(key)} cannot be used as a key: NaN does not equal itself; replace or filter it before keying"
        )
    if isinstance(key, Decimal):
        _check_exponent(key)
    if isinstance(key, int):
        return _encode_integer(int.__index__(key))
    if isinstance(key, Integral):
        return _encode_integer(int(key))
    if isinstance(key, Complex) and not isinstance(key, Rational) and key.imag:
        return _encode_parts(b"c", [_encode_number(key.real), _encode_number(key.imag)])
    real = key if isinstance(key, Decimal) else key.real
    if real in (float("inf"), float("-inf")):
        return b"f+" if real > 0 else b"f-"
    ratio = (real.numerator, real.denominator) if isinstance(real, Rational) else real.as_integer_ratio()
    numerator, denominator = int(ratio[0]), int(ratio[1])
    if denominator == 1:
        return _encode_integer(numerator)
    return _encode_parts(b"r", [_encode_integer(numerator), _encode_integer(denominator)])


def _check_exponent(key: Decimal) -> None:
    """Reject a number with such a large exponent that converting it to an integer would take forever."""
    if key.is_finite() and (abs(key.adjusted()) > _LONGEST or abs(int(key.as_tuple().exponent)) > _LONGEST):
        raise ValueError(
            f"{short_repr(key)} cannot be used as a key: it has more than {_LONGEST} digits; round it, or key by its "
            "text"
        )


def _encode_integer(number: int) -> bytes:
    return b"i" + number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _encode_object(key: Any) -> bytes:
    cls = type(key)
    if isinstance(key, (date, timedelta)):
        _check_time(key)
    if isinstance(key, datetime):
        return _encode_moment(key)
    if isinstance(key, date):
        return b"d" + date.isoformat(key).encode()
    if isinstance(key, time):
        return b"T" + _clock(key).encode()
    if isinstance(key, timedelta):
        return _encode_parts(b"l", [_encode_number(part) for part in _span(key)])
    if isinstance(key, UUID):
        return b"u" + key.bytes
    if isinstance(key, frozenset):
        return _encode_parts(b"z", sorted([_encode(part) for part in key]))
    if isinstance(key, Enum):
        return _encode_parts(b"e", [_encode(part) for part in (cls.__qualname__, key.name)])
    if is_dataclass(key) and isinstance(key, Hashable) and "__eq__" in vars(cls):
        content = [getattr(key, field.name) for field in fields(key) if field.compare]
        return _encode_parts(b"a", [_encode(part) for part in (cls.__qualname__, *content)])
    raise TypeError(
        f"{short_repr(key)} of type {cls.__qualname__} has no stable hash; key by a string, a number, a tuple of "
        "these or "
        "a frozen dataclass, or add a method __stable_key__() that returns one of these, with matching __eq__ and "
        "__hash__"
    )


def _encode_parts(tag: bytes, parts: list[bytes]) -> bytes:
    """Join encoded parts. They are a list, since a StopIteration in user code would silently end a generator."""
    return tag + b"".join([len(part).to_bytes(8, "little") + part for part in parts])


def _encode_moment(moment: datetime) -> bytes:
    if getattr(moment, "nanosecond", 0) or not 1 <= moment.year <= MAXYEAR:  # of pandas
        return _encode(("numpy.datetime64", _text_of_numpy(str(moment.asm8))))  # type: ignore[attr-defined]
    return b"D" + _instant(moment).encode()


def _instant(moment: datetime) -> str:
    """Return a text that is equal for equal datetimes, whatever their time zones and classes."""
    moment = moment.replace(fold=0)
    offset = moment.utcoffset()
    wall = datetime.combine(_date_of(moment), _time_of(moment))
    if offset is None:
        return wall.isoformat()
    return f"{wall - _EPOCH - offset}+00:00"  # a timedelta cannot overflow the calendar


def _clock(moment: time) -> str:
    wall, offset = _time_of(moment), moment.replace(fold=0).utcoffset()
    if offset is None:
        return wall.isoformat()
    since_midnight = timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second, microseconds=wall.microsecond)
    return f"{(since_midnight - offset).total_seconds()}+00:00"


def _date_of(moment: datetime) -> date:
    """Return the plain date, since a subclass may override printing and arithmetic."""
    return date(moment.year, moment.month, moment.day)


def _time_of(moment: datetime | time) -> time:
    return time(moment.hour, moment.minute, moment.second, moment.microsecond)


def _span(key: timedelta) -> tuple[int, int, int]:
    """Return days, seconds and microseconds as timedelta defines them; subclasses may redefine these names."""
    return _DAYS(key), _SECONDS(key), _MICROSECONDS(key)
