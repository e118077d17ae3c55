"""The accumulators of windows as arrays beside the state of panes and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.slots import Slot
from malflow.columns.aggregates.accumulators import Accumulators
from malflow.columns.aggregates.codes import Codes
from malflow.columns.aggregates.kernels import Array, Ints, Lot
from malflow.columns.aggregates.outcomes import Fields, Outcomes, outcomes_of
from malflow.columns.column import Column
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.states.paned import PanedState

__all__ = ["Cells", "PaneArrays"]

_UNSEEN = np.iinfo(np.int64).max
"""The number of the first record of an accumulator that has none."""

_MOST_CELLS = 1 << 24
"""Accumulators, used or not, of all open panes together. Half of it sends a million keys with 16 open panes record by
record; double takes up to 1.5 GB for four aggregates."""

_CELLS_PER_RECORD = 64
"""Accumulators that may be cleared for each record. Record by record costs as much as clearing some 100 of them."""

_FIRST_CELLS = 1 << 22
"""Accumulators that need no records to pay for them: the first panes of a run would look sparse otherwise."""

_WIDTH, _FEW = 64, 1 << 16
"""The least number of keys of a pane; and the number up to which it doubles, since a small pane takes little memory."""

_LIVELY = 4
"""Keys are dropped once only one in four is in an open pane: two would renumber the others more often."""


class Cells:
    """The accumulators of some keys in one pane or window.

    Args:
        codes: the codes of the keys, in the order of their first records.
        fields: the states of their slots.
    """

    def __init__(self, codes: Ints, fields: Fields) -> None:
        self.codes = codes
        self.fields = fields

    def __len__(self) -> int:
        return len(self.codes)


# A pane has a row of cells, one for each code; the cell of a record is ``row of its pane * width + code of its key``.
#
# Example: the keys a, b and c, a width of 4, the panes 7 and 9 in the rows 1 and 0.
#   cell     0 1 2 3   4 5 6 7
#   pane     9 9 9 -   7 7 7 -
#   key      a b c -   a b c -
class PaneArrays(Mapping[int, Cells]):
    """The accumulators of open panes, by the number of the pane: `Cells` that are copies.

    Args:
        state: the state, of which the arrays begin as a copy.
        aggregators: the aggregators.
        slots: the slots of their common accumulator.
        merges: how many panes a window has.
        admit: checks a new key; None if there is no need to.
        tracked: whether changes are tracked.
        sends: whether the accumulators are sent, for others to join them exactly.
        on_renumber: called when the keys have got other codes; cells that were kept are then of no use.

    Attributes:
        outcomes: the results as columns; None if no columns can hold them.

    Raises:
        Unfit: if arrays can't hold the state, or an aggregator has no form for them.
    """

    def __init__(
        self,
        state: PanedState,
        aggregators: Sequence[Aggregator[Any, Any, Any]],
        slots: Sequence[Slot],
        *,
        merges: int,
        admit: Callable[[Any], object] | None,
        tracked: bool,
        sends: bool = False,
        on_renumber: Callable[[], object] = int,
    ) -> None:
        self._on_renumber = on_renumber
        self.outcomes: Outcomes | None = outcomes_of(aggregators, slots)
        self._state = state
        self._tracked = tracked
        self._accumulators = Accumulators(slots, merges, sends=sends)
        self._codes = Codes(admit)
        self._rows: dict[int, int] = {}
        self._free: list[int] = []
        self._width = self._height = 0
        self._seen: Ints = np.zeros(0, np.int64)  # the number of the first record of each cell
        self._dirty = np.zeros(0, np.bool_)
        self._count = 0
        self._taken = 0
        self._cleared = 0
        self._load(state)

    def _load(self, state: PanedState) -> None:
        accumulators = [acc for states in state.panes.values() for acc in states.values()]
        if not accumulators:
            return
        loaded = self._accumulators.load(accumulators)
        codes = [self._codes.add(states) for states in state.panes.values()]
        self._make_room(list(state.panes), codes[0])
        rows = [
            np.full(len(it), self._rows[number] * self._width) for number, it in zip(state.panes, codes, strict=True)
        ]
        cells = np.concatenate(rows) + np.concatenate(codes)
        self._accumulators.put(cells, loaded)
        self._seen[cells] = np.arange(len(cells))
        self._count = len(cells)

    @property
    def is_ordered(self) -> bool:
        """Whether joined accumulators depend on the order of records of several of them."""
        return self._accumulators.is_ordered

    def add(self, batch: Batch, times: Column, numbers: Ints) -> int:
        """Add records, or accumulators of records; return how many more accumulators there are.

        Args:
            batch: the records, one or more.
            times: their timestamps.
            numbers: the number of each record's pane.

        Raises:
            Unfit: if arrays can't hold a record or its result, or are too sparse. They have not changed then.
        """
        with np.errstate(all="ignore"):
            read, add = self._read(batch.values, times)
            codes = self._codes.encode(batch.keys)
            least, most = int(numbers.min()), int(numbers.max())
            if least == most:
                codes = self._make_room([least], codes)
                cells = codes + self._rows[least] * self._width
            else:
                cells = self._cells(numbers, least, most, codes)
            lot = Lot(cells, len(self._seen), self._is_unseen)
            self._accumulators.check(lot, read)
            add(lot, read)
            found = self._note_first(cells)
            self._count += len(cells)
            if self._tracked:
                self._dirty[cells] = True
        return found

    def _note_first(self, cells: Ints) -> int:
        """Note the number of the first record of each new cell; return how many there are."""
        if self._count == self._taken:
            numbers = np.arange(self._count, self._count + len(cells))
        else:
            first = np.flatnonzero(self._seen[cells] == _UNSEEN)
            cells, numbers = cells[first], first + self._count
        self._seen[cells[::-1]] = numbers[::-1]  # of several numbers for a cell, the last one of an assignment counts
        return int(np.count_nonzero(self._seen[cells] == numbers))

    def _read(self, values: Any, times: Column) -> tuple[list[list[Array]], Callable[[Lot, list[list[Array]]], None]]:
        """Return the arrays that records or accumulators are added from, and the function that adds them."""
        accumulators = self._accumulators
        if not values.is_accumulated:
            return accumulators.read(values, times if accumulators.is_timed else None), accumulators.add
        return accumulators.sent(list(map(Column, values.batch.columns))), accumulators.join

    def _cells(self, numbers: Ints, least: int, most: int, codes: Ints) -> Ints:
        if most - least < len(numbers):
            places = numbers - least
            panes = np.flatnonzero(np.bincount(places))
        else:
            panes, places = np.unique(numbers - least, return_inverse=True)
        codes = self._make_room([int(it) + least for it in panes.tolist()], codes)
        starts = np.array([self._rows[int(it) + least] * self._width for it in panes.tolist()], np.intp)
        if most - least < len(numbers):
            table = np.zeros(most - least + 1, np.intp)
            table[panes] = starts
            starts = table
        cells: Ints = starts[places] + codes
        return cells

    def _is_unseen(self, cells: Ints) -> Array:
        is_unseen: Array = self._seen[cells] == _UNSEEN
        return is_unseen

    def _make_room(self, panes: Sequence[int], codes: Ints) -> Ints:
        """Make a row for each pane, wide enough for all keys; return the codes of a batch. They may change."""
        new = [number for number in panes if number not in self._rows]
        if len(self._codes) > self._width and self._height:
            codes = self._drop_keys(codes)
        width = _wider(self._width, len(self._codes))
        height = self._height
        if len(new) > len(self._free):
            height = max(len(self._rows) + len(new), min(height * 3 // 2, _MOST_CELLS // width))
        self._cleared += len(new) * width
        if (
            width * height > _MOST_CELLS
            or self._cleared > _CELLS_PER_RECORD * (self._count + len(codes)) + _FIRST_CELLS
        ):
            raise Unfit("its open windows have few records for each key, and too many keys")
        if (width, height) != (self._width, self._height):
            self._resize(width, height, np.arange(min(width, self._width)))
        for number in new:
            self._rows[number] = self._free.pop()
        return codes

    def _drop_keys(self, codes: Ints) -> Ints:
        """Drop the keys that no open pane has, if they are most; return the codes of a batch."""
        is_used = (self._seen.reshape(self._height, self._width) != _UNSEEN).any(axis=0)
        is_used = np.concatenate([is_used, np.zeros(len(self._codes) - self._width, np.bool_)])
        is_used[codes] = True
        used = np.flatnonzero(is_used)
        if _LIVELY * len(used) > len(self._codes):
            return codes
        self._codes.keep(used)
        self._on_renumber()
        after = np.zeros(len(is_used), np.intp)
        after[used] = np.arange(len(used))
        self._resize(self._width, self._height, used[used < self._width])
        return after[codes]

    def _resize(self, width: int, height: int, kept: Ints) -> None:
        """Set the numbers of keys and panes; the keys with kept codes get the codes from zero."""
        rows = np.array(list(self._rows.values()), np.intp)[:, None]
        old = (rows * self._width + kept).ravel()
        new = (rows * width + np.arange(len(kept))).ravel()
        self._accumulators.rearrange(width * height, old, new)
        seen, dirty = np.full(width * height, _UNSEEN, np.int64), np.zeros(width * height, np.bool_)
        seen[new], dirty[new] = self._seen[old], self._dirty[old]
        self._seen, self._dirty = seen, dirty
        self._free.extend(range(self._height, height))
        self._width, self._height = width, height

    def _row(self, number: int) -> slice:
        start = self._rows[number] * self._width
        return slice(start, start + self._width)

    def __getitem__(self, number: int) -> Cells:
        row = self._row(number)
        codes = self._in_order(self._seen[row])
        return Cells(codes, self._accumulators.at(codes + row.start))

    def _in_order(self, seen: Ints) -> Ints:
        """Return the codes in the order of their first records."""
        codes = np.flatnonzero(seen != _UNSEEN)
        return codes[np.argsort(seen[codes])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, number: object) -> bool:
        return number in self._rows

    def drop(self, number: int) -> None:
        """Drop a pane, and its states in the state."""
        row = self._row(number)
        held = self._state.panes.get(number)
        if held is not None:
            if self._tracked:  # the delta tells what is dropped, and some of it was never written
                held.update(
                    (key, None) for key in self._codes.keys_of(self._in_order(self._seen[row])) if key not in held
                )
            self._state.drop(number)
        self._accumulators.clear(row)
        self._seen[row] = _UNSEEN
        self._dirty[row] = False
        self._free.append(self._rows.pop(number))

    def take(self) -> tuple[Ints, Column, list[list[Column]]]:
        """Drop all accumulators, and return them as columns, in the order of their first records.

        Return also the numbers of these records, counted since the last call, and their keys.
        """
        rows = [self._row(number) for number in self._rows]
        held = np.concatenate([np.flatnonzero(self._seen[row] != _UNSEEN) + row.start for row in rows])
        seen = self._seen[held] - self._taken
        cell_of = np.full(self._count - self._taken, -1)  # a sort would take longer
        cell_of[seen] = held
        first = np.flatnonzero(cell_of >= 0)
        cells = cell_of[first]
        keys = self._codes.column(cells % self._width)
        columns = self._accumulators.columns(self._accumulators.at(cells))
        for number in list(self._rows):
            self.drop(number)
        self._taken = self._count
        return first, keys, columns

    def merge(self, one: Cells, other: Cells) -> Cells:
        """Merge the accumulators of each key, with `one` first; a key that only one side has keeps its own."""
        if not len(one) or not len(other):
            return one if len(one) else other
        places = np.full(len(self._codes), -1, np.intp)
        places[one.codes] = np.arange(len(one))
        at = places[other.codes]
        in_both, alone = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        at = at[in_both]
        merged = self._accumulators.merge(_taken(one.fields, at), _taken(other.fields, in_both))
        fields = []
        for before, after, more in zip(one.fields, merged, other.fields, strict=True):
            columns = []
            for old, new, added in zip(before, after, more, strict=True):
                column = np.concatenate([old, added[alone]])
                column[at] = new
                columns.append(column)
            fields.append(columns)
        return Cells(np.concatenate([one.codes, other.codes[alone]]), fields)

    def keys(self) -> Any:
        """Return the numbers of the panes."""
        return self._rows.keys()

    def key_column(self, codes: Ints) -> Column:
        """Return the keys of codes as a column."""
        return self._codes.column(codes)

    def objects(self, cells: Cells) -> dict[Any, Any]:
        """Return cells as accumulators of Python, by key."""
        return dict(zip(self._codes.keys_of(cells.codes), self._accumulators.states(cells.fields), strict=True))

    def sync(self) -> None:
        """Write the accumulators that have changed since the last call to the state, as objects of Python."""
        for number in sorted(self._rows):
            row = self._row(number)
            seen = self._seen[row]
            codes = self._in_order(np.where(self._dirty[row], seen, _UNSEEN) if self._tracked else seen)
            if not len(codes):
                continue
            changed = self.objects(Cells(codes, self._accumulators.at(codes + row.start)))
            self._state.pane(number).update(changed)
            self._state.touch(number, changed)
            self._dirty[row] = False

    def look(self, keys: Iterable[Any] | None, limit: int) -> dict[int, dict[Any, Any]]:
        """Return the accumulators of some keys, pane by pane, as objects of Python.

        Args:
            keys: the keys; None for the first accumulators.
            limit: how many accumulators, if `keys` is None.
        """
        wanted = None if keys is None else self._codes.find(keys)
        found: dict[int, dict[Any, Any]] = {}
        for number in sorted(self._rows):
            row = self._row(number)
            seen = self._seen[row]
            if wanted is None:
                codes = self._in_order(seen)[:limit]
                limit -= len(codes)
            else:
                codes = wanted[seen[wanted] != _UNSEEN]
                codes = codes[np.argsort(seen[codes])]
            if len(codes):
                found[number] = self.objects(Cells(codes, self._accumulators.at(codes + row.start)))
        return found


def _taken(fields: Fields, at: Ints) -> Fields:
    return [[column[at] for column in columns] for columns in fields]


def _wider(width: int, needed: int) -> int:
    """Return a width for as many keys as are needed, with room for more."""
    if needed <= width:
        return width
    return max(_WIDTH, 2 * needed if needed < _FEW else needed * 5 // 4)
