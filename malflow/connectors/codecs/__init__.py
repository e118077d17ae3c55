"""Codecs of records' bytes: decoders for sources, encoders for sinks, shared by the connectors."""

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
