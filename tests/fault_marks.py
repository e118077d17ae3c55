"""The tests of each fault: the marks `@pytest.mark.fault("C8")`, read without importing the tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROW", "marked_tests", "with_tests"]

TESTS = Path(__file__).parent
MARK = "pytest.mark.fault"
ROW = re.compile(r"- \*\*([A-Z]\d+)\*\* ([^:]+): (.+)")
"""A line in docs/faults.md: number, fault, what malflow does."""


@cache
def marked_tests() -> dict[str, list[str]]:
    """Return the tests of each fault, by its number."""
    found: dict[str, list[str]] = defaultdict(list)
    texts = (path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py")))
    for text in texts:
        if MARK not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for fault in _faults(node):
                    found[fault].append(node.name)
    return dict(found)


def with_tests(page: str) -> str:
    """Add to each line of docs/faults.md the tests that make the fault happen."""
    tests = marked_tests()
    lines = []
    for line in page.splitlines():
        lines.append(line)
        row = ROW.fullmatch(line)
        if row is not None and (names := dict.fromkeys(tests.get(row[1], ()))):
            lines[-1] += "\\"  # a line break
            lines.append("  " + ", ".join(f"`{name}`" for name in names))
    return "\n".join(lines)


def _faults(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == MARK:
            yield from (ast.literal_eval(argument) for argument in decorator.args)
