"""Metadata of topics: their ids and partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from malflow.connectors.kafka.client import ClientSettings, KafkaFailed
from malflow.words import did_you_mean

__all__ = ["MISSING", "PASSING", "REQUEST_SECONDS", "Topic", "TopicWatch", "describe", "describe_known"]

REQUEST_SECONDS = 30.0
"""The longest wait in seconds for brokers to answer: a broker's failover takes some seconds. Half of it fails during a
slow one, double reports a dead cluster later."""

_POLL_SECONDS = 0.05
"""The seconds between two checks whether answers or a refusal have come. Half of it wakes twice as often, double delays
the start a little."""

_UNTRUSTED = "certificate verify failed"

PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors from which the client recovers by itself."""

MISSING = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors that suggest that a topic is gone."""


class Topic(NamedTuple):
    """A topic as it is now.

    Attributes:
        id: distinguishes it from a later topic of the same name.
        partitions: the numbers of its partitions.
    """

    id: str
    partitions: tuple[int, ...]


def describe_known(settings: ClientSettings, topics: Sequence[str]) -> dict[str, Topic]:
    """Describe topics; all of them must exist.

    Raises:
        KafkaFailed: if one does not exist, or the servers do not answer.
    """
    found = describe(settings, topics)
    for topic in topics:
        if topic not in found:
            raise KafkaFailed(f"topic '{topic}' does not exist on {settings.servers}{_hint(settings, topic)}")
    return found


def describe(settings: ClientSettings, topics: Sequence[str]) -> dict[str, Topic]:
    """Describe topics, without those that do not exist.

    Raises:
        KafkaFailed: if the servers do not answer, or refuse the connection.
    """
    heard: list[KafkaError] = []
    admin = settings.admin(heard.append)
    asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_SECONDS)
    while not all(future.done() for future in asked.values()):
        admin.poll(_POLL_SECONDS)
        refusal = next(filter(_is_refusal, heard), None)
        if refusal is not None:  # the client would retry until the request times out
            raise settings.failed(f"describing topic '{topics[0]}'", refusal)
    admin.poll(0)
    reasons = [settings.text(error) for error in heard]
    found = {topic: _answer(settings, topic, future, reasons) for topic, future in asked.items()}
    return {topic: it for topic, it in found.items() if it is not None}


def _is_refusal(error: KafkaError) -> bool:
    """Whether a broker, or its certificate, ended the attempt to connect."""
    return error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or _UNTRUSTED in error.str()


def _answer(settings: ClientSettings, topic: str, future: Future[Any], heard: Sequence[str] = ()) -> Topic | None:
    try:
        answer = future.result()
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
            return None
        raise settings.failed(f"describing topic '{topic}'", error, *heard[-1:]) from None
    return Topic(str(answer.topic_id), tuple(sorted(it.id for it in answer.partitions)))


def _hint(settings: ClientSettings, topic: str) -> str:
    try:
        names = [it for it in settings.admin().list_topics(timeout=REQUEST_SECONDS).topics if not it.startswith("__")]
    except KafkaException:
        return ""
    return did_you_mean(topic, names, else_="create it first")


class TopicWatch:
    """Poll the ids of topics from time to time, without waiting for the answers."""

    def __init__(self, settings: ClientSettings, every: float) -> None:
        self._settings = settings
        self._every = every
        self._admin = settings.admin()
        self._topics: set[str] = set()
        self._due = time.monotonic() + every
        self._asked: dict[str, Future[Any]] = {}

    def watch(self, topic: str) -> None:
        """Include a topic."""
        self._topics.add(topic)

    def hurry(self) -> None:
        """Ask again on the next call of `news`."""
        self._due = min(self._due, time.monotonic() + 0.2)

    def news(self) -> dict[str, Topic | None]:
        """Return the answers received since the last call: None for a topic that does not exist."""
        if not self._asked:
            if time.monotonic() < self._due or not self._topics:
                return {}
            self._asked = self._admin.describe_topics(
                TopicCollection(sorted(self._topics)), request_timeout=REQUEST_SECONDS
            )
        if not all(future.done() for future in self._asked.values()):
            return {}
        answers, self._asked = self._asked, {}
        self._due = time.monotonic() + self._every
        self._admin.poll(0)
        news: dict[str, Topic | None] = {}
        for topic, future in answers.items():
            try:
                news[topic] = _answer(self._settings, topic, future)
            except KafkaFailed:  # a server that is down says nothing about a topic
                continue
        return news
