"""Plant bugs in copies of the package, and check that the tests find them: ``python -m tests.planted``.

Exit code 1 means a bug that no test found. With ``--matrix FILE`` all tests of each bug run, not only up to the first
that fails, and the file says which of them fail; it can be stopped and continued, and run in parts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted import matrix
from tests.planted.bugs import BUGS
from tests.planted.hunt import Bug, Verdict, hunt


def main() -> int:
    """Plant the chosen bugs, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", help="plant only the bugs whose name or file contains this")
    parser.add_argument("--parallel", type=int, default=1, help="how many are hunted at once (default: 1)")
    parser.add_argument("--list", action="store_true", help="list the bugs, and hunt none")
    parser.add_argument("--part", metavar="K/N", default="0/1", help="only the K-th of N parts of the bugs, from 0")
    parser.add_argument("--matrix", metavar="FILE", type=Path, help="write which tests find which bug to this file")
    parser.add_argument(
        "--with", dest="more", nargs="+", default=[], help="tests that a matrix has beside those of a bug"
    )
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    bugs = [bug for bug in BUGS if chosen.only is None or chosen.only in bug.name or chosen.only in bug.file]
    bugs = bugs[part::parts]
    if chosen.list:
        print(*(f"{bug.file}: {bug.name} ({bug.trap})" for bug in bugs), sep="\n")
        return 0
    if chosen.matrix is not None:
        return _matrix(chosen.matrix, bugs, tuple(chosen.more), chosen.parallel)
    survivors = [bug.name for bug in _hunted(bugs, chosen.parallel)]
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} bugs were found", *survivors, sep="\n  not found: ")
    return 1 if survivors else 0


def _matrix(path: Path, bugs: Sequence[Bug], more: tuple[str, ...], parallel: int) -> int:
    """Complete a matrix, and print what it says of these bugs."""
    for row in matrix.extend(path, bugs, more, parallel):
        print(f"{row['verdict']:8} {row['seconds']:4.0f} s  {row['bug']}  {len(row['killers'])} tests", flush=True)
    known = matrix.read(path)
    rows = [known[bug.name] for bug in bugs]
    print(*matrix.told(rows), sep="\n")
    return 1 if any(row["verdict"] == Verdict.SURVIVED.value for row in rows) else 0


def _hunted(bugs: Iterable[Bug], parallel: int) -> Iterable[Bug]:
    """Hunt each bug, and print the outcome; yield the survivors."""
    with ThreadPoolExecutor(parallel) as pool:
        for bug, (verdict, seconds, report) in pool.map(lambda it: (it, hunt(it)), bugs):
            print(f"{verdict.value:8} {seconds:4.0f} s  {bug.name} [{bug.file}]  {report}", flush=True)
            if verdict is Verdict.SURVIVED:
                yield bug


if __name__ == "__main__":
    sys.exit(main())
