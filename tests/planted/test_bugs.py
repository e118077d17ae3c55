"""The planted bugs can still be planted, and the tests that must find them exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tests.kit.nights import marks_of_file
from tests.planted.bugs import BUGS
from tests.planted.hunt import ROOT, Bug


def test_the_code_of_each_bug_occurs_once() -> None:
    faults = [f"{bug.name} [{bug.file}]: {fault}" for bug in BUGS for fault in faults_of_code(bug)]
    assert not faults, "\n".join(["The code has changed: plant these bugs anew.", *faults])


def faults_of_code(bug: Bug) -> Iterator[str]:
    """Yield why a bug can't be planted."""
    source = text_of(f"malflow/{bug.file}")
    if source.count(bug.old) != 1:
        yield f"its code occurs {source.count(bug.old)} times, not once"
    if bug.new == bug.old:
        yield "it changes nothing"
    if bug.file.endswith(".py"):
        try:
            compile(source.replace(bug.old, bug.new), bug.file, "exec")
        except SyntaxError as error:
            yield f"the package can't be compiled with it: {error}"


def test_the_tests_of_each_bug_exist() -> None:
    faults = [f"{bug.name}: {test}" for bug in BUGS for test in bug.tests if not exists(test)]
    assert not faults, "\n".join(["There are no such tests:", *faults])


def exists(test: str) -> bool:
    """Whether a file of tests exists, and has the test that is named."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and (not name or f"def {name}(" in text_of(path))


def test_the_tests_of_each_bug_run_by_day() -> None:
    faults = [f"{bug.name}: {test}" for bug in BUGS for test in bug.tests if is_of_the_night(test)]
    assert not faults, "\n".join(["These tests find bugs, and are marked nightly:", *faults])


def is_of_the_night(test: str) -> bool:
    """Whether a file of tests, or the test that is named in it, is marked nightly as a whole."""
    path, _, name = test.partition("::")
    marked = rf"^@pytest\.mark\.nightly\n(?:[@ )].*\n)*def {name}\("
    return "nightly" in marks_of_file(text_of(path)) or bool(name and re.search(marked, text_of(path), re.MULTILINE))


@cache
def text_of(path: str) -> str:
    """Return the text of a file; many bugs are in the same."""
    return (ROOT / path).read_text(encoding="utf-8")


def test_bugs_have_different_names() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
