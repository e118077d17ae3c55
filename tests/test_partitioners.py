"""The hash that routes keys: equal keys have equal hashes, everywhere and for ever."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from hashlib import sha256
from time import process_time
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, NoKey, SingleThreadRuntime, index_select, rendezvous_select
from malflow.partitioners import SLOTS, check_key, former_select, slot_of, slot_owners, stable_hash

numbers = st.one_of(
    st.integers(),
    st.integers(-3, 3),
    st.booleans(),
    st.floats(allow_nan=False),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, Decimal(1), Fraction(1, 2), 0.5, Decimal("0.5"), 2**70, float(2**70)]),
)
moments = st.one_of(
    st.dates(),
    st.times(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=2)))),
    st.timedeltas(),
    st.datetimes(
        timezones=st.none() | st.sampled_from([UTC, timezone(timedelta(hours=-5)), ZoneInfo("Europe/Berlin")])
    ),
)
atoms = st.one_of(numbers, st.text(), st.binary(), st.uuids(), moments, st.none(), st.just(NoKey))
keys = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=6
)


@given(st.lists(keys, max_size=30))
def test_equal_keys_have_one_hash(some: list[Any]) -> None:
    seen: dict[Any, int] = {}
    for key in some:
        assert seen.setdefault(key, stable_hash(key)) == stable_hash(key)


@pytest.mark.fault("E10")
@given(numbers, numbers)
def test_equal_numbers_have_one_hash(one: Any, other: Any) -> None:
    if one == other:
        assert stable_hash(one) == stable_hash(other)
    else:
        assert stable_hash(one) != stable_hash(other)


@given(st.datetimes(), st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata"]))
def test_equal_moments_of_any_zone_have_one_hash(moment: datetime, zone: str) -> None:
    aware = moment.replace(tzinfo=UTC)
    try:
        other = aware.astimezone(ZoneInfo(zone))
    except OverflowError:
        return
    if aware == other:
        assert stable_hash(aware) == stable_hash(other)
    assert stable_hash(moment) != stable_hash(aware)


def test_the_end_of_the_calendar_has_a_hash() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    assert stable_hash(datetime.min.replace(tzinfo=east)) != stable_hash(datetime.max.replace(tzinfo=west))


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    ONE = "one"


class Pair(NamedTuple):
    a: int
    b: int


@dataclass(frozen=True)
class Place:
    row: int
    name: str


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __stable_key__(self) -> str:
        return self.name


def test_kin_of_numbers_texts_and_tuples_hash_as_these() -> None:
    assert stable_hash(Number.ONE) == stable_hash(1)
    assert stable_hash(Word.ONE) == stable_hash("one")
    assert stable_hash(Pair(1, 2)) == stable_hash((1, 2)) == stable_hash((1.0, True + 1))


def test_classes_of_the_users_have_a_hash_by_content() -> None:
    assert stable_hash(Place(1, "a")) == stable_hash(Place(1, "a")) != stable_hash(Place(2, "a"))
    assert stable_hash(Named("x")) == stable_hash(Named("x")) != stable_hash("x")
    assert stable_hash(Colour.RED) == stable_hash(Colour.RED)
    of_a_script: Any = Enum("Colour", "RED", module="__main__")  # type: ignore[misc]  # the name is that of the class
    assert stable_hash(Colour.RED) == stable_hash(of_a_script.RED)


@dataclass
class Changeable:
    row: int


@pytest.mark.parametrize("key", [[1], {1: 2}, {1}, object(), Changeable(1), len, bytearray(b"x"), (1, [2])])
def test_key_without_a_stable_hash_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="has no stable hash; key by a string"):
        stable_hash(key)


@pytest.mark.fault("E9")
@pytest.mark.parametrize("key", [float("nan"), Decimal("nan"), complex(0, float("nan")), (1, float("nan"))])
def test_nan_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="NaN does not equal itself"):
        check_key(key)


@dataclass(frozen=True)
class AnyCase:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyCase) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


class AnyCaseText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Modulo(int):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and int(self) % 10 == int(other) % 10

    def __hash__(self) -> int:
        return hash(int(self) % 10)


class Year(date):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, date) and self.year == other.year

    def __hash__(self) -> int:
        return hash(self.year)


class AnyColour(Enum):
    RED = "red"
    ROSE = "Red"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyColour) and self.value.lower() == other.value.lower()

    def __hash__(self) -> int:
        return hash(self.value.lower())


class StableAnyCase(AnyCase):
    def __stable_key__(self) -> str:
        return self.name.lower()


@pytest.mark.parametrize(
    "key", [AnyCase("a"), AnyCaseText("a"), ("x", AnyCase("a")), Modulo(3), Year(2020, 1, 1), AnyColour.ROSE]
)
def test_a_class_with_an_equality_of_its_own_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="defines its own __eq__; add a method __stable_key__"):
        check_key(key)


def test_a_class_with_an_equality_of_its_own_may_tell_its_key() -> None:
    assert StableAnyCase("Ab") == StableAnyCase("aB")
    assert stable_hash(StableAnyCase("Ab")) == stable_hash(StableAnyCase("aB"))


def test_none_is_refused_as_a_key_and_taken_inside_one() -> None:
    with pytest.raises(TypeError, match="None cannot be used as a key"):
        check_key(None)
    check_key(("a", None))


GOLDEN_KEYS: list[Any] = [
    NoKey, 0, 1, -1, 2**64, True, 0.5, float("inf"), 1j, "", "foo", "\ud800", b"foo", (), ("a", 1), frozenset({1, 2}),
    date(2013, 1, 1), datetime(2013, 1, 1, 5), datetime(2013, 1, 1, tzinfo=UTC), time(5, 15), timedelta(days=-1),
    uuid.UUID(int=7), None,
]  # fmt: skip
GOLDEN_HASHES = [
    17354643469773470671, 5991236452014447420, 10392442233238981696, 7912100090505461545, 7355779678250174321,
    10392442233238981696, 12924586613600778798, 7396907540512453690, 1448576019414796977, 5967704874309135543,
    11587854596422252008, 9224142825321269179, 6789690116307439633, 3875347653357909040, 15876257749925497233,
    691880203379321945, 10017734406900467795, 5219616123570080900, 15816664374105277740, 2390072256870157466,
    999843378302331184, 16858666539506126697, 13446513844960052703,
]  # fmt: skip
GOLDEN_WORKERS = [5, 11, 1, 7, 6, 1, 10, 3, 6, 8, 4, 2, 1, 11, 9, 10, 0, 5, 4, 2, 2, 0, 7]
GOLDEN_TABLES = [
    (1, "88d41703c271b070"),
    (2, "91d88265d4e82726"),
    (3, "44e24f4e7b8ec2a1"),
    (5, "5e11574d08c8a86f"),
    (12, "8604de5b1c13e1f1"),
    (100, "cab99ede1e0ec32c"),
    (1_000, "f09e2cf929c039da"),
]
"""Digests of tables of slots, by the number of workers."""

GOLDEN_FORMER_WORKERS = [5, 6, 2, 4, 9, 2, 4, 0, 9, 1, 3, 8, 1, 5, 10, 5, 5, 2, 1, 6, 5, 1, 9]


def test_the_hash_never_changes() -> None:
    assert [stable_hash(key) for key in GOLDEN_KEYS] == GOLDEN_HASHES
    assert [former_select(key, range(12)) for key in GOLDEN_KEYS] == GOLDEN_FORMER_WORKERS
    assert [rendezvous_select(key, range(12)) for key in GOLDEN_KEYS] == GOLDEN_WORKERS


@pytest.mark.parametrize(("workers", "expected"), GOLDEN_TABLES)
def test_the_owners_of_slots_never_change(workers: int, expected: str) -> None:
    numbers = ",".join(map(str, slot_owners(workers)))
    assert sha256(numbers.encode()).hexdigest()[:16] == expected


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 12, 100, 1_000, 4_097, SLOTS])
def test_every_worker_has_its_share_of_slots(workers: int) -> None:
    held = Counter(slot_owners(workers))
    assert len(held) == workers
    assert max(held.values()) - min(held.values()) <= 1


@pytest.mark.parametrize("workers", [1, 2, 3, 11, 99, 999, 20_000])
def test_one_worker_more_takes_its_share_of_slots_and_no_other_moves(workers: int) -> None:
    moved = [new for old, new in zip(slot_owners(workers), slot_owners(workers + 1), strict=True) if old != new]
    assert moved == [workers] * (SLOTS // (workers + 1))


@given(keys)
def test_a_key_is_in_the_slot_of_its_hash(key: Any) -> None:
    assert slot_of(key) == (stable_hash(key) >> 8) % SLOTS


def test_keys_with_a_low_hash_are_on_all_workers() -> None:
    sampled = [key for key in range(20_000) if stable_hash(key) < 1 << 60]  # as `sample` selects them
    held = Counter(rendezvous_select(key, range(4)) for key in sampled)
    assert all(count == pytest.approx(len(sampled) / 4, rel=0.2) for count in held.values())
    assert len(held) == 4


def test_there_are_no_more_workers_than_slots() -> None:
    with pytest.raises(ValueError, match="more than 32,768 workers"):
        rendezvous_select(1, range(SLOTS + 1))
    for parallelism in (SLOTS + 1, 10**9):
        with pytest.raises(GraphError, match=r"parallelism is [\d,]+, but keys belong to 32,768 slots"):
            SingleThreadRuntime(lambda provider: None, parallelism=parallelism)


@pytest.mark.fault("E8")
@pytest.mark.parametrize("seed", ["0", "1", "random"])
@pytest.mark.slow
def test_the_hash_is_the_same_in_every_process(seed: str) -> None:
    program = (
        "from malflow.partitioners import stable_hash\n"
        "print(stable_hash(frozenset({'a', 'b', 'c'})), stable_hash(('x', frozenset({1.5, 'y'}))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    expected = (stable_hash(frozenset({"a", "b", "c"})), stable_hash(("x", frozenset({1.5, "y"}))))
    assert tuple(map(int, answer.stdout.split())) == expected


@given(keys, st.integers(1, 20))
def test_a_worker_that_leaves_moves_its_own_keys_only(key: Any, workers: int) -> None:
    before = rendezvous_select(key, range(workers + 1))
    after = rendezvous_select(key, range(workers))
    assert before in {after, workers}


@given(keys, st.permutations(range(9)))
def test_the_order_of_workers_does_not_matter(key: Any, workers: list[int]) -> None:
    assert rendezvous_select(key, workers) == rendezvous_select(key, range(9))


def test_the_numbers_of_workers_may_have_gaps() -> None:
    few = [-1, 0, 7, 10**12]
    assert {rendezvous_select(key, few) for key in range(100)} == set(few)


@pytest.mark.parametrize("workers", [3, 8, 9, 17])
def test_keys_are_spread_evenly(workers: int) -> None:
    load = Counter(rendezvous_select(f"key-{n}", range(workers)) for n in range(10_000))
    expected = 10_000 / workers
    assert all(abs(load[worker] - expected) < 5 * expected**0.5 for worker in range(workers))


def test_growing_moves_only_what_the_new_worker_takes() -> None:
    moved = [(rendezvous_select(n, range(3)), rendezvous_select(n, range(4))) for n in range(10_000)]
    assert {after for before, after in moved if before != after} == {3}
    assert 2_300 < sum(before != after for before, after in moved) < 2_700


def test_index_select_takes_the_key_modulo_the_number_of_workers() -> None:
    assert [index_select(key, [10, 20, 30]) for key in range(5)] == [10, 20, 30, 10, 20]
    with pytest.raises(TypeError, match="index_select needs an integer key; got 'a'"):
        index_select("a", [0])


@pytest.mark.parametrize("select", [rendezvous_select, index_select])
def test_there_must_be_workers(select: Any) -> None:
    with pytest.raises(ValueError, match=r"empty|no workers"):
        select(1, [])


class Unequal:
    def __stable_key__(self) -> int:
        return 1


class Unhashed(Unequal):
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashed)


@pytest.mark.parametrize(
    ("key", "missing"),
    [(Unequal(), "no __eq__ and no __hash__"), (Unhashed(), "no __hash__"), ((1, Unequal()), "no __eq__")],
)
def test_a_stable_key_needs_an_equality_that_goes_by_it(key: Any, missing: str) -> None:
    with pytest.raises(TypeError, match=f"has a __stable_key__.. but {missing}.*define both __eq__ and __hash__"):
        check_key(key)


@pytest.mark.parametrize(
    "text", ["1e1000000", "1e-1000000", "-3E+999999999", f"{'7' * 20_000}", f"0.{'7' * 20_000}", "1e10001"]
)
def test_a_number_of_which_a_few_letters_make_very_many_is_refused_at_once(text: str) -> None:
    for key in (Decimal(text), (1, Decimal(text))):
        began = process_time()
        with pytest.raises(ValueError, match="it has more than 10000 digits; round it, or key by its text"):
            check_key(key)
        assert process_time() - began < 0.1


@pytest.mark.parametrize("zeros", [0, 100, 5_000, 9_999])
def test_long_numbers_that_are_equal_have_one_hash(zeros: int) -> None:
    for digit in (1, -3):
        number = Decimal(f"{digit}e{zeros}")
        assert number == digit * 10**zeros
        assert stable_hash(number) == stable_hash(digit * 10**zeros)
        assert stable_hash(1 / Fraction(number)) == stable_hash(Fraction(1, digit * 10**zeros))


def test_an_error_about_a_number_too_long_to_print_is_told() -> None:
    with pytest.raises(TypeError, match="has no stable hash"):
        check_key([10**10_000])
