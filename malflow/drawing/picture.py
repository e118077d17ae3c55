"""The operators of a dataflow as users know them: one box for each, with the facts to show, and the arrows between."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from malflow.drawing.text import ending, fitted, short_location
from malflow.graph import Form, forms_of, stages_of
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
    TimestampsNode,
    UnionNode,
    Vertex,
)
from malflow.operators.contract import Logic
from malflow.operators.tables.broadcast import Replicate
from malflow.sinks.contract import StatefulSink
from malflow.sources.contract import StatefulSource
from malflow.states.kinds import StateKind

__all__ = ["NAME_LIMIT", "Arrow", "Box", "Dataflow", "Picture", "picture_of"]

NAME_LIMIT = 40
"""The greatest width of a name in a drawing, in characters."""

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

_OUTPUTS = {
    StateKind.MATCH: ("matches", "timeouts", "late"),
    StateKind.THROTTLE: ("passed", "held_back"),
    StateKind.TABLE: ("changes", "versions"),
}
"""The outputs of operators that always have several; for windows they are ``results``, ``revised`` and ``too_late``."""

_LATE_RESULTS = ("results", "revised", "too_late")


class Dataflow(Protocol):
    """A dataflow that can be drawn: a `malflow.graph.Graph`, or a program that is compiled of one."""

    @property
    def vertices(self) -> Sequence[Vertex]:
        """The vertices; every input precedes its consumer."""


@dataclass(frozen=True, slots=True)
class Box:
    """An operator.

    Attributes:
        name: its name, as in the program.
        kind: the method that adds it, or the kind of its state.
        stage: the stage that it runs in.
        vertices: the indices of the vertices that it consists of: `key_distribute` is two, which set and move keys.
        implementation: the class of a source or sink; None for other operators.
        location: the ``file:line`` that added it; None if unknown.
        state: the kind of the state that it keeps in snapshots; None if it keeps none.
        version: the schema version of the states of its keys; None if there are none.
        exchange: whether its records move between workers before they reach it.
        outputs: the names of its outputs.
        unread: the names of the outputs that no operator reads.
        mark: a remark, such as "here" at the stream that is shown; None without one.
    """

    name: str
    kind: str
    stage: int
    vertices: tuple[int, ...]
    implementation: str | None = None
    location: str | None = None
    state: str | None = None
    version: int | None = None
    exchange: bool = False
    outputs: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    mark: str | None = None

    @property
    def label(self) -> str:
        """The name, printable and short."""
        return fitted(self.name, NAME_LIMIT)

    @property
    def facts(self) -> list[str]:
        """The kind with its version or implementation, and the file and line, printable and short."""
        return self._facts(NAME_LIMIT)

    def lines(self, limit: int = NAME_LIMIT) -> list[str]:
        """Return the lines of text of a box: the name, after ║ if records change workers, the facts and the mark."""
        mark = [fitted(f"◀ {self.mark}", limit)] if self.mark else []
        name = f"║ {fitted(self.name, limit - 2)}" if self.exchange else fitted(self.name, limit)
        return [name, *self._facts(limit), *mark]

    def _facts(self, limit: int) -> list[str]:
        words = [self.kind, self.implementation, None if self.version is None else f"v{self.version}"]
        kind = fitted(" ".join(word for word in words if word), limit)
        return [kind] if self.location is None else [kind, ending(short_location(self.location), limit)]

    @property
    def remarks(self) -> list[str]:
        """The facts that not every drawing has room for."""
        state = [f"keeps state: {self.state}"] if self.state else []
        moves = ["records move between workers"] if self.exchange else []
        unread = [f"not read: {', '.join(self.unread)}"] if self.unread else []
        return [*moves, *state, *unread]


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge between two boxes, by their indices.

    Attributes:
        source: the box where it begins.
        output: which output of that box it is.
        target: the box where it ends.
        input: which input of that box it is.
        label: the name of the output; None if the box has one only.
        form: how columns arrive: as ``columns``, or as ``rows`` that are made of them; None if there are none.
    """

    source: int
    output: int
    target: int
    input: int
    label: str | None
    form: Form | None = None

    @property
    def text(self) -> str | None:
        """The label, and the form in brackets; None without both."""
        words = [self.label, None if self.form is None else f"[{self.form}]"]
        return " ".join(word for word in words if word) or None


@dataclass(frozen=True, slots=True)
class Picture:
    """The boxes and the arrows of a dataflow; every arrow leads to a later box."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def stages(self) -> int:
        """The number of stages."""
        return max((box.stage + 1 for box in self.boxes), default=0)


def picture_of(dataflow: Dataflow, here: Port | None = None) -> Picture:
    """Return the boxes and arrows of a dataflow, with a mark at an output if asked for."""
    vertices = dataflow.vertices
    groups = _groups(vertices)
    stages = stages_of(vertices)
    box_of = {vertex: index for index, group in enumerate(groups) for vertex in group}
    forms = forms_of(vertices)
    read = {port for vertex in vertices for port in vertex.inputs}
    boxes = tuple(_box(vertices, group, stages[group[-1]], read, here) for group in groups)
    arrows = tuple(
        Arrow(
            box_of[port.vertex],
            port.output,
            target,
            number,
            _label(boxes[box_of[port.vertex]], port),
            _form(forms, group, number),
        )
        for target, group in enumerate(groups)
        for number, port in enumerate(vertices[group[0]].inputs)
    )
    return Picture(boxes, arrows)


def _form(forms: Mapping[tuple[int, int], Form], group: Sequence[int], number: int) -> Form | None:
    """Return how columns arrive at an input of a box. Its later vertices may make rows of them too."""
    form = forms.get((group[0], number))
    makes_rows = any(forms.get((vertex, 0)) == "rows" for vertex in group[1:])
    return "rows" if form is not None and makes_rows else form


def _groups(vertices: Sequence[Vertex]) -> list[list[int]]:
    """Return the vertices of each operator: one, or several of the same name that only feed each other."""
    readers = Counter(port.vertex for vertex in vertices for port in vertex.inputs)
    groups: dict[int, list[int]] = {}
    for index, vertex in enumerate(vertices):
        before = vertex.inputs[0].vertex if len(vertex.inputs) == 1 else None
        if before is not None and vertices[before].node.name == vertex.node.name and readers[before] == 1:
            groups[index] = groups.pop(before)
        groups.setdefault(index, []).append(index)
    return sorted(groups.values())


def _box(vertices: Sequence[Vertex], group: list[int], stage: int, read: set[Port], here: Port | None) -> Box:
    last = vertices[group[-1]]
    node = last.node
    outputs = _outputs(node)
    is_here = here is not None and here.vertex == group[-1]
    return Box(
        node.name,
        _kind_of_group([vertices[it].node for it in group]),
        stage,
        tuple(group),
        _implementation(node),
        last.location,
        _state(node),
        node.version if isinstance(node, StatefulNode) else None,
        exchange=any(isinstance(vertices[it].node, ExchangeNode) for it in group),
        outputs=outputs,
        unread=tuple(name for at, name in enumerate(outputs) if Port(group[-1], at) not in read),
        mark=_mark(outputs, here) if is_here and here is not None else None,
    )


def _mark(outputs: tuple[str, ...], here: Port) -> str:
    return "here" if len(outputs) < 2 else f"here: {outputs[here.output]}"  # noqa: PLR2004 - two can be told apart


def _label(box: Box, port: Port) -> str | None:
    return box.outputs[port.output] if len(box.outputs) > 1 else None


def _outputs(node: Node) -> tuple[str, ...]:
    """Return the names of the outputs of a node."""
    count = node.outputs
    if isinstance(node, EpochsNode):
        return ("on_time", "late")
    if isinstance(node, StatefulNode) and count > 1:
        units = (node.panes or "").partition(" in ")[0].split(", ")
        if node.kind is StateKind.ROLLUP and len(units) == count:
            return tuple(units)
        if node.kind is StateKind.JOIN:
            return ("results", *(f"too_late {stream}" for stream in range(count - 1)))
        named = _OUTPUTS.get(node.kind, _LATE_RESULTS)
        if len(named) == count:
            return named
    return tuple(map(str, range(count)))


def _kind_of_group(nodes: Sequence[Node]) -> str:
    """Return the method of streams that adds one or several nodes of a name."""
    first, last = nodes[0], nodes[-1]
    if len(nodes) > 1 and isinstance(first, TimestampsNode):
        return "event_time"
    if len(nodes) > 1 and isinstance(first, KeyNode) and first.logic is Replicate:
        return "broadcast"
    return _kind(last)


def _kind(node: Node) -> str:
    """Return the method of streams that adds a node, or the kind of its state."""
    match node:
        case SourceNode():
            return "source"
        case SinkNode():
            return "sink"
        case StatelessNode(logic=logic) | SplitNode(logic=logic):
            return _words(logic)
        case StatefulNode(kind=kind, method=method):
            return method or kind.word
        case KeyNode():
            return "key_local"
        case ExchangeNode():
            return "key_distribute"
        case TimestampsNode():
            return "assign_timestamps"
        case EpochsNode():
            return "generate_epochs"
        case UnionNode():
            return "union"
        case _:
            assert_never(node)


def _words(logic: Logic) -> str:
    """Return the name of an operator's class as that of a method.

    >>> from malflow.operators.stateless import FlatMap
    >>> _words(FlatMap)
    'flat_map'
    """
    made: Any = getattr(logic, "func", logic)
    return _WORD.sub("_", getattr(made, "__name__", type(made).__name__)).lower()


def _implementation(node: Node) -> str | None:
    if isinstance(node, SourceNode):
        return type(node.source.impl).__name__
    return type(node.sink.impl).__name__ if isinstance(node, SinkNode) else None


def _state(node: Node) -> str | None:
    """Return the kind of state of a node that is part of snapshots; None without one."""
    match node:
        case StatefulNode(kind=kind):
            return kind.word
        case EpochsNode():
            return StateKind.EPOCHS.word
        case SourceNode(source=source):
            return StateKind.SOURCE.word if isinstance(source, StatefulSource) else None
        case SinkNode(sink=sink):
            has_position = isinstance(sink, StatefulSink) or node.is_resumable or node.is_transactional
            return StateKind.SINK.word if has_position else None
        case _:
            return None
