"""The public package: the names of `import malflow`, and its cost."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import malflow
import malflow.agg
import malflow.events
import malflow.monitor
import malflow.patterns
import malflow.reading
import malflow.sinks
import malflow.snapshot
import malflow.sources
import malflow.store
from malflow.sinks import VecSink
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from tests.kit.extras import needs


@pytest.mark.parametrize(
    "module",
    [
        malflow,
        malflow.agg,
        malflow.events,
        malflow.monitor,
        malflow.patterns,
        pytest.param(malflow.reading, marks=needs("pyarrow")),
        malflow.sources,
        malflow.sinks,
        malflow.snapshot,
        malflow.store,
    ],
)
def test_all_is_sorted_and_complete(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize(
    "name", ["pyspark", "s3fs", "boto3", "pandas", "numpy", "cloudpickle", "asyncio", "malflow.monitor"]
)
@pytest.mark.slow
def test_importing_malflow_brings_nothing_heavy(name: str) -> None:
    program = f"import sys, malflow, malflow.sources, malflow.sinks; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", program], check=False).returncode == 0


class _Numbers(StatefulSourcePartition[int, int, int]):
    """A reader of a user's that was written when tasks of Spark read again what was lost."""

    def __init__(self, position: int | None) -> None:
        self.position = position or 0

    def poll(self) -> tuple[int, int]:
        self.position += 1
        return self.position, self.position

    def is_finished(self) -> bool:
        return self.position == 3

    def snapshot(self) -> int:
        return self.position

    def has_repeated(self, position: int) -> bool:
        raise malflow.SourceNotReplayable(f"not from {position}")


def test_a_reader_with_a_method_that_is_not_called_any_more_works(tmp_path: Path) -> None:
    class Source(StatefulSourceImpl[str, int, int, int]):
        def list_parts(self) -> list[str]:
            return ["numbers"]

        def build_part(self, part: str, state: int | None) -> _Numbers:
            return _Numbers(state)

    def build(provider: malflow.StreamProvider) -> None:
        provider.new_stream().source("in", malflow.sources.StatefulSource(Source())).sink("out", out)

    out: VecSink[Any, int, int] = VecSink()
    malflow.SingleThreadRuntime(build, malflow.snapshot.FsspecBackend(str(tmp_path), job="job")).execute()
    assert [msg.value for msg in out] == [1, 2, 3]
    assert not hasattr(StatefulSourcePartition, "has_repeated")
    assert "No longer raised" in (malflow.SourceNotReplayable.__doc__ or "")


def test_version_is_the_metadatas() -> None:
    assert malflow.__version__ == version("malflow")


BROKEN = """
import importlib, sys
class Broken:
    def find_spec(self, name, path, target=None):
        if name in {"aiohttp", "confluent_kafka", "deltalake", "psycopg", "pyarrow", "redis", "sqlalchemy"}:
            raise ERROR
sys.meta_path.insert(0, Broken())
for room in ("delta", "http", "kafka", "parquet", "postgres", "redis", "sql"):
    try:
        importlib.import_module(f"malflow.connectors.{room}")
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("ModuleNotFoundError('No module named ...')", ""),
        ("ImportError('libc++.so: cannot open it')", ", which can't be imported: libc++.so: cannot open it"),
    ],
)
@pytest.mark.slow
def test_missing_or_broken_library_is_told_with_the_reason(error: str, reason: str) -> None:
    """A library may be there and not loadable, such as psycopg without libpq, or any of them in too little memory."""
    done = subprocess.run(
        [sys.executable, "-c", BROKEN.replace("ERROR", error)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[2] == f"malflow.connectors.kafka needs confluent-kafka{reason}; pip install 'malflow[kafka]'"
    assert [line.partition(";")[0].endswith(reason) for line in lines] == 7 * [True]
    assert len({line.rpartition("pip install")[2] for line in lines}) == 7
