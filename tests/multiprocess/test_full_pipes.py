"""More records at once than pipes take: no process waits for one that waits for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.kit.nights import NIGHTLY, at_night
from tests.multiprocess.groups import DEADLINE, started
from tests.multiprocess.programs.floods import FLOOD, KEYS, LARGE, LINE, MANY, PARTS

pytestmark = pytest.mark.slow

LARGE_ONES = {str(part): LARGE + part for part in range(PARTS)}
TOTALS = {
    "large_records": LARGE_ONES,
    "large_output": LARGE_ONES,
    "large_text": {str(part): part for part in range(PARTS)},
    "large_states": {str(part): part for part in range(PARTS)},
    "flood": {str(key): sum(range(key, FLOOD, KEYS)) for key in range(KEYS)},
    "one_worker": {"0": PARTS * MANY * 1_000},
    "all_to_all": {str(key): PARTS * len(range(key, MANY, 43)) * 1_000 for key in range(43)},
}


@pytest.mark.fault("J4")
@pytest.mark.parametrize("method", ["forkserver", "spawn"] if NIGHTLY else ["forkserver"])
@pytest.mark.parametrize("name", at_night(TOTALS, but=["large_states"]))
def test_no_process_waits_for_one_that_waits_for_it(tmp_path: Path, name: str, method: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.multiprocess.programs.floods", name, method]
    with started(command, tmp_path) as program:
        program.end(seconds=5 * DEADLINE if NIGHTLY else DEADLINE)
        *printed, totals, workers = program.said
    assert json.loads(totals) == TOTALS[name]
    assert workers == str(3 if name == "large_states" else PARTS)
    assert len(printed) == (PARTS if name == "large_text" else 0)
    assert all(line.endswith("x" * LINE) for line in printed)
