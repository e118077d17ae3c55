"""A tick of which Spark does a part again, by hand: what the gate and a stage make of other records than before."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.batch import Batch
from malflow.errors import RunFailed
from malflow.graph import Graph
from malflow.plan import Program, compile_graph
from malflow.runtime.spark.chains import Chains
from malflow.runtime.spark.gate import Gate, Outlets, Wishes
from malflow.runtime.spark.host import _Turn
from malflow.runtime.spark.job import Control, Job, Report
from malflow.runtime.spark.payload import payload
from malflow.runtime.spark.scratch import NEVER, Scratch, ScratchPlace
from malflow.runtime.spark.session import require_spark
from malflow.runtime.spark.wire import REPORT, Row, pack
from tests.spark.flows import sums

WORKERS = 2


def program() -> Program:
    graph = Graph()
    sums(10)(StreamProvider(graph))
    return compile_graph(graph)


def place(folder: Path) -> ScratchPlace:
    return ScratchPlace(str(folder), {}, "ab" * 8, b"a key for tests", pickle.dumps({}))


def told(stage: int, worker: int, taken: Mapping[tuple[int, int], int], sent: Mapping[tuple[int, int], int]) -> Row:
    report = Report(1, stage, worker, None, False, {}, 0, ["numbers"], taken, sent)
    return Row(worker, REPORT, worker, pickle.dumps(report), [0] * len(program().vertices))


@pytest.mark.parametrize("came", [2, 0, 4])
def test_a_tick_of_which_two_tries_are_mixed_starts_the_run_again(came: int, tmp_path: Path) -> None:
    made = program()
    gate = Gate(
        made,
        0,
        Chains(2, WORKERS),
        Scratch(place(tmp_path), 1),
        Outlets(made),
        None,
        Wishes(),
        pause=0,
    )
    gate.first(frozenset({"numbers"}))
    taken = {(0, 1): came} if came else {}
    rows = [told(0, 0, {}, {}), told(0, 1, {}, {(0, 0): 3}), told(1, 0, taken, {}), told(1, 1, {}, {})]
    with pytest.raises(RunFailed, match=f"worker 0 took {came} records of the 3 that worker 1 sent to it on channel 0"):
        gate(rows)
    rows[2] = told(1, 0, {(0, 1): 3}, {})
    following = gate(rows)
    assert following is not None
    assert following.tick == 2


@pytest.mark.spark
def test_a_stage_that_is_done_again_with_other_records_starts_the_run_again(tmp_path: Path) -> None:
    require_spark()
    made = program()
    job = Job(1, WORKERS, payload(made, {"numbers": [[], []]}), place(tmp_path), 1, None, 0.5, False)
    control = Control(1, [[NEVER] * WORKERS] * 2)

    def done(values: list[int]) -> list[Row]:
        rows = [Row(0, 0, 1, pack([Batch([0] * len(values), values, values)]))]
        return [*_Turn(job, 1, 0, control).take(rows)]

    def reported(rows: list[Row]) -> Any:
        return [pickle.loads(row.blob) for row in rows if row.channel == REPORT]

    first = reported(done([1, 2, 3]))
    assert reported(done([1, 2, 3])) == first
    with pytest.raises(
        RunFailed, match=r"was done again with other records.*it took \{\(0, 1\): 3\}, and now \{\(0, 1\): 4\}"
    ):
        done([1, 2, 3, 4])
