"""All tests on Spark in one process of pytest-xdist, as the session that they share takes seconds and a gigabyte."""

from __future__ import annotations

import ast
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
    if path.startswith("tests/conformance/") and "[" in name:
        return "spark" if _ON_SPARK.search(name) else path
    names = _on_spark(path)
    return "spark" if "pytestmark" in names or re.split(r"\W", name)[0] in names else path


@cache
def _on_spark(path: str) -> set[str]:
    """Return the functions and other names of a file that have the mark of Spark, or use a name that has it."""
    file = _ROOT / path
    text = file.read_text(encoding="utf-8") if path.startswith("tests/") and file.is_file() else ""
    if "pytest.mark.spark" not in text:
        return set()
    lines = text.splitlines()
    found: set[str] = set()
    words = {name: _words(node, lines) for node in ast.parse(text).body for name in _defined(node)}
    while more := {name for name, used in words.items() if used & {"spark", *found}} - found:
        found |= more
    return found


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [it.id for it in targets if isinstance(it, ast.Name)]


def _words(node: Any, lines: list[str]) -> set[str]:
    """Return the words of a statement and of its decorators."""
    first = min([node.lineno, *(it.lineno for it in getattr(node, "decorator_list", ()))])
    return {*re.findall(r"\w+", "\n".join(lines[first - 1 : node.end_lineno]))}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the files out, and the tests on Spark as if they were one; where there are no others, by file as well."""
    if config.getoption("dist") != "loadfile" or config.option.markexpr == "spark":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # noqa: PLC0415 - it may be missing

    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling
