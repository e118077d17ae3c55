"""Names, files and values with markup, quotes, escape codes or 10 kB of text are harmless in every drawing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from malflow import Progress, SingleThreadRuntime, StreamProvider, TimeRow, TimeTable
from malflow.drawing import document, draw
from malflow.drawing.picture import NAME_LIMIT
from malflow.drawing.text import ending, fitted, table, width
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.drawing.graphs import Flow
from tests.drawing.reading import read

pytestmark = pytest.mark.slow

PRINTABLE = [
    "<img src=x onerror=alert(1)>",
    "</title></svg><script>alert(1)</script>",
    '"]; n0 --> n9; click n0 "javascript:alert(1)',
    "a\"b'c&d&lt;&#60;",
    '" shape=egg label="',
    "\\N\\",
    "`**bold**` %% comment",
    "1. list",
    "style x:#ff;#fff;",
    "{{x}} [x] (x) |x| end",
    "n" * 10_000,
    "名" * 5_000,
    "e" + "\u0301" * 10_000,
]
"""Names that operators may have."""

UNPRINTABLE = ["\x1b[31mred\x1b[0m", "\u202egpj.exe", "\u2066x\u2069", "a\nb\r\0", "\ud800", "\x9b2J", "\ufffe\u2028"]
"""Texts that files, classes and parts may have, but no operator."""

FORMATS = ["boxes", "mermaid", "dot", "svg", "json"]
ELEMENTS = {"svg", "g", "rect", "path", "text", "title"}


class Tags(HTMLParser):
    """Collects the elements of HTML, and the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def flow_of(text: str) -> Flow:
    """Return a dataflow in which a name, a file and the class of a sink have a text."""
    flow = Flow()
    source = SingleIteratorSource[Any]([])
    graph = Graph()
    StreamProvider(graph).new_stream().source("in", source).map("double", str).sink("out", VecSink())
    impl: Any = type(text.replace("\0", "").encode("utf-8", "replace").decode() or "x", (VecSink,), {})()
    first, second, last = graph.vertices
    named = replace(second, node=replace(second.node, name=text), location=f"/tmp/{text}.py:7")  # noqa: S108 - a text
    sink: Any = last.node
    flow.vertices = [first, named, replace(last, node=replace(sink, sink=replace(sink.sink, impl=impl)))]
    return flow


@pytest.mark.parametrize("text", [*PRINTABLE, *UNPRINTABLE], ids=lambda text: ascii(text)[:24])
@pytest.mark.parametrize("format", FORMATS)
def test_texts_are_printable_short_and_escaped(format: Any, text: str) -> None:  # noqa: A002 - the argument of `draw`
    flow = flow_of(text)
    drawn = draw(flow, format, stages=True)
    assert drawn.replace("\n", "").isprintable()
    if format == "json":
        assert document(flow)["nodes"][1]["name"] == text
        assert width(document(flow)["nodes"][1]["label"]) <= NAME_LIMIT
        return
    assert len(drawn) < 6_000
    if format == "boxes":
        assert len({width(line) for line in drawn.splitlines() if line[:1] == "│"}) <= 3
        return
    names, arrows = read(drawn, format)
    assert names == {"in", fitted(text, NAME_LIMIT), "out"}
    assert sum(arrows.values()) == 2
    if format == "svg":
        assert {element.tag.rpartition("}")[2] for element in ET.fromstring(drawn).iter()} == ELEMENTS  # noqa: S314
    if format == "mermaid":
        assert "<" not in drawn.replace("<br/>", "")


@pytest.mark.parametrize("text", PRINTABLE, ids=lambda text: text[:20])
def test_notebooks_show_names_as_text(text: str) -> None:
    text = text.replace("/", "|")

    def build(provider: StreamProvider) -> None:
        shown = provider.new_stream().source("in", SingleIteratorSource([1])).map(text, str)
        bundles.append(shown._repr_mimebundle_())
        shown.sink("out", VecSink())

    bundles: list[dict[str, str]] = []
    handle = SingleThreadRuntime(build).start()
    handle.await_termination()
    bundles += [handle._repr_mimebundle_(), handle.progress._repr_mimebundle_()]
    for bundle in bundles:
        seen = Tags(bundle["text/html"])
        assert seen.tags <= {*ELEMENTS, "div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}
        assert not {name for name in seen.attributes if name.startswith("on") or name in ("href", "src")}


@pytest.mark.parametrize("text", [*PRINTABLE, *UNPRINTABLE], ids=lambda text: ascii(text)[:24])
@pytest.mark.parametrize(
    "make",
    [
        lambda text: Progress(1, 1, {text: 1}, 0, None, 0, late={text: 1})._repr_mimebundle_(),
        lambda text: TimeTable(
            datetime.now(UTC), (TimeRow(text, 0, text, 1, text, text, text, text, text, text),), {text: 1}, {text: text}
        )._repr_mimebundle_(),
        lambda text: {"text/html": table([text], [[text]], text)},
    ],
)
def test_tables_show_texts_as_text(make: Callable[[str], dict[str, str]], text: str) -> None:
    drawn = make(text)["text/html"]
    assert Tags(drawn).tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert drawn.isprintable()
    assert len(drawn) < 25_000


@pytest.mark.parametrize("limit", [1, 2, 7, 40])
@pytest.mark.parametrize("text", [*PRINTABLE, *UNPRINTABLE, "", "abc"], ids=lambda text: ascii(text)[:24])
def test_plain_texts_have_at_most_their_width(text: str, limit: int) -> None:
    assert width(fitted(text, limit)) <= limit
    assert width(ending(text, limit)) <= limit
