"""``python -m tests.connectors.kafka [TIMES]``: kill program and broker at every point, ten times each or as told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).with_name("test_kills.py")


def main(times: int) -> None:
    """Run the tests again and again, until one fails."""
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "nightly"}
    for number in range(times):
        print(f"round {number + 1} of {times}", flush=True)
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", str(TESTS)], check=True, env=environment)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
