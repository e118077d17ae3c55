"""The matrix of bugs and the tests that find them, as it is written, read and told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.planted.hunt import Bug
from tests.planted.matrix import extend, fingerprint, read, told
from tests.planted.outcomes import read_outcomes

BUG = Bug("late", "off by one", "windows.py", "<", "<=", ("tests/test_one.py",))


def row(bug: str, verdict: str, *killers: str) -> dict[str, object]:
    return {"bug": bug, "fingerprint": fingerprint(BUG, ()), "verdict": verdict, "seconds": 1.0, "killers": [*killers]}


def test_bugs_that_have_their_row_are_not_hunted_again(tmp_path: Path) -> None:
    file = tmp_path / "matrix"
    file.write_text(json.dumps(row("late", "killed", "a")) + "\n")
    assert list(extend(file, [BUG], (), 1)) == []


def test_a_fingerprint_changes_with_the_bug_and_its_tests() -> None:
    others = [replace(BUG, new=">"), replace(BUG, tests=("tests/test_two.py",))]
    assert (
        len({fingerprint(BUG, ()), fingerprint(BUG, ("tests/windows",)), *(fingerprint(it, ()) for it in others)}) == 4
    )


def test_the_last_row_of_a_bug_counts_and_a_line_that_was_cut_off_does_not(tmp_path: Path) -> None:
    file = tmp_path / "matrix"
    rows = [row("late", "SURVIVED"), row("late", "killed", "a")]
    file.write_text("\n".join(map(json.dumps, rows)) + '\n{"bug": "late", "ver')
    assert read(file)["late"]["killers"] == ["a"]


def test_bugs_without_a_test_and_tests_that_stand_alone_are_told() -> None:
    rows = [
        row("one", "killed", "a"),
        row("two", "killed", "a", "b"),
        row("three", "SURVIVED"),
        row("four", "hung", "a"),
    ]
    assert list(told(rows)) == ["not found: three", "4 bugs, 2 of them found by one test alone:", "    2 a"]


def test_the_last_outcome_of_a_test_counts(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("started a[b c]\npassed a[b c]\nfailed a[b c]\nstarted d\n")
    assert read_outcomes(notes) == {"a[b c]": "failed", "d": "started"}
    assert read_outcomes(tmp_path / "none") == {}
