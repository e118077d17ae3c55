"""Dictionary-encoded columns of text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["SharedTexts", "is_text"]


class SharedTexts:
    """Convert the batches of one column; equal texts of successive dictionaries become one Python object.

    This is faster than an object for each row, and makes it faster to hash or compare the texts afterwards.
    """

    def __init__(self) -> None:
        self._dictionary: Any = None
        self._texts: list[Any] = []

    def to_list(self, column: pa.DictionaryArray) -> list[Any]:
        """Return the texts of a batch, with None for nulls.

        Raises:
            ValueError: if a text is not valid UTF-8.
        """
        if not self._knows(column):
            decoded: list[Any] = column.dictionary_decode().to_pylist()
            return decoded
        indices, texts = column.indices.to_pylist(), self._texts
        if column.indices.null_count:
            return [None if index is None else texts[index] for index in indices]
        return list(map(texts.__getitem__, indices))

    def _knows(self, column: pa.DictionaryArray) -> bool:
        """Whether the texts of the dictionary are known, or cheap to convert."""
        dictionary = column.dictionary
        if self._dictionary is not None and dictionary.equals(self._dictionary):
            return True
        if len(dictionary) > len(column):
            return False
        try:
            texts = dictionary.to_pylist()
        except ValueError:  # perhaps no row uses the invalid text
            return False
        before = dict(zip(self._texts, self._texts, strict=True))
        self._dictionary, self._texts = dictionary, [before.get(text, text) for text in texts]
        return True


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are strings or bytes."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))
