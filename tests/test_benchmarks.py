"""The benchmarks run, at a scale at which their figures are meaningless."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kit.spark_session import QUICK_JAVA

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]

needs_bytewax = pytest.mark.skipif(find_spec("bytewax") is None, reason="bytewax is not installed")


@pytest.mark.parametrize(
    ("script", "arguments", "row"),
    [
        ("epochs.py", ["--records", "2000"], "datetimes, 3 s disorder, 8 parts"),
        ("exchange.py", ["--rounds", "1", "--records", "2000"], "tuples, windows, functions that call"),
        ("connectors.py", ["--only", "parquet", "--records", "3000"], "malflow, row=tuple"),
        ("window_state.py", ["--keys", "2000", "--seconds", "2", "--records", "2000,4000"], "interval join"),
        ("operate.py", ["--only", "policies", "--records", "2000"], "stateful_map"),
        ("nexmark.py", ["--only", "plan"], "q5"),
        pytest.param("windows.py", ["--records", "3000"], "session, gap 5 s", marks=needs_bytewax),
        pytest.param("garbage.py", ["--records", "3000"], "sliding 60 s by 1 s", marks=needs_bytewax),
        pytest.param(
            "processes.py",
            ["--only", "a,b,d,h", "--records", "3200"],
            "(h) 200 uneven files by functions",
            marks=needs_bytewax,
        ),
        (
            "processes.py",
            ["--only", "start,ticks", "--starts", "2", "--ticks", "5", "--processes", "2"],
            "2 processes, forkserver",
        ),
        ("state.py", ["--only", "read,key", "--keys", "2000", "--workers", "2", "--states", "1"], "counts"),
        pytest.param("state.py", ["--only", "tables", "--records", "2000"], "join_table, time", marks=needs_bytewax),
        ("state.py", ["--only", "live", "--seconds", "0.3", "--runtimes", "single_thread"], "single_thread, busy"),
        ("operate.py", ["--only", "monitor", "--records", "20000"], "8,192"),
        ("operate.py", ["--only", "page", "--records", "2000"], "8,192"),
        ("operate.py", ["--only", "calls", "--records", "100"], "log-normal, median 10 ms"),
        ("operate.py", ["--only", "plan", "--records", "1000"], "1,000"),
        pytest.param(
            "spark.py",
            ["--only", "parts", "--seconds", "1", "--warm-up", "1"],
            "malflow ",
            marks=[pytest.mark.spark, needs_bytewax],
        ),
        ("scale.py", ["--workers", "10", "--only", "driver,restores", "--keys", "2000"], "10 workers, 4 stages"),
    ],
)
def test_benchmarks_of_time_print_their_tables(script: str, arguments: list[str], row: str) -> None:
    rounds = [] if script == "window_state.py" else ["--rounds", "1"]
    assert f"\n| {row} " in printed(script, *rounds, *arguments)


@needs_bytewax
def test_benchmark_of_partial_aggregation_measures_its_work() -> None:
    assert '"bytes": ' in printed("scale.py", "--one", '["work", 100, 2, 1, 1, 1]')


def test_benchmark_of_postgres_prints_its_tables(postgres_dsn: str) -> None:
    small = ("--rounds", "1", "--records", "2000")
    found = printed("connectors.py", "--only", "postgres", "--postgres", postgres_dsn, *small)
    assert "\n| PostgresSink, exactly once " in found
    assert "\n| PostgresChanges " in found


def test_benchmark_of_kafka_prints_its_table(kafka_servers: str) -> None:
    small = ("--rounds", "1", "--records", "2000")
    found = printed("connectors.py", "--only", "kafka", "--kafka", kafka_servers, *small)
    assert "\n| bare client " in found
    assert "\n| malflow " in found
    assert ("\n| bytewax" in found) == (find_spec("bytewax") is not None)


@needs_bytewax
def test_benchmark_of_processes_on_kafka_prints_its_table(kafka_servers: str) -> None:
    small = ("--rounds", "1", "--records", "3200")
    found = printed("processes.py", "--only", "c,g", "--kafka", kafka_servers, *small)
    assert "\n| (c) Kafka to windows to Kafka " in found
    assert "\n| (g) 12 partitions of Kafka by functions " in found


def printed(script: str, *arguments: str) -> str:
    """Run a benchmark; return what it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_SUBMIT_OPTS": QUICK_JAVA}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
