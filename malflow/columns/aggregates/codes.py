"""Keys as codes: small numbers, dense, in the order in which the keys were first seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.aggregates.kernels import Ints
from malflow.columns.arrays import is_same, to_python
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
        self._last: tuple[pa.Array, Ints] | None = None  # a dictionary, and the codes of its items
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
        dictionary, indices = array.dictionary, array.indices.to_numpy(zero_copy_only=False)
        if array.null_count or pa.types.is_uint64(dictionary.type):
            raise Unfit("its keys are null, or unsigned and of 64 bits")
        known = self._known_of(dictionary)
        codes: Ints = known[indices]
        if codes.min(initial=0) < 0:
            self._look_up(dictionary, known, indices[codes < 0])
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
        """Drop all keys but the ones of some codes, in ascending order; they get the codes from zero."""
        self.keys = self.keys_of(codes)
        self._of = {key: code for code, key in enumerate(self.keys)}
        self._last = self._array = None

    def _check(self, kinds: set[type]) -> None:
        kind = next(iter(kinds)) if self._kind is None and len(kinds) == 1 else self._kind
        if kinds and (kinds != {kind} or kind not in _KINDS):
            raise Unfit(f"its keys are of type {' and '.join(sorted(it.__name__ for it in kinds | {kind or str}))}")
        self._kind = kind

    def _known_of(self, dictionary: pa.Array) -> Ints:
        """Return the code of each item of a dictionary; -1 for items that no record had so far."""
        last = self._last
        if last is None or not (is_same(last[0], dictionary) or last[0].equals(dictionary)):
            last = dictionary, np.full(len(dictionary), -1, np.intp)
        self._last = dictionary, last[1]
        return last[1]

    def _look_up(self, dictionary: pa.Array, known: Ints, indices: Ints) -> None:
        """Look up the items at indices of a dictionary, in the order of their first records."""
        new, first = np.unique(indices, return_index=True)
        new = new[np.argsort(first, kind="stable")]
        keys = to_python(dictionary.take(pa.array(new)))
        self._check(set(map(type, keys)))  # a null may hide in the dictionary
        self._enter(keys)
        known[new] = np.fromiter(map(self._of.__getitem__, keys), np.intp, len(keys))

    def _enter(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if key in self._of:
                continue
            try:
                if self._admit is not None:
                    self._admit(key)
            except Exception as error:
                raise Unfit("a key can't be admitted") from error
            self._of[key] = len(self.keys)
            self.keys.append(key)
