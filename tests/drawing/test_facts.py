"""The facts that a drawing shows: methods, versions, files, outputs, exchanges and stages; its schema."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

import malflow
from malflow import GraphError, StreamProvider, agg, drawing, limit_out_of_orderness
from malflow.drawing.picture import picture_of
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.streams.operators.several import LateResults, Matches, Throttled, Timed
from malflow.windows import tumbling

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


def flow(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(9)))
    timed = numbers.assign_timestamps("number", lambda msg: msg.value)
    on_time, late = timed.generate_epochs("time", limit_out_of_orderness(1))
    keyed = on_time.key_distribute("parity", lambda msg: msg.value % 2)
    keyed.window(tumbling(3)).aggregate("sums", agg.sum(), version=2).sink("out", VecSink())
    late.sink("late", VecSink())


def graph_of(build: Any) -> Graph:
    graph = Graph()
    build(StreamProvider(graph))
    return graph


def test_the_schema_of_a_document_stays() -> None:
    found = json.loads(malflow.draw(flow, "json"))
    assert found == drawing.document(compile_graph(graph_of(flow)))
    assert {name: type(value) for name, value in found.items()} == {
        "malflow": int,
        "kind": str,
        "nodes": list,
        "edges": list,
        "stages": list,
        "width": int,
        "height": float,
    }
    sums = next(node for node in found["nodes"] if node["name"] == "sums")
    places = {name: sums.pop(name) for name in ("x", "y", "width", "height")}
    assert all(isinstance(it, int | float) for it in places.values())
    assert sums.pop("location").startswith(f"{__file__}:")
    assert sums == {
        "id": 4,
        "name": "sums",
        "label": "sums",
        "kind": "window",
        "implementation": None,
        "state": "window",
        "version": 2,
        "stage": 1,
        "exchange": False,
        "outputs": ["0"],
        "unread": [],
    }
    late = next(edge for edge in found["edges"] if edge["label"] == "late")
    assert all(len(point) == 2 for point in late.pop("points"))
    assert late == {"source": 2, "output": 1, "target": 6, "input": 0, "label": "late", "form": None}
    assert [sorted(stage) for stage in found["stages"]] == [["number", "width", "x"]] * 2


def test_operators_have_the_words_of_the_methods_that_add_them() -> None:
    boxes = picture_of(graph_of(flow)).boxes
    assert {box.name: box.facts[0] for box in boxes} == {
        "numbers": "source SingleIteratorSource",
        "number": "assign_timestamps",
        "time": "generate_epochs",
        "parity": "key_distribute",
        "sums": "window v2",
        "out": "sink VecSink",
        "late": "sink VecSink",
    }
    assert [box.name for box in boxes if box.exchange] == ["parity"]


def test_the_two_steps_of_an_exchange_are_one_box() -> None:
    graph = graph_of(flow)
    parity = next(box for box in picture_of(graph).boxes if box.name == "parity")
    assert [type(graph.vertices[it].node).__name__ for it in parity.vertices] == ["KeyNode", "ExchangeNode"]


@pytest.mark.parametrize("format", get_args(drawing.Format))
def test_every_format_shows_files_lines_and_versions(format: Any) -> None:  # noqa: A002 - the argument of `draw`
    drawn = malflow.draw(flow, format).replace("#46;", ".").replace("#58;", ":")
    assert f"test_facts.py:{flow.__code__.co_firstlineno + 1}" in drawn
    assert "window v2" in drawn or '"version": 2' in drawn


def test_names_of_outputs_are_those_of_the_results() -> None:
    def build(provider: StreamProvider) -> None:
        ones = provider.new_stream().source("in", SingleIteratorSource([datetime.now(UTC)]))
        timed = ones.event_time("time", lambda msg: msg.value, out_of_orderness=DAY)
        keyed = timed.key_distribute("key", lambda msg: 0)
        keyed.throttle("limit", 1, per=DAY)
        keyed.match("match", step("a", lambda value: True).within(DAY))
        keyed.rollup("levels", ["day", "month"], agg.count())
        keyed.window(tumbling(DAY)).allow_late(until=DAY).aggregate("late", agg.count())

    outputs = {box.name: box.outputs for box in picture_of(graph_of(build)).boxes}
    assert outputs["time"] == Timed._fields
    assert outputs["limit"] == Throttled._fields
    assert outputs["match"] == Matches._fields
    assert outputs["levels"] == ("days", "months")
    assert outputs["late"] == LateResults._fields


def test_a_list_replaces_boxes_that_do_not_fit() -> None:
    assert "╭" in malflow.draw(flow, width=40)
    listed = malflow.draw(flow, width=25).splitlines()
    assert [line.split()[0] for line in listed] == ["1", "2", "3", "4", "5", "6", "7"]
    assert listed[3].split()[1:5] == ["←", "3", "on_time", "║"]
    assert malflow.draw(flow, width=25, stages=True).splitlines()[-4] == "stage 1"


def test_narrow_boxes_keep_the_line_of_the_file() -> None:
    assert f"…_facts.py:{flow.__code__.co_firstlineno + 1} │" in malflow.draw(flow, width=30)


def test_outputs_that_nobody_reads_are_named() -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("in", SingleIteratorSource([1]))
        numbers.event_time("time", lambda msg: msg.value, out_of_orderness=1).sink("out", VecSink())

    assert "not read: late" in malflow.draw(build, "svg")
    assert "event_time" in malflow.draw(build)
    time = next(node for node in json.loads(malflow.draw(build, "json"))["nodes"] if node["name"] == "time")
    assert time["unread"] == ["late"]


def test_a_stream_is_drawn_up_to_now_with_a_mark() -> None:
    stream: Any = StreamProvider(Graph()).new_stream().source("in", SingleIteratorSource([1]))
    branches = stream.map("first", str).split("split", lambda msg, outputs: None, 2)
    text = branches[1]._repr_mimebundle_()["text/plain"]
    assert "◀ here: 1" in text
    assert "┏" in text
    stream.map("second", str)
    shown = stream._repr_mimebundle_()
    assert "second" in shown["text/plain"]
    assert ">here</text>" in shown["text/html"]
    assert "◀ here" in shown["text/plain"]
    assert StreamProvider(Graph()).new_stream()._repr_mimebundle_()["text/plain"] == ""


def test_tables_and_streams_without_epochs_are_drawn_as_others() -> None:
    stream: Any = StreamProvider(Graph()).new_stream().source("in", SingleIteratorSource([1]))
    untimed = stream.assign_timestamps("time", lambda msg: msg.value)
    assert "◀ here" in untimed._repr_mimebundle_()["text/plain"]
    table = stream.key_distribute("key", lambda msg: msg.value).to_table("rows")
    assert "◀ here: changes" in table._repr_mimebundle_()["text/plain"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "png"}, "draw\\(\\) has no format 'png'; write one of 'boxes', 'mermaid'"),
        ({"width": 0}, "width must be a whole number, at least 1; got 0"),
        ({"width": "wide"}, "width must be a whole number, at least 1; got 'wide'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        malflow.draw(flow, **arguments)


def test_a_malformed_dataflow_is_refused_as_by_a_run() -> None:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("in", SingleIteratorSource([1])).assign_timestamps("time", lambda msg: 1)

    with pytest.raises(GraphError, match="leaves a stream without epochs"):
        malflow.draw(build)
    with pytest.raises(GraphError, match="build_dataflow must be a plain function; got 3"):
        malflow.draw(3)  # type: ignore[arg-type] # a mistake of a user
