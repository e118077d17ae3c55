"""Pictures in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from malflow.drawing.picture import Box, Picture

__all__ = ["dot"]

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def dot(picture: Picture, *, stages: bool = False) -> str:
    """Return a picture as a graph of Graphviz; bold arrows are where records change workers.

    Args:
        picture: the picture.
        stages: whether to show the stages, as clusters.
    """
    head = ["digraph dataflow {", "    rankdir=LR", '    node [shape=box fontname="Helvetica" fontsize=11]']
    return "\n".join([*head, *_nodes(picture, stages=stages), *_arrows(picture), "}"]) + "\n"


def _nodes(picture: Picture, *, stages: bool) -> Iterator[str]:
    if not stages:
        yield from (f"    {_node(index, box)}" for index, box in enumerate(picture.boxes))
        return
    for stage in range(picture.stages):
        yield f"    subgraph cluster_{stage} {{"
        yield f'        label="stage {stage}"'
        yield from (f"        {_node(index, box)}" for index, box in enumerate(picture.boxes) if box.stage == stage)
        yield "    }"


def _node(index: int, box: Box) -> str:
    label = "\\n".join(line.translate(_ESCAPES) for line in box.lines())
    styles = [*(["rounded"] if box.kind in ("source", "sink") else []), *(["filled"] if box.state else [])]
    look = f' style="{chr(44).join(styles)}" fillcolor="#e9f0f7"' if styles else ""
    return f'n{index} [label="{label}"{look}]'


def _arrows(picture: Picture) -> Iterator[str]:
    for arrow in picture.arrows:
        label = [] if arrow.label is None else [f'label="{arrow.label.translate(_ESCAPES)}"']
        looks = [*label, *(["style=bold"] if picture.boxes[arrow.target].exchange else [])]
        look = f" [{' '.join(looks)}]" if looks else ""
        yield f"    n{arrow.source} -> n{arrow.target}{look}"
