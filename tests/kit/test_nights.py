"""The choice of the tests of the night."""

from __future__ import annotations

import pytest

from tests.kit.nights import PARTS, at_night, is_in_slice, marks_of_file

TESTS = [f"tests/test_kills.py::test_a_kill[{number}]" for number in range(200)]


@pytest.mark.parametrize("parts", [PARTS, 4])
def test_each_test_of_the_night_is_in_one_slice(parts: int) -> None:
    for test in TESTS:
        assert len([it for it in range(parts) if is_in_slice(test, f"{it:x}", parts)]) == 1


def test_a_slice_is_a_tenth_by_the_hash_of_a_commit() -> None:
    commits = ["4d120dc4e0f1b2a3c4d5e6f708192a3b4c5d6e7f", "3bdf5ae6a1b2c3d4e5f60718293a4b5c6d7e8f90"]
    slices = [[test for test in TESTS if is_in_slice(test, commit)] for commit in commits]
    assert slices[0] != slices[1]
    assert all(5 < len(found) < 40 for found in slices)


def test_all_and_none_are_no_numbers() -> None:
    assert all(is_in_slice(test, "all") for test in TESTS)
    assert not any(is_in_slice(test, "none") for test in TESTS)


def test_cases_are_marked_but_for_those_by_day() -> None:
    by_day, *others = at_night(["a", ("b", 1), "c"], but=["a"])
    assert by_day == "a"
    assert [it.values for it in others] == [("b", 1), ("c",)]
    assert all([mark.name for mark in it.marks] == ["nightly"] for it in others)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("pytestmark = pytest.mark.slow\n", {"slow"}),
        ('pytestmark = [pytest.mark.nightly, pytest.mark.fault("A1")]\n', {"nightly"}),
        ("@pytest.mark.slow\ndef test_one() -> None: ...\n", set()),
        ("    pytestmark = pytest.mark.slow\n", set()),
    ],
)
def test_marks_of_a_file_are_read_from_its_text(text: str, marks: set[str]) -> None:
    assert marks_of_file(text) == marks
