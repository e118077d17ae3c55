"""Bars and lines made of characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["bar", "sparkline"]

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_LEVELS: Final = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a bar for a share from 0 to 1, padded with spaces to its width.

    >>> bar(0.34, 10), bar(1, 3), bar(0, 3)
    ('███▍      ', '███', '   ')
    """
    full, rest = divmod(round(min(1.0, max(0.0, share)) * width * 8), 8)
    return f"{'█' * full}{_EIGHTHS[rest] if rest else ''}".ljust(width)


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, as high as its share of the greatest one.

    >>> sparkline([0, 1, 2, 4]), sparkline([0, 0]), sparkline([])
    ('▁▂▄█', '▁▁', '')
    """
    most = max(values, default=0)
    return "".join(_LEVELS[min(7, int(value / most * 7.99))] if most > 0 else _LEVELS[0] for value in values)
