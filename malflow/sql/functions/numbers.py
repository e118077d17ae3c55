"""Numbers, as the generated code calculates with them: as Flink does, but what does not fit is an error."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation

__all__ = [
    "DECIMALS",
    "decimal_of",
    "divide",
    "divide_decimals",
    "divide_floats",
    "float_of_text",
    "float_text",
    "integer_of",
    "integer_of_text",
    "remainder",
    "within",
]

DECIMALS = Context(prec=80, rounding=ROUND_HALF_UP)
"""Calculates DECIMALs exactly: a product of two has up to 76 digits. Results are rounded where their type says so."""

_LIMITS = {bits: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)}
_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}


def within(number: int, bits: int) -> int:
    """Return a whole number that fits into so many bits.

    Raises:
        OverflowError: if it does not fit.
    """
    low, high = _LIMITS[bits]
    if low <= number <= high:
        return number
    raise OverflowError(f"{number} does not fit into {_NAMES[bits]}, which has {bits} bits")


def divide(left: int, right: int) -> int:
    """Divide whole numbers; what is behind the point is cut off."""
    quotient = abs(left) // abs(right) if right else _by_zero()
    return quotient if (left < 0) is (right < 0) else -quotient


def _by_zero() -> int:
    raise ZeroDivisionError("division by zero")


def remainder(left: int | Decimal, right: int | Decimal) -> int | Decimal:
    """Return what a division leaves; it has the sign of the left number."""
    if not right:
        _by_zero()
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return DECIMALS.remainder(left, right)


def divide_decimals(left: int | Decimal, right: int | Decimal, digits: int, scale: int) -> Decimal:
    """Divide exact numbers, and round to so many digits behind the point."""
    if not right:
        _by_zero()
    return decimal_of(DECIMALS.divide(Decimal(left), Decimal(right)), digits, scale)


def divide_floats(left: float, right: float) -> float:
    """Divide as IEEE 754 does: by zero it is infinite, and 0 by 0 is NaN."""
    left, right = float(left), float(right)
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


_QUANTA = [Decimal(1).scaleb(-scale) for scale in range(39)]
_BOUNDS = [Decimal(10) ** digits for digits in range(40)]


def decimal_of(number: float | Decimal, digits: int, scale: int) -> Decimal:
    """Return a number as a DECIMAL, rounded half up.

    Raises:
        OverflowError: if it has more digits before the point than the type.
        ValueError: if it is infinite or NaN.
    """
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ValueError(f"{number} is no DECIMAL")
        number = Decimal(repr(number))
    try:
        found = DECIMALS.quantize(Decimal(number), _QUANTA[scale])
    except InvalidOperation:
        found = _BOUNDS[digits]
    if abs(found) >= _BOUNDS[digits - scale]:
        raise OverflowError(f"{number} does not fit into DECIMAL({digits}, {scale})")
    return found


def integer_of(number: float | Decimal, bits: int) -> int:
    """Return a number without its digits behind the point."""
    if isinstance(number, float) and not math.isfinite(number):
        raise OverflowError(f"{number} does not fit into {_NAMES[bits]}")
    return within(int(number), bits)


def integer_of_text(text: str, bits: int) -> int:
    """Return the whole number of a text; what is behind a point is cut off."""
    try:
        number = Decimal(text.strip())
        found = int(number.to_integral_value(ROUND_DOWN)) if "e" not in text.lower() else None
    except (InvalidOperation, ValueError, OverflowError):
        found = None
    if found is None:
        raise ValueError(f"{text!r} is no {_NAMES[bits]}")
    return within(found, bits)


def float_of_text(text: str) -> float:
    """Return the float of a text."""
    if "_" in text:
        raise ValueError(f"{text!r} is no DOUBLE")
    return float(text)


_PLAIN = (1e-3, 1e7)
"""Floats from and below which Java writes a power of ten."""


def float_text(number: float) -> str:
    """Return the text of a float as Java writes it, such as `1.0E300`."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if not number or _PLAIN[0] <= abs(number) < _PLAIN[1]:
        return repr(float(number))
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    written = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    return f"{'-' * sign}{written[0]}.{written[1:] or '0'}E{power}"
