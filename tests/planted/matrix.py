"""Which tests find which planted bug: ``python -m tests.planted --matrix FILE``.

The file has a line of JSON for each bug, written as soon as the bug was hunted. A bug that has its line is not hunted
again, unless it or its tests have changed: the command can be stopped at any time, and continues where it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.planted.hunt import Bug, Verdict, killers

__all__ = ["Row", "extend", "fingerprint", "read", "told"]

Row = Mapping[str, Any]
"""A line of the file: bug, fingerprint, verdict, seconds, killers, and the number of tests that passed."""


def fingerprint(bug: Bug, more: Iterable[str]) -> str:
    """Return what changes with a bug or with the tests that are to find it."""
    return f"{crc32(repr((bug.old, bug.new, bug.tests, *more)).encode()):08x}"


def read(path: Path) -> dict[str, Row]:
    """Return the rows of a file by bug, the last one of each; a line that was cut off is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["bug"]: row for row in rows}


def extend(path: Path, bugs: Iterable[Bug], more: tuple[str, ...], parallel: int) -> Iterator[Row]:
    """Hunt the bugs that have no row in the file, and write and yield their rows."""
    known = read(path)
    missing = [bug for bug in bugs if known.get(bug.name, {}).get("fingerprint") != fingerprint(bug, more)]
    with ThreadPoolExecutor(parallel) as pool, path.open("a", encoding="utf-8") as file:
        for row in pool.map(lambda bug: _row(bug, more), missing):
            print(json.dumps(row), file=file, flush=True)
            yield row


def _row(bug: Bug, more: tuple[str, ...]) -> Row:
    verdict, seconds, outcomes = killers(bug, more)
    counts = Counter(outcomes.values())
    return {
        "bug": bug.name,
        "fingerprint": fingerprint(bug, more),
        "verdict": verdict.value,
        "seconds": round(seconds, 1),
        "killers": sorted(test for test, outcome in outcomes.items() if outcome in ("failed", "started")),
        "passed": counts["passed"],
    }


def told(rows: Iterable[Row]) -> Iterator[str]:
    """Yield what a matrix says: bugs that no test finds, and those that only one finds."""
    rows = list(rows)
    for row in rows:
        if row["verdict"] == Verdict.SURVIVED.value:
            yield f"not found: {row['bug']}"
    alone = [row for row in rows if len(row["killers"]) == 1]
    yield f"{len(rows)} bugs, {len(alone)} of them found by one test alone:"
    for test, count in Counter(row["killers"][0] for row in alone).most_common():
        yield f"  {count:3} {test}"
