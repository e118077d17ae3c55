"""The options `decode` and `encode`: a codec, its name, or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from malflow.checks import check_function
from malflow.connectors.codecs.contract import Decoder, Encoder
from malflow.connectors.codecs.plain import (
    BytesDecoder,
    BytesEncoder,
    JsonDecoder,
    JsonEncoder,
    TextDecoder,
    TextEncoder,
)
from malflow.errors import GraphError
from malflow.words import did_you_mean

__all__ = ["Decode", "Encode", "decoder_of", "encoder_of"]

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
