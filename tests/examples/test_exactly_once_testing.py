"""The example's dataflow with the bug is caught, and the one without is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import exactly_once_testing

pytestmark = pytest.mark.slow


def test_the_example_finds_the_bug(capsys: pytest.CaptureFixture[str]) -> None:
    exactly_once_testing.main()

    lines = capsys.readouterr().out.splitlines()
    assert lines[:9] == [
        "build_right: exactly once",
        "build_wrong: the results differ from those of an undisturbed run, under this schedule:",
        "  1. start with 1 worker",
        "  2. process 1 record: 1",
        "  3. stop, which takes a snapshot, and restart from it",
        "  4. process the last 9 records",
        "sink 'totals' got different messages for key 1:",
        "  expected 4 at timestamp 2, 9 at timestamp 4, 16 at timestamp 6, and 1 more",
        "  got      3 at timestamp 2, 8 at timestamp 4, 15 at timestamp 6, and 1 more",
    ]
    assert lines[9] == "usual causes:"


def test_the_example_is_short() -> None:
    assert len(Path(exactly_once_testing.__file__).read_text(encoding="utf-8").splitlines()) <= 50
