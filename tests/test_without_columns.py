"""Programs and tests without the libraries of the extra `columns`: errors with the cure, and the same results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.bare_python import bare_python

ROOT = Path(__file__).parents[1]
LIBRARIES = ["numpy", "pyarrow"]

WITHOUT = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""The beginning of a script that can't import the libraries in its arguments."""

BUILD = """
from malflow import SingleThreadRuntime

def built(add):
    SingleThreadRuntime(add)._built()

def missed(use):
    from malflow import MissingDependency
    try:
        return repr(use())
    except MissingDependency as error:
        return str(error)

def parquet():
    from malflow.connectors.parquet import ParquetSource
    return ParquetSource("x.parquet")

def arrow():
    from malflow.connectors.parquet import ArrowSource
    return ArrowSource([])

def decoder():
    from malflow.connectors.codecs import JsonColumns
    return JsonColumns(None)

def lines():
    from malflow.sources import JsonLinesSource
    return JsonLinesSource("x.json", schema=object())

def stream(method, *arguments):
    from malflow.sources import SingleIteratorSource
    def add(provider):
        getattr(provider.new_stream().source("in", SingleIteratorSource([])), method)("op", *arguments)
    return built(add)

uses = [parquet, arrow, decoder, lines]
uses += [lambda: stream("map_batches", len), lambda: stream("filter_batches", len), lambda: stream("to_columns")]
print(json.dumps([missed(use) for use in uses]))
"""


def ran(script: str, *arguments: str) -> Any:
    """Run a script in a new process, and return the document that it prints."""
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


@pytest.mark.parametrize("libraries", [["numpy"], ["pyarrow"], LIBRARIES], ids=" and ".join)
@pytest.mark.slow
def test_an_error_names_the_extra_before_anything_runs(libraries: list[str]) -> None:
    pytest.importorskip("pyarrow")
    for text in ran(WITHOUT + BUILD, *libraries):
        assert "pyarrow" in text
        assert text.endswith(("; pip install 'malflow[columns]'", "; pip install 'malflow[parquet]'")), text


TOTALS = """
from malflow import SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import tumbling

rows = [{"at": at, "word": f"w{at % 3}", "n": at if at % 5 else at / 4} for at in range(100)]
out = VecSink()

def build(provider):
    source = provider.new_stream().source("rows", SingleIteratorSource(rows))
    timed = source.event_time("time", "at", out_of_orderness=5, every=10)
    windows = timed.key_distribute("word", "word").window(tumbling(20))
    windows.aggregate("sums", agg.sum("n"), agg.mean("n"), agg.max("n")).sink("out", out)

SingleThreadRuntime(build, parallelism=2).execute()
print(json.dumps(sorted([msg.key, msg.value.start, list(msg.value.value)] for msg in out)))
"""
"""Prints the results of windows by fields over dicts."""


@pytest.mark.slow
def test_windows_by_fields_need_neither_library() -> None:
    found, without_numpy, bare = (ran(WITHOUT + TOTALS, *libraries) for libraries in ([], ["numpy"], LIBRARIES))
    assert found == without_numpy == bare
    assert len(found) == 15


@pytest.mark.parametrize("without", [["numpy", "pandas"], ["numpy", "pandas", "pyarrow", "deltalake"]], ids=" ".join)
@pytest.mark.nightly
def test_tests_are_collected_without_the_libraries(without: list[str], tmp_path: Path) -> None:
    """`make bare` runs them."""
    for library in without:
        pytest.importorskip(library)
    python = bare_python(tmp_path / "bare", without)
    command = [str(python), "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr[-2000:]
    assert re.search(r"tests/columns/test_frames.py: (numpy|pyarrow) not installed", collected.stdout)
