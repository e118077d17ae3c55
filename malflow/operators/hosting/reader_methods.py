"""The optional methods of the readers of a source: ``committed``, ``lag``, ``share`` and ``take_rejected``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from malflow.checks import is_whole_number
from malflow.sources.contract import StatefulSourcePartition

__all__ = ["Lags", "Share", "lag_of", "offers_own", "share_of", "total_share"]

Lags = Mapping[Any, int | None]
"""The input that waits after the position of each part; None if unknown."""

Share: TypeAlias = tuple[int, int]
"""How much has been read, and how much there is in all."""


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
    if lag is not None and not is_whole_number(lag, least=None):
        raise TypeError(f"lag() must return an int, or None if unknown; got {lag!r}")
    return lag


def share_of(reader: Any) -> Share | None:
    """Return how much of its part a reader has read, and the size of the part; None if unknown.

    Raises:
        TypeError: if it is not a pair of numbers.
    """
    share = reader.share()
    if share is None:
        return None
    if not isinstance(share, tuple) or [type(it) for it in share] != [int, int]:
        raise TypeError(f"share() must return two ints, or None if unknown; got {share!r}")
    read, whole = share
    return min(read, whole), whole


def total_share(shares: Iterable[Share | None]) -> Share | None:
    """Return the sum; None if any share is unknown or there are no shares.

    >>> total_share([(1, 2), (3, 3)]), total_share([(1, 2), None]), total_share([])
    ((4, 5), None, None)
    """
    found = [*shares]
    known = [it for it in found if it is not None]
    return (sum(it[0] for it in known), sum(it[1] for it in known)) if found and len(known) == len(found) else None
