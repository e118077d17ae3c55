"""Codecs that need only Python (bytes, text and JSON), and the options `decode` and `encode`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from malflow.checks import check_function
from malflow.connectors.codecs.contract import Decoder, Encoder
from malflow.connectors.json_names import check_names
from malflow.connectors.json_values import json_value, json_values
from malflow.connectors.options import check_encoding
from malflow.errors import GraphError
from malflow.words import did_you_mean

__all__ = [
    "BytesDecoder",
    "BytesEncoder",
    "Decode",
    "Encode",
    "JsonDecoder",
    "JsonEncoder",
    "TextDecoder",
    "TextEncoder",
    "decoder_of",
    "encoder_of",
]

_NOT_JSON = "pass encode=JsonEncoder(default=str), of malflow.connectors.codecs, or a formatter= that returns JSON"


class BytesDecoder(Decoder[bytes]):
    """Return the bytes as they are."""

    def decode(self, raw: bytes) -> bytes:
        """Return the same bytes."""
        return raw

    def decode_column(self, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Return the same column."""
        return raws


class BytesEncoder(Encoder[bytes | bytearray | memoryview]):
    """Write bytes as they are."""

    def encode(self, value: bytes | bytearray | memoryview) -> bytes:
        """Return the bytes.

        Raises:
            TypeError: if the value is not bytes.
        """
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"it is {type(value).__name__}, not bytes; pass encode='json' or another encoder")


class TextDecoder(Decoder[str]):
    """Decode text.

    Args:
        encoding: the name of the encoding.

    Raises:
        GraphError: if the encoding is unknown.

    >>> TextDecoder().decode("Köln".encode())
    'Köln'
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        check_encoding("TextDecoder", encoding)
        self._encoding = encoding

    def decode(self, raw: bytes) -> str:
        """Return the text."""
        return raw.decode(self._encoding)


class TextEncoder(Encoder[str]):
    """Encode text.

    Args:
        encoding: the name of the encoding.

    Raises:
        GraphError: if the encoding is unknown.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        check_encoding("TextEncoder", encoding)
        self._encoding = encoding

    def encode(self, value: str) -> bytes:
        """Return the bytes of a text.

        Raises:
            TypeError: if the value is not a string.
        """
        if not isinstance(value, str):
            raise TypeError(f"it is {type(value).__name__}, not text; pass encode='json' or another encoder")
        return value.encode(self._encoding)


class JsonDecoder(Decoder[Any]):
    """Decode JSON in UTF-8, as the `json` module does.

    >>> JsonDecoder().decode_column([b'{"n": 1}', b" [2] "])
    [{'n': 1}, [2]]
    """

    def decode(self, raw: bytes) -> Any:
        """Return the value."""
        return json_value(raw.decode())

    def decode_column(self, raws: Sequence[bytes]) -> list[Any]:
        """Return the values."""
        return json_values([raw.decode() for raw in raws])


class JsonEncoder(Encoder[Any]):
    """Encode JSON in ASCII without white space; values that are not JSON are refused, as are NaN and infinity.

    Args:
        default: as in `json.dumps`: converts a value that is not JSON to one that is.

    Raises:
        GraphError: if `default` is not a function.

    >>> JsonEncoder().encode({"n": [1, None]})
    b'{"n":[1,null]}'
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        if default is not None:
            check_function("JsonEncoder", "default", default)
        self._default = default
        checked = None if default is None else _Checked(default)
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=checked).encode

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            TypeError: if a part of it is not JSON.
            ValueError: if a number is NaN or infinite, the value contains itself, or two names in it, such as 1 and
                ``"1"``, are one in JSON.
        """
        raw = self._encoded(value)
        check_names((value,))
        return raw

    def encode_column(self, values: Sequence[Any]) -> list[bytes]:
        """Return the bytes of several values; see `encode`."""
        raws = list(map(self._encoded, values))
        check_names(values)
        return raws

    def _encoded(self, value: Any) -> bytes:
        try:
            return self._encode(value).encode("ascii")
        except TypeError as error:
            if self._default is not None:
                raise
            raise TypeError(f"{error}; {_NOT_JSON}") from None


class _Checked:
    """Checks what a user's function converts values to."""

    def __init__(self, default: Callable[[Any], Any]) -> None:
        self._default = default

    def __call__(self, value: Any) -> Any:
        converted = self._default(value)
        if isinstance(converted, dict):
            check_names((dict.fromkeys(converted),))  # what is in it may contain itself
        return converted


Decode: TypeAlias = Literal["bytes", "text", "json"] | Decoder[Any] | Callable[[bytes], Any]
"""A decoder, its name, or a function of the bytes that raises an exception if they have no value."""

Encode: TypeAlias = Literal["bytes", "text", "json"] | Encoder[Any] | Callable[[Any], bytes]
"""An encoder, its name, or a function that returns the bytes of a value."""

C = TypeVar("C")

_DECODERS: dict[str, Callable[[], Decoder[Any]]] = {"bytes": BytesDecoder, "json": JsonDecoder, "text": TextDecoder}
_ENCODERS: dict[str, Callable[[], Encoder[Any]]] = {"bytes": BytesEncoder, "json": JsonEncoder, "text": TextEncoder}


class _CalledDecoder(Decoder[Any]):
    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def decode(self, raw: bytes) -> Any:
        return self._function(raw)

    def decode_column(self, raws: Sequence[bytes]) -> list[Any]:
        return list(map(self._function, raws))


class _CalledEncoder(Encoder[Any]):
    def __init__(self, function: Callable[[Any], bytes]) -> None:
        self._function = function

    def encode(self, value: Any) -> bytes:
        raw = self._function(value)
        if not isinstance(raw, bytes):
            raise TypeError(f"the encoding function returned {type(raw).__name__}, not bytes")
        return raw


def decoder_of(decode: Decode, asked_by: str, option: str = "decode") -> Decoder[Any]:
    """Return the decoder for a user's option.

    Raises:
        GraphError: if the option is invalid.

    >>> decoder_of("json", "KafkaSource").decode(b"[1]"), decoder_of(float, "KafkaSource").decode(b"1.5")
    ([1], 1.5)
    """
    if isinstance(decode, Decoder):
        return decode
    if isinstance(decode, str):
        return _codec_named(_DECODERS, decode, asked_by, option)
    _check_function(asked_by, option, decode, Decoder)
    return _CalledDecoder(decode)


def encoder_of(encode: Encode, asked_by: str, option: str = "encode") -> Encoder[Any]:
    """Return the encoder for a user's option.

    Raises:
        GraphError: if the option is invalid.
    """
    if isinstance(encode, Encoder):
        return encode
    if isinstance(encode, str):
        return _codec_named(_ENCODERS, encode, asked_by, option)
    _check_function(asked_by, option, encode, Encoder)
    return _CalledEncoder(encode)


def _codec_named(codecs: Mapping[str, Callable[[], C]], name: str, asked_by: str, option: str) -> C:
    if name in codecs:
        return codecs[name]()
    raise GraphError(f"{asked_by} has no codec {option}={name!r}{did_you_mean(name, codecs)}")


def _check_function(asked_by: str, option: str, function: object, kind: type) -> None:
    if isinstance(function, type) and issubclass(function, kind):
        raise GraphError(f"{asked_by} {option} got the class {function.__name__}; write {function.__name__}(...)")
    check_function(asked_by, option, function, or_else=("a name", "a codec"))
