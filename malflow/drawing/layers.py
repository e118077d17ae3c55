"""The layout of a graph in columns: by stage and longest path, with few crossings.

The method of Sugiyama, Tagawa and Toda (1981): nodes get columns, so that edges lead to the right; an edge that passes
columns gets a bend in each; barycentre sweeps order the columns; positions are those nearest to the neighbours' that
keep the order, by isotonic regression (the pooling of adjacent violators).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

__all__ = ["Layers", "layered", "positions", "spread"]

_SWEEPS = 4
"""The number of sweeps, two in each direction: the order mostly settles by then. Half of it leaves more crossings,
double takes twice the time."""

_STIFFNESS = 20
"""The weight of a bend: long edges stay straight, and nodes give way."""

Edge = tuple[int, int, int]
"""The node where an edge begins, which output of it, and the node where it ends, which is a later one."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Nodes and the bends of edges, in columns. They are numbered together, nodes first.

    Attributes:
        nodes: the number of nodes.
        columns: the column of each node and bend.
        order: the nodes and bends of each column, in their order.
        paths: for each edge, all it passes: its source, its bends, its target. Edges of one output share bends.
        before: the neighbours of each node or bend in the column before.
        after: those in the next column.
    """

    nodes: int
    columns: list[int]
    order: list[list[int]]
    paths: list[list[int]]
    before: list[list[int]]
    after: list[list[int]]


def layered(stages: Sequence[int], edges: Sequence[Edge]) -> Layers:
    """Return the columns of a graph, each with its order.

    Args:
        stages: the stage of each node; all columns of a stage are right of the columns of the stage before.
        edges: the edges; each leads to a later node of the same or a later stage.
    """
    columns = _columns(stages, edges)
    paths = _paths(columns, edges)
    before: list[list[int]] = [[] for _ in columns]
    after: list[list[int]] = [[] for _ in columns]
    for path in paths:
        for left, right in pairwise(path):
            after[left].append(right)
            before[right].append(left)
    outputs = [0] * len(columns)
    for (_, output, _), path in zip(edges, paths, strict=True):
        outputs[path[1]] = output
    order: list[list[int]] = [[] for _ in range(max(columns, default=-1) + 1)]
    for item in sorted(range(len(columns)), key=outputs.__getitem__):
        order[columns[item]].append(item)
    _sweep(order, before, after)
    return Layers(len(stages), columns, order, paths, before, after)


def _columns(stages: Sequence[int], edges: Sequence[Edge]) -> list[int]:
    """Return the column of each node: one after its last input, and after the columns of earlier stages."""
    inputs: list[list[int]] = [[] for _ in stages]
    for source, _, target in edges:
        inputs[target].append(source)
    columns = [0] * len(stages)
    stage, start, end = 0, 0, 0
    for node in sorted(range(len(stages)), key=stages.__getitem__):
        if stages[node] > stage:
            stage, start = stages[node], end
        columns[node] = max((columns[it] + 1 for it in inputs[node]), default=start)
        columns[node] = max(columns[node], start)
        end = max(end, columns[node] + 1)
    return columns


def _paths(columns: list[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Return the path of each edge; append the columns of its bends."""
    bends: dict[tuple[int, int, int], int] = {}
    paths = []
    for source, output, target in edges:
        path = [source]
        for column in range(columns[source] + 1, columns[target]):
            key = (source, output, column)
            if key not in bends:
                bends[key] = len(columns)
                columns.append(column)
            path.append(bends[key])
        path.append(target)
        paths.append(path)
    return paths


def _sweep(order: list[list[int]], before: list[list[int]], after: list[list[int]]) -> None:
    """Order each column by the mean position of the neighbours, forwards and backwards in turn."""
    at = [0.0] * len(before)
    for column in order:
        for number, item in enumerate(column):
            at[item] = number
    for turn in range(_SWEEPS):
        neighbours, columns = (before, order) if turn % 2 == 0 else (after, order[::-1])
        for column in columns:
            keyed = [(_mean(neighbours[item], at, at[item]), item) for item in column]
            keyed.sort(key=itemgetter(0))
            column[:] = [item for _, item in keyed]
            for number, item in enumerate(column):
                at[item] = number


def _mean(neighbours: list[int], at: list[float], otherwise: float) -> float:
    return sum([at[it] for it in neighbours]) / len(neighbours) if neighbours else otherwise


def positions(layers: Layers, sizes: Sequence[float], gap: float) -> list[float]:
    """Return the centre of each node and bend within its column, none less than 0 at its border.

    Args:
        layers: the columns.
        sizes: the size of each node and bend.
        gap: the least distance between two of them.
    """
    at = [0.0] * len(sizes)
    gaps = [[(sizes[a] + sizes[b]) / 2 + gap for a, b in pairwise(it)] for it in layers.order]
    for column, apart in zip(layers.order, gaps, strict=True):
        for item, place in zip(column, spread([0.0] * len(column), apart, [1] * len(column)), strict=True):
            at[item] = place
    for neighbours, backwards in ((layers.before, False), (layers.after, True), (layers.before, False)):
        numbers = range(len(gaps))
        for number in reversed(numbers) if backwards else numbers:
            column = layers.order[number]
            wanted = [_mean(neighbours[item], at, at[item]) for item in column]
            stiffness = [1 if item < layers.nodes else _STIFFNESS for item in column]
            for item, place in zip(column, spread(wanted, gaps[number], stiffness), strict=True):
                at[item] = place
    least = min((at[item] - sizes[item] / 2 for column in layers.order for item in column[:1]), default=0.0)
    return [place - least for place in at]


def spread(wanted: Sequence[float], gaps: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the positions nearest to the wanted ones (by weighted squares) that are in order and far enough apart.

    >>> spread([0, 0, 9], [2, 2], [1, 1, 1])
    [-1.0, 1.0, 9.0]
    """
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, int, int]] = []
    for want, offset, own in zip(wanted, offsets, weights, strict=False):
        mean, weight, count = want - offset, own, 1
        while blocks and blocks[-1][0] > mean:
            other, others, more = blocks.pop()
            mean = (mean * weight + other * others) / (weight + others)
            weight, count = weight + others, count + more
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
