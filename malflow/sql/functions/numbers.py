"""Numbers, as the generated code calculates with them: as Flink does, but what does not fit is an error."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import atan2, degrees, radians, tanh
from typing import Any, TypeVar

__all__ = [
    "DECIMALS",
    "acos",
    "asin",
    "atan2",
    "boolean_of_text",
    "ceiling",
    "cosh",
    "cosine",
    "decimal_of",
    "decimal_of_text",
    "degrees",
    "divide",
    "divide_decimals",
    "divide_floats",
    "exp",
    "float_of_text",
    "float_text",
    "floor",
    "integer_of",
    "integer_of_text",
    "lies_between",
    "log10",
    "logarithm",
    "number_of_text",
    "order",
    "power",
    "radians",
    "remainder",
    "rounded",
    "sign",
    "sine",
    "single",
    "single_text",
    "sinh",
    "square_root",
    "tangent",
    "tanh",
    "truncated",
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
    """Divide whole numbers; digits after the point are cut off."""
    quotient = abs(left) // abs(right) if right else _by_zero()
    return quotient if (left < 0) is (right < 0) else -quotient


def _by_zero() -> int:
    raise ZeroDivisionError("division by zero")


def remainder(left: int | Decimal, right: int | Decimal) -> int | Decimal:
    """Return the remainder of a division; it has the sign of the left number."""
    if not right:
        _by_zero()
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return DECIMALS.remainder(left, right)


def divide_decimals(left: int | Decimal, right: int | Decimal, digits: int, scale: int) -> Decimal:
    """Divide exact numbers, and round to so many digits after the point."""
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
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a DECIMAL")
    if isinstance(number, float):
        number = Decimal(repr(number))
    try:
        found = DECIMALS.quantize(Decimal(number), _QUANTA[scale])
    except InvalidOperation:
        found = _BOUNDS[digits]
    if abs(found) >= _BOUNDS[digits - scale]:
        raise OverflowError(f"{number} does not fit into DECIMAL({digits}, {scale})")
    return found or abs(found)


def integer_of(number: float | Decimal, bits: int) -> int:
    """Return a number without its digits after the point."""
    if isinstance(number, float) and not math.isfinite(number):
        raise OverflowError(f"{number} does not fit into {_NAMES[bits]}")
    return within(int(number), bits)


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def integer_of_text(text: str, bits: int) -> int:
    """Return the whole number of a text; digits after a point are cut off."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[1]:
        raise ValueError(f"{text!r} is not of type {_NAMES[bits]}")
    return within(int(Decimal(match[0])), bits)


def number_of_text(text: str) -> Decimal:
    """Return the number of a text, with all of its digits."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    return Decimal(match[0])


def decimal_of_text(text: str, digits: int, scale: int) -> Decimal:
    """Return the DECIMAL of a text."""
    return decimal_of(number_of_text(text), digits, scale)


def float_of_text(text: str) -> float:
    """Return the float of a text; infinite ones and NaN are written as Java does."""
    text = text.strip()
    if _NUMBER.fullmatch(text) is None and text.lstrip("+-") not in {"NaN", "Infinity"}:
        raise ValueError(f"{text!r} is not a DOUBLE")
    return float(text)


_TRUTHS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def boolean_of_text(text: str) -> bool:
    """Return the boolean of a text."""
    found = _TRUTHS.get(text.lower())
    if found is None:
        raise ValueError(f"{text!r} is not a BOOLEAN, such as 'true' or 'no'")
    return found


def single(number: float) -> float:
    """Return a float with the digits that 32 bits hold: infinite if it is beyond them."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


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


_SINGLE_DIGITS = range(1, 10)
"""The digits of which nine tell all floats of 32 bits apart."""


def single_text(number: float) -> str:
    """Return the text of a float of 32 bits: the shortest one that is read as the same."""
    texts = (f"{number:.{digits}g}" for digits in _SINGLE_DIGITS)
    return float_text(next((float(it) for it in texts if single(float(it)) == number), number))


N = TypeVar("N", int, float, Decimal)


def rounded(number: N, places: int, how: str = ROUND_HALF_UP) -> N:
    """Return a number with so many digits after the point, rounded half away from zero; before it if negative."""
    if isinstance(number, float) and not math.isfinite(number):
        return number
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    if int(exact.as_tuple().exponent) >= -places:
        return number
    return type(number)(exact.quantize(Decimal(1).scaleb(-places), how, DECIMALS))


def truncated(number: N, places: int) -> N:
    """Return a number with so many digits after the point, cut off."""
    return rounded(number, places, ROUND_DOWN)


def floor(number: N) -> N:
    """Return the largest whole number that is not above a number, as its type."""
    return number if isinstance(number, float) and not math.isfinite(number) else type(number)(math.floor(number))


def ceiling(number: N) -> N:
    """Return the least whole number that is not below a number, as its type."""
    return number if isinstance(number, float) and not math.isfinite(number) else type(number)(math.ceil(number))


def lies_between(value: Any, one: Any, other: Any) -> bool:
    """Whether a value is between two others, in either order."""
    return bool(one <= value <= other or other <= value <= one)


def sign(number: N) -> N:
    """Return -1, 0 or 1, as the type of a number; NaN for NaN."""
    return number if number != number else type(number)((number > 0) - (number < 0))  # noqa: PLR0124 - NaN


def order(number: float) -> tuple[bool, float]:
    """Return where a float stands among others: NaN is the largest, as for GREATEST and LEAST of Flink."""
    return number != number, number  # noqa: PLR0124 - NaN


def power(base: float, exponent: float) -> float:
    """Return a power: infinite if it is too large, NaN if it is not a real number."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return math.nan if base else math.inf


def _total(function: Callable[[float], float], at_zero: float = math.nan) -> Callable[[float], float]:
    """Return a function for all floats: infinite where it is too large, NaN where it has no value."""

    def calculated(number: float) -> float:
        try:
            return function(number)
        except ValueError:
            return math.nan if number else at_zero
        except OverflowError:
            return abs(number) * math.inf if number > 0 or function is math.cosh else -math.inf

    return calculated


exp, square_root, asin, acos = _total(math.exp), _total(math.sqrt), _total(math.asin), _total(math.acos)
sine, cosine, tangent = _total(math.sin), _total(math.cos), _total(math.tan)
sinh, cosh = _total(math.sinh), _total(math.cosh)
logarithm, log10 = _total(math.log, -math.inf), _total(math.log10, -math.inf)
