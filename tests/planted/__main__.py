"""Plant bugs in copies of the package, and check that the tests find them: ``python -m tests.planted``.

Exit code 1 means a bug that no test found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.planted.bugs import BUGS
from tests.planted.hunt import Bug, Verdict, hunt


def main() -> int:
    """Plant the chosen bugs, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", help="plant only the bugs whose name or file contains this")
    parser.add_argument("--parallel", type=int, default=1, help="how many are hunted at once (default: 1)")
    parser.add_argument("--list", action="store_true", help="list the bugs, and hunt none")
    chosen = parser.parse_args()
    bugs = [bug for bug in BUGS if chosen.only is None or chosen.only in bug.name or chosen.only in bug.file]
    if chosen.list:
        print(*(f"{bug.file}: {bug.name} ({bug.trap})" for bug in bugs), sep="\n")
        return 0
    survivors = [bug.name for bug in _hunted(bugs, chosen.parallel)]
    print(f"{len(bugs) - len(survivors)} of {len(bugs)} bugs were found", *survivors, sep="\n  not found: ")
    return 1 if survivors else 0


def _hunted(bugs: Iterable[Bug], parallel: int) -> Iterable[Bug]:
    """Hunt each bug, and print the outcome; yield the survivors."""
    with ThreadPoolExecutor(parallel) as pool:
        for bug, (verdict, seconds, report) in pool.map(lambda it: (it, hunt(it)), bugs):
            print(f"{verdict.value:8} {seconds:4.0f} s  {bug.name} [{bug.file}]  {report}", flush=True)
            if verdict is Verdict.SURVIVED:
                yield bug


if __name__ == "__main__":
    sys.exit(main())
