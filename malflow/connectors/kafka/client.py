"""The client library: its settings, those that malflow fixes, and errors without secrets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from malflow.checks import check_mapping
from malflow.errors import GraphError, MalflowError
from malflow.words import plural, short_repr

__all__ = [
    "LOG",
    "REPEATED_EVERY",
    "BadKafkaRecord",
    "ClientSettings",
    "KafkaClientError",
    "KafkaDataLost",
    "KafkaFailed",
    "UnwritableKafkaRecord",
    "server_list",
]

_SHOWN = 80
"""The most bytes of a key or value in a message: about a line of a terminal. Its length follows."""


class KafkaFailed(MalflowError, RuntimeError):
    """Kafka refused a request or did not answer in time."""


class KafkaDataLost(KafkaFailed):
    """Records were deleted before they were read, or the partition has a different log.

    Attributes:
        topic, partition: the partition.
        wanted: the offset that was to be read next.
        available: the first available offset, and the one after the last.
    """

    def __init__(self, topic: str, partition: int, wanted: int, available: tuple[int, int], reason: str) -> None:
        low, high = available
        super().__init__(
            f"topic '{topic}' partition {partition}: {reason}; expected offset {wanted}, but the offsets are {low} to "
            f"{high}; to continue without the lost records, pass on_data_loss='earliest' (from {low}) or 'latest' "
            f"(from {high})"
        )
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.available = available
        self.reason = reason


class BadKafkaRecord(MalflowError, ValueError):
    """A record that cannot be decoded.

    Attributes:
        topic, partition, offset: its position.
        key, value: its key and value as bytes, or None.
        timestamp: its time in milliseconds since 1970.
        reason: the cause.
    """

    def __init__(
        self,
        place: tuple[str, int, int],
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        reason: str,
    ) -> None:
        topic, partition, offset = place
        super().__init__(
            f"topic '{topic}' partition {partition} offset {offset}: the record cannot be decoded: {reason}; its value "
            f"is {_beginning(value)}; to continue without it, pass on_error='skip', or a function that takes this error"
        )
        self.topic, self.partition, self.offset = place
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.reason = reason


class UnwritableKafkaRecord(MalflowError, ValueError):
    """A value that cannot be written as a record.

    Attributes:
        target: the topic.
        value: the value.
        reason: the cause.
    """

    refuses_records = True

    def __init__(self, target: str, value: object, reason: str) -> None:
        super().__init__(f"{target} cannot take {short_repr(value)}: {reason}")
        self.target = target
        self.value = value
        self.reason = reason


def _beginning(raw: bytes | None) -> str:
    if raw is None or len(raw) <= _SHOWN:
        return repr(raw)
    return f"{raw[:_SHOWN]!r}... ({plural(len(raw), 'byte')})"


LOG = logging.getLogger("malflow.kafka")

_CLIENT_LOG = logging.getLogger("malflow.kafka.client")

C = TypeVar("C")

_SECRET = re.compile(r"password|secret|token|\.pem$|jaas|sasl\.username|oauthbearer\.config|api\.key", re.IGNORECASE)
_SHARED = re.compile(
    r"^(client\.|security\.|sasl\.|ssl\.|enable\.ssl|enable\.sasl|socket\.|broker\.|reconnect\.|retry\.|metadata\.|"
    r"topic\.metadata|api\.version|connections\.|oauth|log_level$|debug$|builtin\.features$|message\.max\.bytes$|"
    r"receive\.message|resolve_cb$|plugin\.|client_rack$)"
)
"""The settings that every kind of client has."""

REPEATED_EVERY = 30.0
"""The seconds before the same message is logged again. Half of it doubles the lines during an outage, double makes it
seem to be over."""

_TIMES = re.compile(r"\(after .*?\)|rdkafka#\w+-\d+")

_REPLACED = {
    "auto.commit.enable": "positions are in malflow's snapshots",
    "metadata.broker.list": "pass servers=",
    "bootstrap.servers": "pass servers=",
    "default.topic.config": "pass its entries as settings of their own",
}


class _Repetitions(logging.Filter):
    """Drop repeated messages of the client. It tries to connect several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        said, now = _TIMES.sub("", record.getMessage()), time.monotonic()
        if now - self._said.get(said, -REPEATED_EVERY) < REPEATED_EVERY:
            return False
        self._said = {text: at for text, at in self._said.items() if now - at < REPEATED_EVERY}
        self._said[said] = now
        return True


_CLIENT_LOG.addFilter(_Repetitions())


def server_list(servers: str | Iterable[str], asked_by: str) -> str:
    """Return addresses in the client's form.

    Raises:
        GraphError: if there is no address, or one is malformed.
    """
    if not isinstance(servers, Iterable):
        raise GraphError(f"{asked_by} needs servers='host:9092' or several; got {short_repr(servers)}")
    listed = servers if isinstance(servers, str) else ",".join(map(str, servers))
    if not listed.strip(", "):
        raise GraphError(f"{asked_by} needs servers='host:9092' or several; got {short_repr(servers)}")
    if "://" in listed:
        raise GraphError(
            f"{asked_by} servers are 'host:port', separated by commas; encryption is chosen by "
            "settings={'security.protocol': ...}"
        )
    return listed


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client. The repr never shows one.

    Attributes:
        asked_by: the class that the user built, for errors.
        servers: the addresses of brokers.
        settings: the user's settings, checked.
        fixed: the settings that malflow depends on.
    """

    asked_by: str
    servers: str
    settings: Mapping[str, Any] = field(repr=False)
    fixed: Mapping[str, Any] = field(repr=False)

    @classmethod
    def checked(
        cls,
        asked_by: str,
        servers: str | Iterable[str],
        settings: Mapping[str, Any] | None,
        *,
        fixed: Mapping[str, tuple[Any, str]],
        usual: Mapping[str, Any],
    ) -> ClientSettings:
        """Merge a user's settings with malflow's.

        Args:
            asked_by: the class that the user built.
            servers: the addresses of brokers.
            settings: the user's settings.
            fixed: malflow's value of each setting that a user may not change, and the reason.
            usual: defaults that a user may change.

        Raises:
            GraphError: if the user's settings conflict with the fixed ones.
        """
        check_mapping(asked_by, "settings", settings, "librdkafka's settings")
        given = dict(settings or {})
        for name, value in given.items():
            if name in _REPLACED:
                raise GraphError(f"{asked_by} does not take the setting '{name}'; {_REPLACED[name]}")
            if name in fixed and fixed[name][0] is None:
                raise GraphError(f"{asked_by} does not take the setting '{name}': {fixed[name][1]}")
            if name in fixed and str(value).lower() != str(fixed[name][0]).lower():
                raise GraphError(f"{asked_by} needs '{name}' to be {fixed[name][0]!r}: {fixed[name][1]}")
        ours = {name: value for name, (value, _why) in fixed.items() if value is not None}
        return cls(asked_by, server_list(servers, asked_by), {**usual, **given}, ours)

    def consumer(self, **more: Any) -> Consumer:
        """Return a new consumer."""
        return self._built(Consumer, {**self.settings, **self.fixed, **more})

    def producer(self, **more: Any) -> Producer:
        """Return a new producer."""
        return self._built(Producer, {**self.settings, **self.fixed, **more})

    def admin(self, on_error: Callable[[KafkaError], object] | None = None) -> AdminClient:
        """Return a new client for metadata, with only the settings that all kinds of clients share."""
        shared = {name: value for name, value in self.settings.items() if _SHARED.match(name)}
        if on_error is not None:
            shared["error_cb"] = on_error
        return self._built(AdminClient, shared)

    def reader_of_offsets(self, group: str, isolation: str) -> Consumer:
        """Return a new consumer that only reads the offsets committed for a group.

        With ``"read_committed"``, it waits for an open transaction that commits such an offset.
        """
        shared = {name: value for name, value in self.settings.items() if _SHARED.match(name)}
        plain = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
        return self._built(Consumer, {**shared, **plain})

    def _built(self, kind: Callable[[dict[str, Any]], C], settings: dict[str, Any]) -> C:
        everything = {"logger": _CLIENT_LOG, **settings, "bootstrap.servers": self.servers}
        try:
            return kind(everything)
        except (KafkaException, TypeError, ValueError) as error:
            reason = self.text(error)
        raise GraphError(f"{self.asked_by} cannot build a Kafka client: {reason}")  # chained, it would show secrets

    def text(self, error: BaseException | KafkaError) -> str:
        """Return the text of an error, without the values of secret settings."""
        inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
        said = f"{inner.name()}: {inner.str()}" if isinstance(inner, KafkaError) else str(inner)
        for name, value in self.settings.items():
            if _SECRET.search(name) and isinstance(value, str) and value:
                said = said.replace(value, "***")
        return said

    def failed(self, doing: str, error: BaseException | KafkaError, *heard: str) -> KafkaClientError:
        """Return the error to raise after a failed request."""
        inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
        code = inner.code() if isinstance(inner, KafkaError) else None
        return KafkaClientError("; ".join((f"{doing} failed on {self.servers}: {self.text(error)}", *heard)), code)


class KafkaClientError(KafkaFailed):
    """A request failed.

    Attributes:
        code: the code of the client's error; None for other errors.
    """

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code
