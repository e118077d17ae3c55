"""The stable hash of keys of pandas and numpy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.partitioners import check_key, stable_hash
from tests.kit.equal_keys import equals, nested


@pytest.mark.fault("E10")
@pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds")
@given(nested())
@pytest.mark.slow
def test_keys_that_find_each_other_in_a_dict_have_one_hash(values: list[Any]) -> None:
    for one, other in equals(values):
        assert stable_hash(one) == stable_hash(other), (one, other)


MOMENTS = [
    (np.datetime64("2013-01-01T05"), 5219616123570080900),
    (pd.Timestamp("2013-01-01T05"), 5219616123570080900),
    (pd.Timestamp("2013-01-01T01", tz="Europe/Berlin"), 15816664374105277740),
    (pd.Timedelta(-1, "D"), 999843378302331184),
    (np.datetime64("12013-01-01"), 8129239027921495188),
    (np.datetime64("2013-01-01T00:00:00.000000001"), 10165858968254627752),
    (pd.Timestamp("2013-01-01T00:00:00.000000001", tz="UTC"), 10165858968254627752),
]


def test_the_hash_of_moments_of_pandas_and_numpy_never_changes() -> None:
    assert [stable_hash(key) for key, _ in MOMENTS] == [expected for _, expected in MOMENTS]


SCALARS = [
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), b"a"),
    (np.str_("a\0"), "a\0"),
    (np.bytes_(b"a\0"), b"a\0"),
    (np.bool_(True), 1),
    (np.int8(-3), -3),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.float16(0.5), 0.5),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.longdouble(0.5), 0.5),
    (np.complex64(1 + 2j), 1 + 2j),
    (np.timedelta64(5, "s"), timedelta(seconds=5)),
    (np.timedelta64(5_000_000_000, "ns"), np.timedelta64(5, "s")),
    (np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-01T00:00:00.000", "ns")),
    (np.datetime64("2020", "Y"), np.datetime64("2020-01-01T00", "h")),
    (np.datetime64("-0044-03", "M"), np.datetime64("-0044-03-01T00:00", "m")),
    (np.datetime64("2020-01-01T00:00:00.500", "ms"), np.datetime64("2020-01-01T00:00:00.500000", "us")),
    ((np.str_("a"), np.int64(1)), ("a", 1)),
]


@pytest.mark.parametrize(("scalar", "equal"), SCALARS, ids=repr)
def test_scalars_of_numpy_are_keys_like_what_they_equal(scalar: Any, equal: Any) -> None:
    assert scalar == equal
    check_key(scalar)
    assert stable_hash(scalar) == stable_hash(equal)
    assert {scalar: 1}.get(equal) == 1


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_nat_is_no_key(unit: Any) -> None:
    for key in (np.datetime64("NaT", unit), np.timedelta64("NaT", unit), pd.NaT):
        with pytest.raises(ValueError, match=r"Na[TN] does not equal itself"):
            check_key(key)


@given(st.integers(-(2**40), 2**40), st.sampled_from(["D", "h", "m", "s", "ms", "us"]))
def test_moments_of_numpy_hash_alike_in_every_unit(count: int, unit: Any) -> None:
    moment = np.datetime64(count % 10**6, unit)
    assert stable_hash(moment) == stable_hash(moment.astype("M8[us]"))
    assert stable_hash(moment) != stable_hash(moment + np.timedelta64(1, unit))
