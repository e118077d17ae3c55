"""Codecs of records' bytes: decoders for sources, encoders for sinks, shared by the connectors."""

from typing import TYPE_CHECKING

from malflow.connectors.codecs.avro import AvroDecoder, AvroEncoder
from malflow.connectors.codecs.contract import CodecUnavailable, Decoder, Encoder
from malflow.connectors.codecs.plain import (
    BytesDecoder,
    BytesEncoder,
    Decode,
    Encode,
    JsonDecoder,
    JsonEncoder,
    TextDecoder,
    TextEncoder,
    decoder_of,
    encoder_of,
)
from malflow.connectors.codecs.protobuf import ProtobufDecoder, ProtobufEncoder
from malflow.connectors.codecs.registry import RegistryUnavailable, SchemaRegistry
from malflow.names import load_on_use

if TYPE_CHECKING:
    from malflow.connectors.codecs.json_columns import JsonColumns
else:
    load_on_use(__name__, {"JsonColumns": ".json_columns"}, "pyarrow", "columns")

__all__ = [
    "AvroDecoder",
    "AvroEncoder",
    "BytesDecoder",
    "BytesEncoder",
    "CodecUnavailable",
    "Decode",
    "Decoder",
    "Encode",
    "Encoder",
    "JsonColumns",
    "JsonDecoder",
    "JsonEncoder",
    "ProtobufDecoder",
    "ProtobufEncoder",
    "RegistryUnavailable",
    "SchemaRegistry",
    "TextDecoder",
    "TextEncoder",
    "decoder_of",
    "encoder_of",
]
