"""A bug in a copy of the package, and the tests that must find it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.planted.outcomes import NOTES, read_outcomes

__all__ = ["ROOT", "Bug", "Verdict", "hunt", "killers"]

ROOT = Path(__file__).parents[2]
_COPIED = ("malflow", "tests", "conftest.py", "pyproject.toml", "docs")
_SECONDS = 600


class Verdict(Enum):
    """The outcome of a bug.

    Attributes:
        KILLED: a test failed.
        HUNG: the tests did not end in time, which they do without the bug.
        SURVIVED: all tests passed.
    """

    KILLED = "killed"
    HUNG = "hung"
    SURVIVED = "SURVIVED"


@dataclass(frozen=True)
class Bug:
    """A change of one place of the package.

    Attributes:
        name: what goes wrong.
        trap: the mistake that it stands for.
        file: the file, from the package's folder.
        old: the text to replace, which occurs once.
        new: the replacement.
        tests: the tests that are to find it: files, or tests in files.
        seconds: within which the tests end without the bug.
    """

    name: str
    trap: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    seconds: int = _SECONDS

    def plant(self, root: Path) -> None:
        """Change the package in a folder.

        Raises:
            ValueError: if the code has changed, so that the bug has to be planted anew.
        """
        path = root / "malflow" / self.file
        source = path.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has {source.count(self.old)} times, not once:\n{self.old}")
        path.write_text(source.replace(self.old, self.new))


def hunt(bug: Bug) -> tuple[Verdict, float, str]:
    """Run the tests of a bug in a copy of the package that has it; return the first test that failed as well.

    Raises:
        RuntimeError: if no test could be run.
    """
    verdict, seconds, outcomes = _hunted(bug, bug.tests, "-x")
    return verdict, seconds, next((test for test, outcome in outcomes.items() if outcome == "failed"), "")


def killers(bug: Bug, more: Iterable[str] = ()) -> tuple[Verdict, float, dict[str, str]]:
    """Run all tests of a bug in a copy of the package that has it.

    Args:
        bug: the bug.
        more: files and folders whose tests run as well.

    Returns:
        the verdict, the seconds, and the outcome of each test: `passed`, `failed`, `skipped`, or `started` if it hung.

    Raises:
        RuntimeError: if no test could be run.
    """
    return _hunted(bug, (*bug.tests, *more))


def _hunted(bug: Bug, tests: Iterable[str], *options: str) -> tuple[Verdict, float, dict[str, str]]:
    with TemporaryDirectory(prefix="planted-") as folder:
        copy, noted = Path(folder), Path(folder) / "outcomes"
        for name in _COPIED:
            _copy(ROOT / name, copy / name)
        bug.plant(copy)
        env = {**os.environ, "PYTHONPATH": folder, "PYTHONWARNINGS": "error", "HYPOTHESIS_PROFILE": "planted"}
        plugins = ["-p", "no:cacheprovider", "-p", "tests.planted.unshrunk", "-p", "tests.planted.outcomes"]
        begin = time.monotonic()
        try:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *options, *plugins, "-m", "not spark", *tests],
                cwd=copy,
                env={**env, NOTES: str(noted)},
                capture_output=True,
                text=True,
                timeout=bug.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict.HUNG, time.monotonic() - begin, read_outcomes(noted)
        seconds, outcomes = time.monotonic() - begin, read_outcomes(noted)
    if run.returncode == 0:
        return Verdict.SURVIVED, seconds, outcomes
    if "failed" not in outcomes.values():
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)  # while the tests were collected
        if failed is None:
            raise RuntimeError(f"{bug.name}: the tests could not be run:\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
        outcomes[failed[1]] = "failed"
    return Verdict.KILLED, seconds, outcomes


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    else:
        shutil.copy(source, target)
