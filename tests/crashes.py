"""``python -m tests.crashes [TIMES]``: kill jobs with exactly-once sinks at every point, ten times each or as told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = (
    "transactions/test_kills.py",
    "bad_records/test_kills.py",
    "bad_records/test_killed_refusals.py",
    "bad_records/test_taken_letters.py",
    "campaign/test_scripts.py",
    "connectors/kafka/test_kills.py",
    "connectors/postgres/test_crashes.py",
    "connectors/postgres/test_tables.py",
    "connectors/redis/test_kills.py",
    "connectors/sql/test_kills.py",
    "connectors/test_column_crashes.py",
    "connectors/test_s3_crashes.py",
    "connectors/test_confirmed_positions.py",
    "connectors/test_sources_going_back.py",
    "connectors/test_pairs.py",
    "connectors/test_executor_kills.py",
    "connectors/test_sinks_going_back.py",
    "connectors/kafka/test_laws.py",
    "connectors/test_random_kills.py",
    "examples/test_enriched_orders.py",
)


def main(times: int, *options: str) -> None:
    """Run the tests again and again, with all points that `make test` leaves out, until one fails."""
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-x", *options, *(str(folder / test) for test in TESTS)]
    for number in range(times):
        print(f"round {number + 1} of {times}", flush=True)
        subprocess.run(command, check=True, env={**os.environ, "HYPOTHESIS_PROFILE": "nightly"})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, *sys.argv[2:])
