"""The examples on Spark."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from examples import on_spark
from malflow import SingleThreadRuntime
from tests.kit.nights import NIGHTLY
from tests.spark.clusters import SECONDS, need_spark, users_environment

ROOT = Path(__file__).parents[2]
OTHERS = {"first", "scheduled_reports"}
"""A fragment, and a program that runs by the clock: a slow start of Spark takes longer than all of its instants."""
BUILT = [
    path.stem
    for path in sorted((ROOT / "examples").glob("*.py"))
    if "\ndef build_" in path.read_text(encoding="utf-8") and path.stem not in OTHERS
]
ONE_BY_ONE = "--conf spark.master=local[1,4] pyspark-shell"
"""One process of Python at a time: the lines of several would run into each other."""

ALL_ON_SPARK = """
import importlib
import sys

from malflow import SparkRuntime
from malflow.runtime.spark.session.session import make_session

session, _ = make_session()
for name in sys.argv[1:]:
    module = importlib.import_module(f"examples.{name}")
    for function in dir(module):
        if function.startswith("build_"):
            SparkRuntime(getattr(module, function), parallelism=2, spark=session).execute()
session.stop()
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_the_flights_come_to_the_same_on_spark(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    on_spark.main()
    assert capsys.readouterr().out == (
        "             on Spark          on one thread\n"
        "hours      1,763 totals           1,763 totals  equal\n"
        "carriers      16 totals              16 totals  equal\n"
        "late           3 totals               3 totals  equal\n"
        "cancelled      3 totals               3 totals  equal\n"
        "26,483 flights left\n"
    )


def counted(lines: Iterable[str]) -> Counter[str]:
    return Counter(re.sub(r" @ worker \d$", "", line) for line in lines)


@pytest.mark.spark
@pytest.mark.nightly
def test_examples_say_on_spark_what_they_say_on_one_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the standard output, where sinks print; user functions print to the standard error of other processes."""
    need_spark()
    names = BUILT if NIGHTLY else BUILT[::3]
    for name in names:
        module = importlib.import_module(f"examples.{name}")
        for function in dir(module):
            if function.startswith("build_"):
                SingleThreadRuntime(getattr(module, function), parallelism=2).execute()
    expected = counted(capsys.readouterr().out.splitlines())
    assert len(expected) > len(names)
    done = subprocess.run(
        [sys.executable, "-c", ALL_ON_SPARK, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**users_environment(tmp_path), "PYSPARK_SUBMIT_ARGS": ONE_BY_ONE},
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert counted([*done.stdout.splitlines(), *done.stderr.splitlines()]) == expected
