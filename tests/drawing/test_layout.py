"""Drawings of random dataflows show every operator and every edge, and nothing lies on something else."""

from __future__ import annotations

from functools import partial
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.drawing import compact_document, document, draw
from malflow.drawing.chains import collapsed
from malflow.drawing.coordinates import COMPACT, name_lines
from malflow.drawing.formats import compact_document_of
from malflow.drawing.picture import picture_of
from malflow.drawing.text import fitted
from malflow.nodes import SourceNode, StatelessNode
from malflow.operators.stateless import Map
from malflow.sources import SingleIteratorSource, StatelessSource
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


@pytest.mark.parametrize("form", [document, compact_document])
@given(flow=flows())
def test_nodes_do_not_overlap_and_edges_run_to_the_right(form: Any, flow: Flow) -> None:
    drawn = form(flow)
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


@pytest.mark.parametrize("form", [document, compact_document])
@given(flow=flows())
def test_stages_follow_each_other_from_left_to_right(form: Any, flow: Flow) -> None:
    drawn = form(flow)
    assert {node["name"]: node["stage"] for node in drawn["nodes"]} == flow.stages
    bands = {stage["number"]: stage for stage in drawn["stages"]}
    assert set(bands) == set(flow.stages.values())
    for node in drawn["nodes"]:
        band = bands[node["stage"]]
        assert band["x"] <= node["x"]
        assert _right(node) <= band["x"] + band["width"]
    assert all(one["x"] + one["width"] == other["x"] for one, other in pairwise(drawn["stages"]))


@given(flow=flows())
def test_chains_have_every_operator_once_and_keep_the_edges_between_them(flow: Flow) -> None:
    picture = picture_of(flow)
    short, groups = collapsed(picture)
    assert sorted(index for group in groups for index in group) == list(range(len(picture.boxes)))
    home = {index: at for at, group in enumerate(groups) for index in group}
    inner = {pair for group in groups for pair in pairwise(group)}
    arrows = [(it.source, it.output, it.target, it.input) for it in picture.arrows]
    assert inner <= {(source, target) for source, _, target, _ in arrows}
    kept = [(home[it[0]], it[1], home[it[2]], it[3]) for it in arrows if (it[0], it[2]) not in inner]
    assert [(it.source, it.output, it.target, it.input) for it in short.arrows] == kept
    for group in groups:
        assert len({picture.boxes[index].stage for index in group}) == 1
        assert len(group) == 1 or not {picture.boxes[index].kind for index in group} & {"source", "sink"}
        assert not any(picture.boxes[index].exchange for index in group[1:])
    assert all(it.source < it.target for it in short.arrows)


def test_a_large_dataflow_is_also_drawn_with_chains_as_one_box() -> None:
    def drawn(length: int) -> dict[str, Any]:
        flow = Flow()
        flow.add([SourceNode("n0", StatelessSource(SingleIteratorSource([])), keyed=False)], [], (None,))
        for number in range(1, length):
            flow.add([StatelessNode(f"n{number}", partial(Map, callback=str))], [number - 1], (None,))
        return compact_document_of(picture_of(flow))

    assert drawn(39)["collapsed"] is None
    nodes = drawn(40)["collapsed"]["nodes"]
    assert [(node["label"], node["members"]) for node in nodes] == [("n0", [0]), ("n1 +38", [*range(1, 40)])]


@given(name=st.text(st.sampled_from("ab _./-"), max_size=30))
def test_long_names_have_two_lines_of_which_the_longer_is_shortest(name: str) -> None:
    label, lines = fitted(name, COMPACT.limit), name_lines(name, COMPACT)
    assert "".join(lines) == label
    cuts = [at for at in range(2, len(label)) if label[at - 1] in " _./-" and label[at] not in " _./-"]
    cuts = [at for at in cuts if label[:at].strip(" _./-")]
    if len(label) > COMPACT.line and cuts:
        assert len(lines) == 2
        assert max(map(len, lines)) == min(max(at, len(label) - at) for at in cuts)
    else:
        assert lines == [label]


def _right(node: dict[str, Any]) -> float:
    return float(node["x"] + node["width"])


def _low(node: dict[str, Any]) -> float:
    return float(node["y"] + node["height"])


def _meets(node: dict[str, Any], across: tuple[float, float], down: tuple[float, float]) -> bool:
    """Whether a rectangle around a part of an edge reaches into a node."""
    is_beside = across[1] <= node["x"] or across[0] >= _right(node)
    return not is_beside and not (max(down) <= node["y"] or min(down) >= _low(node))
