"""A model of layers: nested dicts, of which each hides the ones before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def merged(below: Any, above: Any) -> Any:
    """Merge tables; replace everything else."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values with their paths."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from leaves(value, (*path, name))
    else:
        yield path, tree
