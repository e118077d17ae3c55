"""Protocol Buffers: plain messages, or framed by the wire format of schema registries."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from malflow.checks import check_flag
from malflow.connectors.codecs.contract import Decoder, Encoder
from malflow.connectors.codecs.registry import (
    FRAME_SIZE,
    SchemaRegistry,
    check_subject,
    frame,
    message_indexes,
    read_message_indexes,
    schema_id,
)
from malflow.errors import GraphError
from malflow.words import short_repr

M = TypeVar("M")

__all__ = ["ProtobufDecoder", "ProtobufEncoder"]


class ProtobufDecoder(Decoder[M], Generic[M]):
    """Decode messages of one class.

    Args:
        message: the generated class.
        framed: whether records begin with the frame of a schema registry. The registry is not contacted: Protobuf
            itself handles older and newer messages.

    Raises:
        GraphError: if `message` is not the class of a message.
    """

    def __init__(self, message: type[M], *, framed: bool = False) -> None:
        check_flag("ProtobufDecoder", "framed", framed)
        self._path = _path_of(message, "ProtobufDecoder")
        self._message, self._framed = message, framed

    def decode(self, raw: bytes) -> M:
        """Return the message.

        Raises:
            ValueError: if the frame is damaged or belongs to another message.
        """
        message: Any = self._message()
        message.ParseFromString(raw[self._start(raw) :] if self._framed else raw)
        return message  # type: ignore[no-any-return] # its class has no stub

    def _start(self, raw: bytes) -> int:
        schema_id(raw)
        path, start = read_message_indexes(raw, FRAME_SIZE)
        if path != self._path:
            raise ValueError(
                f"it is message {list(path)} of its file, and {self._message.__name__} is message {list(self._path)}"
            )
        return start


class ProtobufEncoder(Encoder[M], Generic[M]):
    """Encode messages of one class.

    Args:
        message: the generated class.
        registry: the schema registry whose frame precedes each record; if None, records have no frame.
        subject: the registry's name for the schema, which must exist: its latest version is used.

    Raises:
        GraphError: if `message` is not the class of a message, or there is a registry without a subject.
    """

    def __init__(self, message: type[M], *, registry: SchemaRegistry | None = None, subject: str | None = None) -> None:
        check_subject("ProtobufEncoder", registry, subject)
        self._path = _path_of(message, "ProtobufEncoder")
        self._message, self._registry, self._subject = message, registry, subject
        self._start: bytes | None = b"" if registry is None else None

    def encode(self, value: M) -> bytes:
        """Return the bytes of a message.

        Raises:
            TypeError: if it is of another class.
            RegistryUnavailable: if the registry does not answer.
        """
        if not isinstance(value, self._message):
            raise TypeError(f"it is {type(value).__name__}, not {self._message.__name__}")
        plain: bytes = value.SerializeToString()  # type: ignore[attr-defined] # its class has no stub
        return (self._first() if self._start is None else self._start) + plain

    def _first(self) -> bytes:
        assert self._registry is not None  # noqa: S101 - narrows the type
        assert self._subject is not None  # noqa: S101 - narrows the type
        self._start = frame(int(self._registry.version(self._subject)["id"])) + message_indexes(self._path)
        return self._start


def _path_of(message: Any, asked_by: str) -> tuple[int, ...]:
    """Return the path of a message in its file: the indexes of the messages around it, then its own."""
    descriptor = getattr(message, "DESCRIPTOR", None)
    if not isinstance(message, type) or not hasattr(message, "ParseFromString") or descriptor is None:
        raise GraphError(f"{asked_by} needs the generated class of a message; got {short_repr(message)}")
    path: list[int] = []
    while descriptor.containing_type is not None:
        outer = descriptor.containing_type
        path.insert(0, [it.full_name for it in outer.nested_types].index(descriptor.full_name))
        descriptor = outer
    return (list(descriptor.file.message_types_by_name).index(descriptor.name), *path)
