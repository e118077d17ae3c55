"""Keys as codes: small numbers, dense, in the order in which the keys were first seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.aggregates.kernels import Ints
from malflow.columns.arrays import to_python
from malflow.columns.column import Column, Constant
from malflow.records.columnar import Unfit

__all__ = ["Codes"]

_KINDS = (str, int, bytes, bool)
"""The types of keys that have codes. Equal keys of one of these types are the same to the last bit."""


class Codes:
    """The code of each key. Equal keys have one code.

    All keys are of one type, since ``1`` and ``True`` are one key of Python, and results show the first of them. Floats
    have no codes: -0.0 and 0.0 are one key, but two for Arrow.

    Args:
        admit: checks a new key; None if there is no need to.

    Attributes:
        keys: the key of each code.
    """

    def __init__(self, admit: Callable[[Any], object] | None = None) -> None:
        self.keys: list[Any] = []
        self._admit = admit
        self._of: dict[Any, int] = {}
        self._kind: type | None = None
        self._last: tuple[pa.Array, Ints, bool] | None = None  # a dictionary, its codes, and whether each has one
        self._array: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def encode(self, keys: Sequence[Any] | None) -> Ints:
        """Return the codes of a batch's keys. New keys get the next ones, in the order of their first records.

        Raises:
            Unfit: if the keys are no column, one of them is null or can't be admitted, or their type has no codes.
        """
        if isinstance(keys, Constant):
            self._check({type(keys.value)})
            if keys.value not in self._of:
                self._enter([keys.value])
            return np.full(len(keys), self._of[keys.value], np.intp)
        if not isinstance(keys, Column):
            raise Unfit("its keys are no column of Arrow")
        array = keys.encoded()
        if array.null_count or array.dictionary.null_count:  # a null may hide in the dictionary
            raise Unfit("a key is null")
        dictionary, indices = array.dictionary, array.indices.to_numpy()
        if pa.types.is_uint64(dictionary.type):
            raise Unfit("its keys are unsigned, of 64 bits")
        last = self._last
        if last is None or not (last[0] is dictionary or last[0].equals(dictionary)):
            dictionary, indices = _used(dictionary, indices)
            last = self._look_up(dictionary)
        self._last = dictionary, *last[1:]
        _, known, is_complete = last
        codes: Ints = known[indices]
        if not is_complete and codes.min(initial=0) < 0:
            self._enter_new(dictionary, known, indices[codes < 0])
            codes = known[indices]
        return codes

    def add(self, keys: Iterable[Any]) -> Ints:
        """Return the codes of keys of a state; new ones need no check.

        Raises:
            Unfit: if their type has no codes.
        """
        listed = list(keys)
        self._check(set(map(type, listed)))
        try:
            pa.array(listed)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise Unfit("a key of its state is too large for Arrow, or no text") from error
        of = self._of
        for key in listed:
            if key not in of:
                of[key] = len(self.keys)
                self.keys.append(key)
        return np.fromiter(map(of.__getitem__, listed), np.intp, len(listed))

    def find(self, keys: Iterable[Any]) -> Ints:
        """Return the codes of those keys that have one."""
        return np.array([code for key in keys if (code := self._of.get(key)) is not None], np.intp)

    def keys_of(self, codes: Ints) -> list[Any]:
        """Return the keys of codes."""
        return list(map(self.keys.__getitem__, codes.tolist()))

    def column(self, codes: Ints) -> Column:
        """Return the keys of codes as a column: indices, and a dictionary of all keys unless the codes are few."""
        if self._array is None or len(self._array) != len(self.keys):
            if 2 * len(codes) < len(self.keys):  # keys may be new in each batch
                return Column(pa.array(self.keys_of(codes)))
            self._array = pa.array(self.keys)
        indices = pa.array(codes.astype(np.int32))
        return Column(pa.DictionaryArray.from_arrays(indices, self._array))

    def keep(self, codes: Ints) -> None:
        """Drop all keys but those of some codes, in ascending order; they get the codes from zero."""
        self.keys = self.keys_of(codes)
        self._of = {key: code for code, key in enumerate(self.keys)}
        self._last = self._array = None

    def _check(self, kinds: set[type]) -> None:
        kind = next(iter(kinds)) if self._kind is None and len(kinds) == 1 else self._kind
        if kinds and (kinds != {kind} or kind not in _KINDS):
            raise Unfit(f"its keys are of type {' and '.join(sorted(it.__name__ for it in kinds | {kind or str}))}")
        self._kind = kind

    def _look_up(self, dictionary: pa.Array) -> tuple[pa.Array, Ints, bool]:
        keys = to_python(dictionary)
        self._check(set(map(type, keys)))
        get = self._of.get
        known = np.fromiter((get(key, -1) for key in keys), np.intp, len(keys))
        return dictionary, known, bool(known.min(initial=0) >= 0)

    def _enter_new(self, dictionary: pa.Array, known: Ints, indices: Ints) -> None:
        """Enter the keys at indices of a dictionary, in the order of their first records."""
        first = np.full(len(dictionary), len(indices), np.intp)
        np.minimum.at(first, indices, np.arange(len(indices)))
        new = np.flatnonzero(first < len(indices))
        new = new[np.argsort(first[new], kind="stable")]
        keys = to_python(dictionary.take(pa.array(new)))
        self._enter(keys)
        known[new] = np.fromiter(map(self._of.__getitem__, keys), np.intp, len(keys))
        self._last = dictionary, known, bool(known.min() >= 0)

    def _enter(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if key in self._of:  # twice in the dictionary
                continue
            try:
                if self._admit is not None:
                    self._admit(key)
            except Exception as error:
                raise Unfit("a key can't be admitted") from error
            self._of[key] = len(self.keys)
            self.keys.append(key)


def _used(dictionary: pa.Array, indices: Ints) -> tuple[pa.Array, Ints]:
    """Return a dictionary without items that no index names, if it is large, and the indices in it."""
    if len(dictionary) <= len(indices):
        return dictionary, indices
    used = np.zeros(len(dictionary), np.bool_)
    used[indices] = True
    at = np.flatnonzero(used)
    places = np.empty(len(dictionary), np.int32)
    places[at] = np.arange(len(at), dtype=np.int32)
    return dictionary.take(pa.array(at)), places[indices]
