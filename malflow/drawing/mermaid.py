"""Pictures as Mermaid, which Markdown on many sites draws."""

from __future__ import annotations

from collections.abc import Iterator

from malflow.drawing.picture import Box, Picture

__all__ = ["mermaid"]

_PLAIN = frozenset(" _,/=")
_SHAPES = {"source": '(["{}"])', "sink": '(["{}"])', "split": '{{{{"{}"}}}}', "cloned": '{{{{"{}"}}}}'}


def mermaid(picture: Picture, *, stages: bool = False) -> str:
    """Return a picture as a flowchart of Mermaid; thick arrows are where records change workers.

    Args:
        picture: the picture.
        stages: whether to show the stages, as subgraphs.
    """
    return "\n".join(["flowchart LR", *_nodes(picture, stages=stages), *_arrows(picture)]) + "\n"


def _nodes(picture: Picture, *, stages: bool) -> Iterator[str]:
    if not stages:
        yield from (f"    {_node(index, box)}" for index, box in enumerate(picture.boxes))
        return
    for stage in range(picture.stages):
        yield f'    subgraph s{stage}["stage {stage}"]'
        yield from (f"        {_node(index, box)}" for index, box in enumerate(picture.boxes) if box.stage == stage)
        yield "    end"


def _node(index: int, box: Box) -> str:
    shape = _SHAPES.get(box.kind, '[("{}")]' if box.version is not None else '["{}"]')
    return f"n{index}{shape.format('<br/>'.join(map(_text, box.lines())))}"


def _arrows(picture: Picture) -> Iterator[str]:
    for arrow in picture.arrows:
        line = "==>" if picture.boxes[arrow.target].exchange else "-->"
        label = "" if arrow.label is None else f'|"{_text(arrow.label)}"|'
        yield f"    n{arrow.source} {line}{label} n{arrow.target}"


def _text(text: str) -> str:
    """Return a text for a label, in which anything but letters, digits and blanks is a code of its character.

    >>> _text('a "b"')
    'a #34;b#34;'
    """
    return "".join(it if it.isalnum() or it in _PLAIN else f"#{ord(it)};" for it in text)
