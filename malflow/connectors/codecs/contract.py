"""The contracts of decoders and encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from malflow.errors import MalflowError

__all__ = ["CodecUnavailable", "Decoder", "Encoder"]

V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class CodecUnavailable(MalflowError, RuntimeError):
    """A codec cannot work at the moment, through no fault of the record.

    Connectors never skip a record because of it.
    """


class Decoder(ABC, Generic[V_co]):
    """Convert bytes to values. A decoder is built once and used in several processes, so it must be picklable."""

    emits_columns: ClassVar[bool] = False
    """Whether `decode_column` returns columns."""

    @abstractmethod
    def decode(self, raw: bytes) -> V_co:
        """Return the value of one record.

        Raises:
            CodecUnavailable: if no record can be decoded now.
            Exception: any other exception means that these bytes have no value.
        """

    def decode_column(self, raws: Sequence[bytes]) -> Sequence[V_co]:
        """Return the values of several records; raise if one has no value.

        The default calls `decode`.
        """
        return list(map(self.decode, raws))


class Encoder(ABC, Generic[V_contra]):
    """Convert values to bytes. An encoder is built once and used in several processes, so it must be picklable."""

    @abstractmethod
    def encode(self, value: V_contra) -> bytes:
        """Return the bytes of one value.

        Raises:
            CodecUnavailable: if no value can be encoded now.
            Exception: any other exception means that this value cannot be encoded.
        """

    def encode_column(self, values: Sequence[V_contra]) -> Sequence[bytes]:
        """Return the bytes of several values; raise if one cannot be encoded.

        The default calls `encode`.
        """
        return list(map(self.encode, values))
