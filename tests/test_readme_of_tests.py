"""The table in tests/README.md has a row for each folder of tests."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_each_folder_has_a_row() -> None:
    rows = re.findall(
        r"^\| \[`(\w+)/`\]\((\w+)\) \| \S", (TESTS / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    folders = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/*.py")})
    assert [name for name, _ in rows] == folders
    assert all(name == target for name, target in rows)
