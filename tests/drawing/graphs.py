"""Random graphs with all kinds of nodes, and the facts that their drawings must show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import strategies as st

from malflow.nodes import (
    EpochsNode,
    ExchangeNode,
    KeyNode,
    Node,
    Port,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    UnionNode,
    Vertex,
)
from malflow.operators.keying import KeyBy
from malflow.operators.routing import Cloned
from malflow.operators.stateless import Map
from malflow.partitioners import rendezvous_select
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource

__all__ = ["Flow", "flows"]

_LOGIC: Any = partial(Map, callback=str)


@dataclass
class Flow:
    """A dataflow that can be drawn, and the model of its drawing.

    Attributes:
        vertices: the vertices.
        stages: the stage of each operator.
        arrows: how often each edge is there: the operators by name, and the output's name if there are several.
    """

    vertices: list[Vertex] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)
    arrows: Counter[tuple[str, str | None, str]] = field(default_factory=Counter)
    _ports: list[tuple[Port, str, str | None]] = field(default_factory=list)

    def add(self, nodes: list[Node], reads: list[int], names: tuple[str | None, ...]) -> None:
        """Add the nodes of one operator; `names` are those of its outputs, `reads` the numbers of outputs it reads."""
        inputs = [self._ports[number % len(self._ports)] for number in reads] if self._ports else []
        name = nodes[0].name
        moves = any(isinstance(node, ExchangeNode) for node in nodes)
        self.stages[name] = max((self.stages[it] for _, it, _ in inputs), default=0) + moves
        self.arrows.update((source, output, name) for _, source, output in inputs)
        ports: tuple[Port, ...] = tuple(port for port, _, _ in inputs)
        for node in nodes:
            self.vertices.append(Vertex(node, ports, f"/home/ann/flow.py:{len(self.vertices)}"))
            ports = (Port(len(self.vertices) - 1),)
        self._ports += [(Port(len(self.vertices) - 1, at), name, output) for at, output in enumerate(names)]


@st.composite
def flows(draw: st.DrawFn, most: int = 24) -> Flow:
    """Draw a dataflow: any number of sources, branches that meet again, exchanges, and edges over many columns."""
    flow = Flow()
    for number in range(draw(st.integers(1, most))):
        name = f"n{number}"
        kind = draw(st.sampled_from(_KINDS)) if number else "source"
        reads = [draw(st.integers(0, 99)) for _ in range(_READS.get(kind, 1))]
        nodes, names = _made(kind, name)
        flow.add(nodes, reads, names)
    return flow


_KINDS = ("source", "map", "map", "key", "key", "cloned", "union", "join", "epochs", "sink")
_READS = {"source": 0, "union": 2, "join": 3}


def _made(kind: str, name: str) -> tuple[list[Node], tuple[str | None, ...]]:
    one: tuple[str | None, ...] = (None,)
    match kind:
        case "source":
            return [SourceNode(name, StatelessSource(SingleIteratorSource([])), keyed=False)], one
        case "map":
            return [StatelessNode(name, _LOGIC)], one
        case "key":
            return [KeyNode(name, partial(KeyBy, callback=str)), ExchangeNode(name, rendezvous_select)], one
        case "cloned":
            return [SplitNode(name, partial(Cloned, outputs=3), 3)], ("0", "1", "2")
        case "union":
            return [UnionNode(name)], one
        case "join":
            return [StatefulNode(name, _LOGIC, rendezvous_select)], one
        case "epochs":
            return [EpochsNode(name, _LOGIC)], ("on_time", "late")
        case _:
            return [SinkNode(name, StatelessSink(VecSink()))], ()
