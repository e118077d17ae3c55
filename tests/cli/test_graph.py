"""``malflow graph``."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Malflow, Script

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


def test_format_that_is_none(script: Script, malflow: Malflow) -> None:
    done = malflow("graph", script(""), "--format", "png")
    assert (done.code, "'boxes', 'mermaid', 'dot', 'svg', 'json'" in done.err) == (2, True)
