"""Sizes of states: their keys, the largest state of one key, and states that only grow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from malflow.snapshot.codecs.shapes import Finding

__all__ = ["Sizes", "StateSize"]

_log = logging.getLogger("malflow.snapshot")

_MANY = 100_000
"""Keys from which growth is worth a warning. Fewer: warnings about small states; more: later warnings."""

_IN_A_ROW = 32
"""A state is reported as growing if it has many keys, and had more of them in this number of consecutive snapshots."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of an operator's state in the last snapshot.

    Attributes:
        keys: the number of keys.
        largest_key: the key of the largest state that the run has written, as a text; None if none had a MiB.
        largest_bytes: the size of that state in bytes.
    """

    keys: int
    largest_key: str | None = None
    largest_bytes: int | None = None


class Sizes:
    """Notes the sizes of a job's states, and warns once about each that is large or only grows."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._grown: dict[str, int] = {}
        self._largest: dict[str, tuple[str, int]] = {}
        self._told: set[tuple[str, str]] = set()

    def note_findings(self, findings: Iterable[Finding]) -> None:
        """Note the large states that were found while states were serialised."""
        for found in findings:
            if found.largest is None or found.largest[1] <= self._largest.get(found.state, ("", 0))[1]:
                continue
            key, size = self._largest[found.state] = found.largest
            self._tell(
                found.state,
                "large",
                "operator '%s' keeps %.1f MB for key %s: each change of it writes all of that; keep less for a key, or "
                "divide it among several keys",
                found.state,
                size / 1e6,
                key,
            )

    def note_keys(self, keys: Mapping[str, int]) -> None:
        """Note the number of keys of each state in a snapshot that is durable."""
        for name, count in keys.items():
            before = self._keys.get(name)
            grows = before is not None and count > before
            self._grown[name] = self._grown.get(name, 0) + 1 if grows else 0
            if self._grown[name] >= _IN_A_ROW and count >= _MANY:
                self._tell(
                    name,
                    "grows",
                    "the state of operator '%s' has %s keys, and has had more in each of the last %d snapshots: if "
                    "keys come to an end, let their states end, too, such as by ttl_map, windows, or a state of None",
                    name,
                    f"{count:,}",
                    _IN_A_ROW,
                )
        self._keys = dict(keys)

    @property
    def found(self) -> dict[str, StateSize]:
        """The size of each state."""
        largest = self._largest
        return {name: StateSize(count, *largest.get(name, (None, None))) for name, count in self._keys.items()}

    def _tell(self, name: str, what: str, text: str, *values: object) -> None:
        if (name, what) not in self._told:
            self._told.add((name, what))
            _log.warning(text, *values)
