"""Functions of rows: windows, joins and collections make rows of tuples, between the operators of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from malflow.sql.bind.relations import Collected, Expanded, Group
from malflow.sql.bind.scope import Field, WindowSpec
from malflow.windows import Windows, counting, cumulating, session, sliding, tumbling

__all__ = [
    "BY_ARRIVAL",
    "Pairs",
    "at_once",
    "bounded",
    "elements_of",
    "join_key",
    "key_of",
    "no_key",
    "no_rows",
    "numbered",
    "numbered_windows",
    "overlap",
    "own_window",
    "pair_of",
    "row_of",
    "same",
    "windows_of",
    "with_windows",
]


def windows_of(spec: WindowSpec) -> Windows:
    """Return the windows of Python that a window function means."""
    match spec.kind:
        case "TUMBLE" | "END":
            return tumbling(spec.size, offset=spec.offset)
        case "HOP":
            return sliding(spec.size, spec.step, offset=spec.offset)
        case "CUMULATE":
            return cumulating(spec.size, spec.step, offset=spec.offset)
        case "COUNTING":
            return counting(spec.size)
    return session(spec.size, touch=True)


BY_ARRIVAL = frozenset({"END", "COUNTING"})
"""Windows over the order in which rows come."""


def at_once(_message: Any) -> int:
    """Return the time of all rows that are grouped at the end of the input."""
    return 0


def overlap(spec: WindowSpec) -> bool:
    """Whether a row is in several windows."""
    return spec.kind in {"HOP", "CUMULATE"} and spec.step < spec.size


def key_of(keys: Sequence[Field], places: Sequence[int]) -> Any:
    """Return the places of the key, or the function that returns it for a message: NULL is a key too."""
    if not keys:
        return no_key
    first, *others = places[: len(keys)]
    if others:
        return (first, *others)
    return (
        first
        if not keys[0].type.nullable
        else lambda message: (None,) if (key := message.value[first]) is None else key
    )


def no_key(_message: Any) -> tuple[()]:
    """Return the key of rows that have none."""
    return ()


def join_key(keys: Sequence[Field], side: str) -> Any:
    """Return the places of the key, or the function that returns it: one with NULL equals none of the other side."""
    count = len(keys)
    is_alone = count == 1 and not keys[0].type.items  # a collection may equal the key of NULL
    if not any(it.type.nullable for it in keys):
        return 0 if is_alone else tuple(range(count)) or no_key

    def key(message: Any) -> Any:
        found = message.value[:count]
        return (side, *found) if None in found else found

    def only(message: Any) -> Any:
        found = message.value[0]
        return (side, None) if found is None else found

    return only if is_alone else key


def row_of(relation: Group, has_values: bool) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Return the function that makes a row of a key and the result of its window."""
    keys, is_carried = relation.keys, relation.is_carried

    def row(key: Any, result: Any) -> tuple[Any, ...]:
        own: tuple[Any, ...] = key if keys != 1 or key == (None,) else (key,)
        values = result.value if has_values else ()
        if is_carried:
            return (own[0], own[1], own[1] - 1, *own[2:], *values)
        return (result.start, result.end, result.end - 1, *own, *values)

    return row


def bounded(relation: Collected) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function that returns the rows of a window with its bounds."""
    keys, is_timed = relation.keys, relation.spec.kind == "SESSION"

    def rows(result: Any) -> list[tuple[Any, ...]]:
        added = (result.start, result.end, *((result.end - 1,) if is_timed else ()))
        return [(*it[keys:], *added) for it in result.value]

    return rows


def numbered_windows(size: int) -> Callable[[Any, Any, int], tuple[Any, int]]:
    """Return the function that gives the windows of a key the numbers of their rows as bounds."""

    def numbered(_key: Any, result: Any, rows: int) -> tuple[Any, int]:
        return result._replace(start=rows, end=rows + size), rows + size

    return numbered


def own_window(key: Any, result: Any) -> Any:
    """Return the result of the window that its rows were in, or None for a window that only overlaps it."""
    return result if result.end == key[1] else None


def no_rows(rows: Sequence[Any]) -> list[None]:
    """Drop all rows."""
    return [None] * len(rows)


def same(value: Any) -> Any:
    """Return a value; as a filter it drops None."""
    return value


def numbered(first: int) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function that returns the first rows of a window, with their numbers."""
    return lambda result: [(*row[first:], number) for number, row in enumerate(result.value, 1)]


def pair_of(keys: int, widths: tuple[int, int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that puts the columns of two rows side by side; a row that is missing is NULL."""
    no_left, no_right = [None] * widths[0], [None] * widths[1]

    def pair(both: Any) -> tuple[Any, ...]:
        left, right = both
        return (*(no_left if left is None else left[keys:]), *(no_right if right is None else right[keys:]))

    return pair


class Pairs:
    """Pairs the rows of a window.

    Args:
        pair: puts two rows side by side.
        how: the kind of the join: inner, left, right, outer, semi or anti.
        test: returns None for the pairs that are none; None if all are.
        width: how many columns a left row has.
        is_swapped: whether the right rows come first.
    """

    def __init__(
        self,
        pair: Callable[[Any], tuple[Any, ...]],
        how: str,
        test: Callable[[Any], list[Any]] | None,
        width: int,
        *,
        is_swapped: bool,
    ) -> None:
        self._pair = pair
        self._how = how
        self._test = test
        self._width = width
        self._is_swapped = is_swapped

    def __call__(self, result: Any) -> list[tuple[Any, ...]]:
        """Return the pairs of a window, and the rows without a partner."""
        left, right = result.value[::-1] if self._is_swapped else result.value
        pair, count = self._pair, len(right)
        pairs = [pair((one, other)) for one in left for other in right]
        if self._test is None and self._how == "inner":
            return pairs
        passed = [True] * len(pairs) if self._test is None else [it is not None for it in self._test(pairs)]
        if self._how in {"semi", "anti"}:
            wanted = self._how == "semi"
            found = [it for at, it in enumerate(left) if any(passed[at * count : (at + 1) * count]) is wanted]
            return [pair((it, None))[: self._width] for it in found]
        rows = pairs if self._test is None else [it for it, is_one in zip(pairs, passed, strict=True) if is_one]
        if self._how in {"left", "outer"}:
            rows += [pair((it, None)) for at, it in enumerate(left) if not any(passed[at * count : (at + 1) * count])]
        if self._how in {"right", "outer"}:
            rows += [pair((None, it)) for at, it in enumerate(right) if not any(passed[at::count])]
        return rows


def elements_of(operand: Callable[[Any], list[Any]], relation: Expanded) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function that adds the elements of its collection to a row."""
    is_row = relation.operand.type.kind == "ARRAY" and relation.operand.type.items[0].kind == "ROW"
    is_map, numbers, width = relation.operand.type.kind == "MAP", relation.ordinality, relation.width

    def rows(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        found = operand([row])[0][0]
        parts = [] if found is None else [*(found.items() if is_map else found)]
        made = [tuple(it) if is_map or (is_row and it is not None) else (it,) for it in parts]
        if is_row:
            made = [(None,) * (width - numbers) if it == (None,) else it for it in made]
        if numbers:
            made = [(*it, number) for number, it in enumerate(made, 1)]
        if not made and relation.is_left:
            made = [(None,) * width]
        return [(*row, *it) for it in made]

    return rows


def with_windows(time: int, spec: WindowSpec) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function that adds its windows to a row, once for each; a row without a time is in none."""
    size, step, offset, grows = spec.size, spec.step or spec.size, spec.offset, spec.kind == "CUMULATE"

    def rows(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        at = row[time]
        if at is None:
            return []
        last = (at - offset) // step * step + offset
        if grows:
            start = (at - offset) // size * size + offset
            return [(*row, start, end, end - 1) for end in range(last + step, start + size + 1, step)]
        starts = range(last, at - size, -step)
        return [(*row, start, start + size, start + size - 1) for start in starts]

    return rows
