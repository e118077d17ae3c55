"""The measurements of a peer of the running sum on several processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["Measured", "scattered"]

_STEP = 7_919
_SHORTEST = 100_000


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a window of time.

    Attributes:
        rate: records a second.
        cpu: seconds of processor time, of all processes, in the window.
        records: the records of the window.
        ticks: how many ticks or batches it had; 0 where there are none.
        tick: how many seconds each took, by the median.
        snapshots: how many snapshots were committed in it.
    """

    rate: float
    cpu: float
    records: int
    ticks: int = 0
    tick: float = 0.0
    snapshots: int = 0


@cache
def scattered(keys: int) -> list[int]:
    """List the numbers below `keys` in an order that jumps about, often enough to cut it in slices of some thousands.

    There is one list a process.
    """
    return [number * _STEP % keys for number in range(keys)] * -(-_SHORTEST // keys)
