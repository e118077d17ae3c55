"""On every runtime, a plan predicts a start from the snapshots that this runtime has taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from malflow.errors import MalflowError
from malflow.runtime.base import declared_by
from malflow.runtime.building import built
from malflow.runtime.start_plan import planned
from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept
from tests.planning.programs import Op, Program

BEFORE = Program((Op("a", "stateful_map"), Op("b", "window"), Op("c", "stateful_op", "local")))
CHANGED = {
    "a state without an operator": replace(BEFORE, ops=BEFORE.ops[1:]),
    "other windows": BEFORE.with_op("b", size=4),
    "a missing migration": BEFORE.with_op("a", version=2).with_op("c", version=2),
    "a failing migration": BEFORE.with_op("a", version=2, migrate="bad"),
    "a new name, and a migration": replace(
        BEFORE.with_op("a", name="d", version=2, migrate="good"), renamed={"a": "d"}
    ),
}


def test_plan_says_what_the_start_does(runtime: Any, store: FsspecBackend, tmp_path: Path) -> None:
    runtime(BEFORE.builder(tmp_path), store).execute()
    for what, program in CHANGED.items():
        options = {name: it for name, it in program.options.items() if name != "parallelism"}
        made = runtime(program.builder(tmp_path), store, **options)
        plan = planned(built(program.builder(tmp_path)), declared_by(made).options, deep=True)
        assert plan.workers == 1
        if not plan.refusals:
            made.execute()
            assert what == [*CHANGED][-1]
            keys = kept(store).keys
            assert [keys.get(name) for name in "abcd"] == [None, 2, 3, 3]
            continue
        with pytest.raises(MalflowError) as raised:
            made.execute()
        assert str(raised.value) == str(plan.refusals[0].error), what
