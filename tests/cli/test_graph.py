"""``malflow graph``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Malflow, Script

pytestmark = pytest.mark.slow

pytest.importorskip("malflow.drawing")


def test_drawing_of_a_script(script: Script, malflow: Malflow) -> None:
    flow = script("SingleThreadRuntime(build_dataflow).execute()")
    done = malflow("graph", flow)
    assert (done.code, done.err) == (0, "")
    assert all(name in done.out for name in ("words", "word", "count", "out"))
    assert "a1" not in done.out
    assert malflow("graph", flow, "--format", "mermaid").out.startswith("flowchart")
    assert malflow("graph", flow, "--format", "svg").out.startswith("<svg")
    assert malflow("graph", flow, "--format", "dot").out.startswith("digraph")
    assert max(map(len, malflow("graph", flow, "--width", 40).out.splitlines())) <= 40
    document = json.loads(malflow("graph", flow, "--json").out)
    assert (document["malflow"], document["kind"]) == (1, "graph")


FILES = """
from malflow import MultiProcessRuntime, SingleThreadRuntime
from malflow.snapshot import FsspecBackend
from malflow.sinks import VecSink
from malflow.sources import TextFileSource

def build_dataflow(provider):
    provider.new_stream().source("lines", TextFileSource("in/*.txt")).sink("out", VecSink())

"""


def lines_of(done: Done) -> list[str]:
    """Return the lines that were written, without folders."""
    return done.out.replace(f"{Path('in').resolve()}/", "").splitlines()


def test_parts_by_worker_as_they_would_be_dealt(script: Script, malflow: Malflow) -> None:
    Path("in").mkdir()
    for name in "abc":
        Path(f"in/{name}.txt").write_text("1\n2\n")
    flow = script("SingleThreadRuntime(build_dataflow).execute()", head=FILES)
    assert lines_of(malflow("graph", flow, "--parts", "--parallelism", 2)) == [
        "worker 0: 2 parts",
        "  lines  'a.txt'",
        "  lines  'c.txt'",
        "worker 1: 1 part",
        "  lines  'b.txt'",
    ]
    assert [json.loads(it) for it in malflow("graph", flow, "--parts", "--json").out.splitlines()] == [
        {
            "malflow": 1,
            "kind": "worker_parts",
            "worker": 0,
            "parts": [{"source": "lines", "part": repr(f"{Path('in').resolve()}/{name}.txt")} for name in "abc"],
        }
    ]


def test_parts_stay_where_a_snapshot_has_them(script: Script, malflow: Malflow) -> None:
    Path("in").mkdir()
    for name in "bc":
        Path(f"in/{name}.txt").write_text("1\n2\n")
    text = "SingleThreadRuntime(build_dataflow, parallelism=2, persistence=FsspecBackend('kept', job='j')).execute()"
    flow = script(text, head=FILES)
    assert malflow("run", flow).code == 0
    Path("in/a.txt").write_text("3\n4\n")
    by_two = ["worker 0: 2 parts", "  lines  'a.txt'", "  lines  'b.txt'", "worker 1: 1 part", "  lines  'c.txt'"]
    assert lines_of(malflow("graph", flow, "--parts")) == by_two
    by_two[2], by_two[4] = by_two[4], by_two[2]
    assert lines_of(malflow("graph", flow, "--parts", "--restore", "none")) == by_two


def test_parts_that_wait_for_a_worker(script: Script, malflow: Malflow) -> None:
    Path("in").mkdir()
    for size, name in enumerate("abcdefg"):
        Path(f"in/{name}.txt").write_text("1\n" * (9 - size))
    flow = script("SingleThreadRuntime(build_dataflow, parallelism=2).execute()", head=FILES)
    assert lines_of(malflow("graph", flow, "--parts")) == [
        *("worker 0: 2 parts", "  lines  'a.txt'", "  lines  'd.txt'"),
        *("worker 1: 2 parts", "  lines  'b.txt'", "  lines  'c.txt'"),
        *("for the first worker that has read its parts: 3 parts", *(f"  lines  '{name}.txt'" for name in "efg")),
    ]


def test_parts_that_could_not_be_read(script: Script, malflow: Malflow) -> None:
    flow = script("SingleThreadRuntime(build_dataflow).execute()", head=FILES)
    done = malflow("graph", flow, "--parts")
    assert (done.code, done.out) == (10, "")
    assert "refused: operator 'lines' failed: InputFileError" in done.err


def test_format_that_is_none(script: Script, malflow: Malflow) -> None:
    done = malflow("graph", script(""), "--format", "png")
    assert (done.code, "'boxes', 'mermaid', 'dot', 'svg', 'json'" in done.err) == (2, True)
