"""The planted bugs can still be planted, and the tests that must find them exist."""

from __future__ import annotations

import pytest

from tests.planted.bugs import BUGS
from tests.planted.hunt import ROOT, Bug

each_bug = pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])


@each_bug
def test_the_code_of_a_bug_occurs_once(bug: Bug) -> None:
    source = (ROOT / "malflow" / bug.file).read_text()
    assert source.count(bug.old) == 1, "the code has changed: plant the bug anew"
    if bug.file.endswith(".py"):
        compile(source.replace(bug.old, bug.new), bug.file, "exec")
    assert bug.new != bug.old


@each_bug
def test_the_tests_of_a_bug_exist(bug: Bug) -> None:
    for test in bug.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text


def test_bugs_have_different_names() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
