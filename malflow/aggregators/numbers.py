"""Numbers that add up exactly: integers, Decimals, and scalars of numpy and pandas as Python's.

Python adds a Decimal in the context of the thread, which rounds it to 28 digits unless the program says otherwise, so
that a sum would depend on the order of its terms and on the thread. A scalar of numpy keeps its type in a sum: an
integer of eight bits wraps around at 256, and a float of 32 bits makes a float of 32 bits of a sum of 64.
"""

from __future__ import annotations

import sys
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Overflow,
    getcontext,
)
from typing import Any

__all__ = ["PLAIN", "added", "divided", "may_be_of_numpy", "number"]

PLAIN = frozenset({int, float})
"""The types of most numbers, which ``+`` adds as it should."""

_MOST_DIGITS = 100_000
"""The most digits of a sum. Without a limit, two terms of far-apart magnitudes fill the memory with zeros; a lower
limit refuses more sums, a higher one allows larger states."""

_USUAL_DIGITS = 28
"""The least precision of a mean: the default of `decimal`. It counts if the thread's context has fewer digits; half of
it rounds such means more, double makes them longer."""

_FURTHER_DIGITS = 10
"""The digits of a mean beyond its sum's, for its fraction: fewer round it sooner, more make it longer."""

_EXACT = Context(
    prec=_MOST_DIGITS,
    rounding=ROUND_HALF_EVEN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    clamp=0,
    traps=[InvalidOperation, Inexact, Overflow],
)


def may_be_of_numpy() -> bool:
    """Whether numpy is loaded; there may then be scalars of numpy."""
    return "numpy" in sys.modules


def number(x: Any) -> Any:
    """Return a scalar of numpy as a number of Python, the NA of pandas as None, and anything else unchanged.

    >>> number(3), number("3")
    (3, '3')
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return x
    if isinstance(x, numpy.generic):
        is_number = isinstance(x, (numpy.bool_, numpy.number)) and not isinstance(x, numpy.timedelta64)
        return x.item() if is_number else x
    pandas = sys.modules.get("pandas")
    return None if x is getattr(pandas, "NA", number) else x


def added(one: Any, other: Any) -> Any:
    """Return the sum of two numbers. One of them may be a Decimal or a scalar of numpy.

    Raises:
        ArithmeticError: if a sum of Decimals has too many digits.
        OverflowError: if numpy's span of time wraps around.
    """
    if one.__class__ is other.__class__ is Decimal:
        return _exactly(one, other)
    one, other = number(one), number(other)
    if isinstance(one, Decimal) and isinstance(other, (Decimal, int)):
        return _exactly(one, Decimal(other))
    if isinstance(other, Decimal) and isinstance(one, int):
        return _exactly(Decimal(one), other)
    total = one + other
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(total, numpy.timedelta64):
        _check_span(one, other, total)
    return total


def _check_span(one: Any, other: Any, total: Any) -> None:
    zero = other - other
    if zero == zero and other != zero and (other > zero) != (total > one):  # noqa: PLR0124 - NaT differs from itself
        raise OverflowError(f"a sum of spans of numpy, {one} and {other}, is beyond the 64 bits of their unit")


def _exactly(one: Decimal, other: Decimal) -> Decimal:
    try:
        return _EXACT.add(one, other)
    except Inexact:
        raise ArithmeticError(
            f"a sum of Decimals needs more than {_MOST_DIGITS:,} digits; it was of the magnitude "
            f"10 ** {one.adjusted()}, and the next term of 10 ** {other.adjusted()}; call .map() first to round terms"
        ) from None


def divided(total: Any, count: int) -> Any:
    """Return the mean from a sum and a count.

    That of Decimals has 28 digits, or as many as the thread's context, and at least ten more than the sum.
    """
    total = number(total)
    if not isinstance(total, Decimal):
        return total / count
    digits = max(_USUAL_DIGITS, getcontext().prec, len(total.as_tuple().digits) + _FURTHER_DIGITS)
    context = _EXACT.copy()
    context.prec = digits
    context.traps[Inexact] = False
    return context.divide(total, Decimal(count))
