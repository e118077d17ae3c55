"""The spelling of keys in systems whose keys are text: one for all keys that are equal in Python, and for no others.

1, 1.0, Decimal(1) and Fraction(1) are one key of a dataflow, so they are written as ``1``. The text ``"1"`` is another
key that would have the same spelling: an encoder takes keys of one kind, and refuses the first of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Final, Literal, TypeAlias

from malflow.connectors.codecs.contract import Encoder
from malflow.connectors.codecs.plain import Encode, JsonEncoder, encoder_of
from malflow.words import short_repr

__all__ = ["KeyKind", "KindOfKeys", "PlainKeyEncoder", "json_key", "key_encoder_of", "number_text"]

KeyKind: TypeAlias = Literal["text", "bytes", "a number"]

_OF_BOOL: Final = "it equals 1 or 0 as a key; convert it, as by str()"


def number_text(number: Any) -> str:
    """Return the text of a number. It is the same for all numbers that equal it.

    Raises:
        TypeError: if it is not a number, or is a truth.
        ValueError: if it is NaN, or no float is equal to it.

    >>> number_text(1.0), number_text(Decimal("2.50")), number_text(10**20)
    ('1', '2.5', '100000000000000000000')
    """
    if type(number) is int:
        return int.__repr__(number)
    if isinstance(number, bool) or not isinstance(number, (Real, Decimal)):
        raise TypeError(f"it is {type(number).__name__}, not bytes, text or a number")
    return _text_of_real(number)


def _text_of_real(number: Any) -> str:
    try:
        whole = int(number)
        if whole == number:
            return int.__repr__(whole)
    except (OverflowError, ValueError, ArithmeticError):  # infinite, or NaN
        pass
    try:
        near = float(number)
    except (OverflowError, ValueError, ArithmeticError):
        near = float("nan")
    if math.isnan(near) or near != number:  # a signaling NaN can't be compared
        raise ValueError(f"no float is equal to {short_repr(number)}, so that another key may have its text")
    return float.__repr__(near)


class KindOfKeys:
    """The kind of the keys that were seen: keys of another kind are refused.

    Args:
        instead: what to do instead, for the message.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._seen: tuple[KeyKind, Any] | None = None

    def see(self, kind: KeyKind, key: Any) -> None:
        """Note a key.

        Raises:
            TypeError: if an earlier one was of another kind.
        """
        if self._seen is None:
            self._seen = kind, key
        elif self._seen[0] != kind:
            before, first = self._seen
            raise TypeError(
                f"it is {kind}, and the key {short_repr(first)} before it is {before}: unequal keys, such as 1 and "
                f"'1', would be written alike; {self._instead}"
            )

    @property
    def seen(self) -> tuple[KeyKind, Any] | None:
        """The kind, and the first key of it."""
        return self._seen

    def forget(self) -> None:
        """Forget the kind that was seen."""
        self._seen = None


class PlainKeyEncoder(Encoder[Any]):
    """Encode keys as clients write them: bytes and text as they are, numbers in decimal.

    Args:
        instead: what to do instead if keys are of several kinds; None: they may be, since nothing is written.
    """

    def __init__(self, instead: str | None) -> None:
        self.kind = None if instead is None else KindOfKeys(instead)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a key.

        Raises:
            TypeError: if it is not bytes, text or a number, or earlier keys were of another kind.
            ValueError: if another key may have its text.
        """
        if isinstance(value, bytes):
            kind: KeyKind = "bytes"
            raw = value
        elif isinstance(value, str):
            kind, raw = "text", value.encode()
        else:
            kind, raw = "a number", number_text(value).encode()
        if self.kind is not None:
            self.kind.see(kind, value)
        return raw

    def encode_column(self, values: Sequence[Any]) -> Sequence[bytes]:
        """Return the bytes of several keys; see `encode`."""
        kinds = set(map(type, values))
        if len(kinds) == 1 and (quick := _QUICK.get(*kinds)) is not None:
            self.encode(values[0])
            return list(map(quick, values))
        return list(map(self.encode, values))


_QUICK: dict[type, Callable[[Any], bytes]] = {str: str.encode, bytes: bytes, int: b"%d".__mod__}


class _JsonKeyEncoder(Encoder[Any]):
    def __init__(self, encoder: JsonEncoder) -> None:
        self._encoder = encoder

    def encode(self, value: Any) -> bytes:
        return self._encoder.encode(json_key(value))


def json_key(key: Any) -> Any:
    """Return a key for JSON. All keys that are equal have the same text.

    Raises:
        TypeError: if a part of it is a truth value; JSON writes it differently from the equal 1.

    >>> json_key(("a", 1.0))
    ['a', 1]
    """
    if isinstance(key, bool):
        raise TypeError(f"{key!r} is in it, and {_OF_BOOL}")
    if isinstance(key, float):
        return int(key) if key.is_integer() else key
    if isinstance(key, (tuple, list)):
        return [json_key(it) for it in key]
    return key


def key_encoder_of(encode: Encode | None, asked_by: str, *, writes: bool) -> Encoder[Any]:
    """Return the encoder of keys for a user's option.

    Args:
        encode: the option; None for keys as clients write them.
        asked_by: the class, for messages.
        writes: whether the keys are written and unequal ones must be told apart.

    Raises:
        GraphError: if the option is invalid.
    """
    if encode is None:
        return PlainKeyEncoder("pass encode_key='json', or make them alike" if writes else None)
    encoder = encoder_of(encode, asked_by, "encode_key")
    return _JsonKeyEncoder(encoder) if isinstance(encoder, JsonEncoder) else encoder
