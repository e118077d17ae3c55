"""Chains of operators drawn as one box, so that a large dataflow stays readable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from malflow.drawing.picture import Arrow, Box, Picture

__all__ = ["collapsed"]

_ENDS = ("source", "sink")


def collapsed(picture: Picture) -> tuple[Picture, list[list[int]]]:
    """Return a picture in which each chain is one box, and the boxes of the whole picture that each box stands for.

    A chain consists of operators of one stage, without sources and sinks. Each feeds only the next one. That one has no
    other input. Records move between workers only at its first operator.
    """
    readers = Counter(arrow.source for arrow in picture.arrows)
    inputs = Counter(arrow.target for arrow in picture.arrows)
    before = {
        arrow.target: arrow.source
        for arrow in picture.arrows
        if readers[arrow.source] == inputs[arrow.target] == 1
        and _may_join(picture.boxes[arrow.source], picture.boxes[arrow.target])
    }
    chains: list[list[int]] = []
    chain_of: dict[int, int] = {}
    for index in range(len(picture.boxes)):
        source = before.get(index)
        if source is None:
            chain_of[index] = len(chains)
            chains.append([index])
        else:
            chain_of[index] = chain_of[source]
            chains[chain_of[source]].append(index)
    arrows = [
        Arrow(chain_of[it.source], it.output, chain_of[it.target], it.input, it.label, it.form)
        for it in picture.arrows
        if chain_of[it.source] != chain_of[it.target]
    ]
    order = _in_order(len(chains), arrows)
    place = {chain: at for at, chain in enumerate(order)}
    return (
        Picture(
            tuple(_box(picture, chains[chain]) for chain in order),
            tuple(Arrow(place[it.source], it.output, place[it.target], it.input, it.label, it.form) for it in arrows),
        ),
        [chains[chain] for chain in order],
    )


def _may_join(first: Box, second: Box) -> bool:
    is_end = first.kind in _ENDS or second.kind in _ENDS
    return not is_end and not second.exchange and first.stage == second.stage and len(first.outputs) == 1


def _in_order(count: int, arrows: list[Arrow]) -> list[int]:
    """Return the chains, each after the chains that it reads; a picture needs this order."""
    waiting = Counter(arrow.target for arrow in arrows)
    readers: list[list[int]] = [[] for _ in range(count)]
    for arrow in arrows:
        readers[arrow.source].append(arrow.target)
    order = [chain for chain in range(count) if not waiting[chain]]
    for chain in order:  # it grows meanwhile
        for reader in readers[chain]:
            waiting[reader] -= 1
            if not waiting[reader]:
                order.append(reader)
    return order


def _box(picture: Picture, chain: list[int]) -> Box:
    boxes = [picture.boxes[index] for index in chain]
    first, last = boxes[0], boxes[-1]
    if len(boxes) == 1:
        return first
    vertices = tuple(vertex for box in boxes for vertex in box.vertices)
    return replace(
        last,
        name=f"{first.name} +{len(boxes) - 1}",
        kind="chain",
        vertices=vertices,
        implementation=None,
        location=None,
        version=None,
        exchange=first.exchange,
        state=next((box.state for box in boxes if box.state), None),
    )
