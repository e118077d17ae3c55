"""A process that has a run's folders until it is killed: ``python -m tests.spark.programs.live SCRATCH JOB EPOCH``."""

from __future__ import annotations

import sys

from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, pack_entry
from malflow.runtime.spark.changelog.leftovers import OF_QUERY, OF_SCRATCH, Claimed, Sweep, run_name, temporary_folder


def main() -> None:
    place = ScratchFolder(sys.argv[1], {}, run_name(), b"k" * 32)
    folders = [temporary_folder(OF_QUERY), temporary_folder(OF_SCRATCH)]
    Changelog(place, 1).write(0, 0, pack_entry(ChangelogEntry(1, NEVER, {})))
    Sweep(place, is_temporary=False).start(Claimed(sys.argv[2], int(sys.argv[3])))
    print(place.run, *folders, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
