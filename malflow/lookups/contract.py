"""The contract of tables outside of a dataflow that answer by key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["LookupTable"]

K = TypeVar("K")
R = TypeVar("R")


class LookupTable(ABC, Generic[K, R]):
    """A table outside of a dataflow, for `Stream.lookup`. Subclassing is optional: an object with `get_many` works.

    One object serves all workers of a process, one call at a time. On Spark and in processes each has a copy. It is
    pickled: leave out connections with ``__getstate__``, and open them when they are first used.

    Its repr is shown in messages: it must have no secret.
    """

    @abstractmethod
    def get_many(self, keys: Sequence[K], /) -> Mapping[K, R]:
        """Return the rows of some keys.

        Args:
            keys: the keys, each once, at least one.

        Returns:
            The rows by key. A key without a row is absent, or its row is None.

        Raises:
            Exception: if the table can't be asked, after all retries. The run fails, or restarts from its last snapshot
                if that is its policy.
        """

    def close(self) -> Any:
        """Release all connections; a later call of `get_many` may open them again."""
