"""Every fault in docs/faults.md has its row and a test, and every mark its row."""

from __future__ import annotations

from pathlib import Path

from tests.fault_marks import ROW, marked_tests, with_tests

PAGE = (Path(__file__).parents[1] / "docs" / "faults.md").read_text(encoding="utf-8")
LAST = {
    "A": 13,
    "B": 16,
    "C": 19,
    "D": 10,
    "E": 30,
    "F": 18,
    "G": 15,
    "H": 9,
    "I": 31,
    "J": 8,
    "K": 11,
    "L": 7,
    "M": 8,
    "N": 20,
    "O": 10,
    "P": 5,
    "Q": 15,
    "R": 7,
    "T": 9,
    "U": 9,
}


def rows() -> dict[str, tuple[str, str]]:
    """Return the fault and what malflow does about it, by number."""
    found = [match.groups() for line in PAGE.splitlines() if (match := ROW.fullmatch(line))]
    assert len(found) == len({number for number, _, _ in found})
    return {number: (fault, answer) for number, fault, answer in found}


def test_every_fault_has_its_row() -> None:
    assert list(rows()) == [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]


def test_each_fault_has_a_test_or_is_not_offered() -> None:
    offered = {number for number, (_, answer) in rows().items() if not answer.startswith(("not yet:", "not offered:"))}
    assert offered - marked_tests().keys() == set()


def test_every_mark_has_its_row() -> None:
    assert set(marked_tests()) <= set(rows())


def test_page_of_the_site_names_the_tests() -> None:
    page = with_tests(PAGE)
    assert "- **A1** killed before the first snapshot: starts empty\\\n  `test_" in page
    assert all(f"`{name}`" in page for names in marked_tests().values() for name in names)
