"""Drawings of random dataflows show every operator and every edge, and nothing lies on something else."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given

from malflow.drawing import document, draw
from tests.drawing.graphs import Flow, flows
from tests.drawing.reading import read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", ["mermaid", "dot", "svg", "json"])
@given(flow=flows())
def test_every_operator_and_edge_is_drawn(format: Any, flow: Flow) -> None:  # noqa: A002 - the argument of `draw`
    for stages in (False, True):
        assert read(draw(flow, format, stages=stages), format) == (set(flow.stages), flow.arrows)


@given(flow=flows())
def test_lines_of_boxes_lead_to_the_right_operators(flow: Flow) -> None:
    for width in (10_000, 160):
        names, arrows = read(draw(flow, "boxes", width=width), "boxes")
        assert names == set(flow.stages)
        assert set(arrows) == set(flow.arrows)


@given(flow=flows())
def test_boxes_are_no_wider_than_the_terminal(flow: Flow) -> None:
    for width in (120, 60, 20, 1):
        assert all(len(line) <= width for line in draw(flow, width=width, stages=True).splitlines())


@given(flow=flows())
def test_nodes_do_not_overlap_and_edges_run_to_the_right(flow: Flow) -> None:
    drawn = document(flow)
    nodes = drawn["nodes"]
    for one, other in combinations(nodes, 2):
        apart = (_right(one) < other["x"], _right(other) < one["x"], _low(one) < other["y"], _low(other) < one["y"])
        assert any(apart)
    for edge in drawn["edges"]:
        assert edge["points"][0][0] == _right(nodes[edge["source"]])
        assert edge["points"][-1][0] == nodes[edge["target"]]["x"]
        for (left, before), (right, after) in pairwise(edge["points"]):
            assert left < right
            assert not any(_meets(node, (left, right), (before, after)) for node in nodes)
    assert all(node["x"] >= 0 and _right(node) <= drawn["width"] for node in nodes)
    assert all(node["y"] >= 0 and _low(node) <= drawn["height"] for node in nodes)


@given(flow=flows())
def test_stages_follow_each_other_from_left_to_right(flow: Flow) -> None:
    drawn = document(flow)
    assert {node["name"]: node["stage"] for node in drawn["nodes"]} == flow.stages
    bands = {stage["number"]: stage for stage in drawn["stages"]}
    assert set(bands) == set(flow.stages.values())
    for node in drawn["nodes"]:
        band = bands[node["stage"]]
        assert band["x"] <= node["x"]
        assert _right(node) <= band["x"] + band["width"]
    assert all(one["x"] + one["width"] == other["x"] for one, other in pairwise(drawn["stages"]))


def _right(node: dict[str, Any]) -> float:
    return float(node["x"] + node["width"])


def _low(node: dict[str, Any]) -> float:
    return float(node["y"] + node["height"])


def _meets(node: dict[str, Any], across: tuple[float, float], down: tuple[float, float]) -> bool:
    """Whether a rectangle around a part of an edge reaches into a node."""
    is_beside = across[1] <= node["x"] or across[0] >= _right(node)
    return not is_beside and not (max(down) <= node["y"] or min(down) >= _low(node))
