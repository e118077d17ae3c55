"""Topics of Kafka by their URL: ``kafka://host:9092,other:9092/topic?format=json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from malflow.connectors.address import Address
from malflow.connectors.kafka.sink import KafkaSink
from malflow.connectors.kafka.source import KafkaSource
from malflow.connectors.option_texts import with_options_of
from malflow.errors import GraphError

__all__ = ["sink", "source"]

T = TypeVar("T")


def _builder(kind: Callable[..., T], coder: str, *, several: bool) -> Callable[..., T]:
    """Return a function that builds a source or sink from a URL.

    Args:
        kind: the class; the function has its options, except for the servers.
        coder: the option for which `format` is an alias.
        several: whether the path may name several topics, separated by commas.
    """

    @with_options_of(kind, without="servers", format=Literal["bytes", "text", "json"])
    def make(address: Address, /, **options: Any) -> T:
        topics = [topic for topic in address.path.split(",") if topic]
        if not topics or (len(topics) > 1 and not several):
            raise GraphError(f"connect('{address}') needs the name of a topic: kafka://host:9092/topic")
        chosen = options.pop("format", None)
        if chosen is not None:
            if coder in options:
                raise GraphError(f"connect('{address}') has both format and {coder}, which mean the same; give one")
            options[coder] = chosen
        if address.user is not None:
            options["settings"] = _credentials(address, options.get("settings"))
        return kind(topics if several else topics[0], servers=address.netloc, **options)

    return make


def _credentials(address: Address, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return settings with the user and password of the URL; over TLS, unless the settings say otherwise."""
    ours = {"sasl.username": address.user, "sasl.password": address.password or ""}
    twice = [name for name in ours if name in (settings or {})]
    if twice:
        raise GraphError(f"connect('{address}') has the setting '{twice[0]}' and a user in its URL; give one")
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **ours, **(settings or {})}


source = _builder(KafkaSource, "decode", several=True)
sink: Callable[..., KafkaSink[Any, Any, Any]] = _builder(KafkaSink, "encode", several=False)
