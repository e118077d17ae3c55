"""Numbers of single precision, as databases show them: by their shortest digits."""

from __future__ import annotations

import struct

__all__ = ["shortest_single"]


def shortest_single(value: float) -> float:
    """Return the number with the fewest digits that is the same in single precision; `value` if it has none.

    >>> shortest_single(0.10000000149011612), shortest_single(16777216.0), shortest_single(1e300)
    (0.1, 16777216.0, 1e+300)
    """
    packed = _packed(value)
    if packed is None:
        return value
    near = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((it for it in near if _packed(it) == packed), value)


def _packed(value: float) -> bytes | None:
    try:
        return struct.pack("f", value)
    except OverflowError:
        return None
