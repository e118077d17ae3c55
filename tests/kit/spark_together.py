"""All tests on Spark in one process of pytest-xdist, as the session that they share takes seconds and a gigabyte."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["scope_of"]

_ROOT = Path(__file__).parents[2]
_ON_SPARK = re.compile(r"[\[-]spark\b")
"""The runtime among the parameters of a case of the conformance suite."""


def scope_of(test: str) -> str:
    """Return what is run by one process: the tests on Spark, or the other tests of a file."""
    path, _, name = test.partition("::")
    if path.startswith("tests/conformance/"):
        return "spark" if _ON_SPARK.search(name) else path
    return "spark" if _is_on_spark(path) else path


@cache
def _is_on_spark(path: str) -> bool:
    file = _ROOT / path
    return path.startswith("tests/") and file.is_file() and "pytest.mark.spark" in file.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the files out, and the tests on Spark as if they were one; where there are no others, by file as well."""
    if config.getoption("dist") != "loadfile" or config.option.markexpr == "spark":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # noqa: PLC0415 - it may be missing

    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling
