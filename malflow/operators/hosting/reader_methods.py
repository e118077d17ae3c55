"""The optional methods of the readers of a source: ``committed`` and ``lag``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from malflow.sources.contract import StatefulSourcePartition

__all__ = ["Lags", "lag_of", "offers_own"]

Lags = Mapping[Any, int | None]
"""The input that waits after the position of each part; None if unknown."""


def offers_own(reader: Any, method: str) -> bool:
    """Whether a reader implements an optional method, rather than inheriting the empty one."""
    inherited = getattr(StatefulSourcePartition, method)
    return callable(getattr(reader, method, None)) and getattr(type(reader), method, None) is not inherited


def lag_of(reader: Any) -> int | None:
    """Return a reader's lag.

    Raises:
        TypeError: if it is not a number.
    """
    lag = reader.lag()
    if lag is not None and (isinstance(lag, bool) or not isinstance(lag, int)):
        raise TypeError(f"lag() must return an int, or None if unknown; got {lag!r}")
    return lag
