"""Tests of the night, and cases that only ``HYPOTHESIS_PROFILE=nightly`` tries.

A test that is marked `nightly` runs in `make nightly`. The option `--slice` runs a part of these tests beside the
others: it takes a number in hex, such as the hash of a commit, and the remainder of a division chooses the part. So
each landing runs another one, and a commit always the same. A test that is named with its ``::`` runs anyway.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

__all__ = ["NIGHTLY", "at_night", "is_in_slice", "marks_of_file", "only_nightly"]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Whether everything is tried, at full size."""

only_nightly = pytest.mark.skipif(not NIGHTLY, reason="takes minutes; HYPOTHESIS_PROFILE=nightly runs it")
"""Marks tests that are skipped otherwise."""

PARTS = 10
"""How many parts the tests of the night have. With half as many, a landing takes a fifth of them; with twice, a
twentieth, and a test that broke goes unseen for twice as many landings."""

_MARKED = re.compile(r"^pytestmark = .*\bpytest\.mark\.(nightly|slow)\b", re.MULTILINE)
"""The mark of a whole file, read without an import."""


def at_night(cases: Iterable[Any], *, but: Iterable[Any] = ()) -> list[Any]:
    """Return the cases of a parametrized test, all but some marked `nightly`; a tuple has a value for each argument."""
    by_day = list(but)
    return [case if case in by_day else _marked(case) for case in cases]


def _marked(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)


def is_in_slice(test: str, wanted: str, parts: int = PARTS) -> bool:
    """Whether a test of the night is chosen.

    Args:
        test: its name, with its file.
        wanted: `none`, `all`, or a number in hex.
        parts: how many parts the tests of its kind have.
    """
    if wanted in ("none", "all"):
        return wanted == "all"
    return crc32(test.encode()) % parts == int(wanted[:12], 16) % parts


def marks_of_file(text: str) -> set[str]:
    """Return which of `slow` and `nightly` all tests of a file have."""
    return {found[1] for found in _MARKED.finditer(text)}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    wanted = "the tests marked nightly: none, all, or a part of them by a number in hex"
    parser.addoption("--slice", default="all" if NIGHTLY else "none", help=wanted)
    parser.addoption("--share", metavar="K/N", default="0/1", help="only the files of the K-th of N shares, from 0")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of other shares, and those with no chosen test: imports take most of the time."""
    if collection_path.suffix != ".py" or _named(config):
        return None
    share, shares = map(int, config.getoption("share").split("/"))
    name = collection_path.relative_to(config.rootpath).as_posix()
    if crc32(name.encode()) % shares != share:
        return True
    return True if collection_path.name.startswith("test_") and _is_left_out(collection_path, config) else None


def _is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether all tests of a file have a mark that the command line leaves out."""
    marks, wanted = marks_of_file(path.read_text(encoding="utf-8")), config.option.markexpr
    without_slow = "not slow" in wanted and " or " not in wanted
    return ("nightly" in marks and config.getoption("slice") == "none") or ("slow" in marks and without_slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the night that are not in the slice."""
    wanted, named = config.getoption("slice"), tuple(_named(config))
    chosen: list[pytest.Item] = []
    rest: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("nightly")
        is_chosen = mark is None or item.nodeid.startswith(named) or is_in_slice(item.nodeid, wanted, **mark.kwargs)
        (chosen if is_chosen else rest).append(item)
    if rest:
        config.hook.pytest_deselected(items=rest)
        items[:] = chosen


def _named(config: pytest.Config) -> list[str]:
    """Return the tests that the command line names."""
    return [argument for argument in config.args if "::" in argument]
