"""A plugin of pytest that writes the outcome of each test to a file at once, as a run may hang and be killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["NOTES", "read_outcomes"]

NOTES = "PLANTED_OUTCOMES"
"""The variable of the environment that names the file."""


def read_outcomes(path: Path) -> dict[str, str]:
    """Return the outcome of each test that has begun, by its name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {test: outcome for outcome, _, test in (line.partition(" ") for line in lines)}


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note a test that begins."""
    _note("started", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test, and that of what comes before and after it if it is a failure."""
    if report.when == "call" or not report.passed:
        _note(report.outcome, report.nodeid)


def _note(outcome: str, test: str) -> None:
    name = test.encode("unicode_escape").decode()
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
        notes.write(f"{outcome} {name}\n")
