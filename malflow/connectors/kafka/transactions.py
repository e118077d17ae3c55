"""Transactions with a marker: records and the number of their transaction become visible together, once."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from malflow.connectors.kafka.client import LOG, ClientSettings
from malflow.connectors.kafka.errors import KafkaFailed
from malflow.connectors.kafka.produce import Failures, Record, hint_of, produce_all
from malflow.connectors.kafka.topics import describe
from malflow.errors import FencedError
from malflow.sinks.transactional import SinkOwner

__all__ = ["MarkedWriter", "Marker", "MarkerLost"]

_REQUEST_SECONDS = 30.0
_PAUSE = 0.2
_ATTEMPTS = 3
"""How many attempts the time for a commit allows at least."""

_MARKER = re.compile(r"malflow epoch (\d+) claim (\d+) since (\d+)")

_FINAL = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
"""Errors that another attempt meets again."""


class Marker(NamedTuple):
    """The last transaction that is committed, and the claims of the runs that wrote this and the first marker."""

    transaction: int = 0
    claim: int = 0
    since: int = 0

    @property
    def text(self) -> str:
        """The metadata of an offset that stores it."""
        return f"malflow epoch {self.transaction} claim {self.claim} since {self.since}"


class MarkerLost(Exception):
    """The servers have an older marker than they had confirmed, or none."""


class MarkedWriter:
    """Writes by Kafka's transactions, which also commit an offset whose metadata is the marker.

    The transactional id and the group are functions of the owner's name, so that a run finds what its predecessor has
    committed, and ends what it has not. A broker may come back with an older disk while the job runs: each transaction
    reads the marker before its commit, when its own beginning is at the broker.

    Args:
        settings: those of a producer.
        owner: who writes.
        topic: the topic whose partition 0 the offset is of.
        seconds: how long one commit may take.
    """

    def __init__(self, settings: ClientSettings, owner: SinkOwner, topic: str, seconds: float) -> None:
        self._settings = settings
        self._owner = owner
        self._name = f"malflow/{owner.name}"
        self._topic = topic
        self._seconds = seconds
        self._failures = Failures(settings)
        self._producer: Producer | None = None
        self._consumer: Consumer = settings.reader_of_offsets(self._name, "read_committed")
        self._onlooker: Consumer = settings.reader_of_offsets(self._name, "read_uncommitted")
        self._confirmed = 0
        self.marker = Marker()

    def take_over(self) -> int:
        """End the transactions of earlier runs, write the claim, and return the last transaction that was committed.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if that is not possible.
        """
        self._write((), None)
        return self.marker.transaction

    def accept_loss(self) -> None:
        """Continue from the marker that there is."""
        self._confirmed = self.marker.transaction

    def write(self, transaction: int, records: Sequence[Record]) -> None:
        """Make a transaction visible, unless it is.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if that is not possible; whether it has happened is found out by the next call.
            MarkerLost: if the servers lack a transaction that they had confirmed.
        """
        if transaction > self.marker.transaction:
            self._write(records, transaction)

    def close(self) -> None:
        """Release the clients; an open transaction is left to be aborted."""
        self._drop_producer()
        self._consumer.close()
        self._onlooker.close()

    def _write(self, records: Sequence[Record], transaction: int | None) -> None:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                self._drop_troubled()
                if self._producer is None:
                    self._renew(deadline)
                    self._check_marker()
                wanted = self.marker._replace(
                    claim=self._owner.claim,
                    transaction=self.marker.transaction if transaction is None else transaction,
                )
                if self.marker == wanted or (transaction is not None and self.marker.transaction >= transaction):
                    return
                self._attempt(records, wanted, deadline)
            except KafkaException as error:
                self._drop_producer()  # it is dead, or the outcome is in doubt: the next one finds out
                self._consider(error, deadline, records)
            except MarkerLost:
                self._drop_producer()
                raise
            else:
                self.marker = wanted
                self._confirmed = wanted.transaction
                self._failures.forget()
                return

    def _renew(self, deadline: float) -> None:
        """Begin with a new producer: what the last one left open is ended, and the marker says how."""
        self._read_marker(self._onlooker, deadline)  # one that is fenced must not disturb its successor
        self._producer = producer = self._settings.producer(
            **{"transactional.id": self._name, "on_delivery": self._failures.note, "error_cb": self._failures.hear}
        )
        producer.init_transactions(_left(deadline))
        self._read_marker(self._consumer, deadline)

    def _check_marker(self) -> None:
        if self.marker.transaction < self._confirmed:
            raise MarkerLost

    def _read_marker(self, consumer: Consumer, deadline: float) -> None:
        found = consumer.committed([TopicPartition(self._topic, 0)], _left(deadline))[0]
        if found.error is not None:
            raise KafkaException(found.error)
        said = _MARKER.fullmatch(found.metadata or "")
        if said is None and found.offset >= 0:
            raise KafkaFailed(f"group '{self._name}' has an offset of topic '{self._topic}' that malflow did not write")
        self.marker = Marker(*map(int, said.groups())) if said else Marker(since=self._owner.claim)
        if self.marker.claim > self._owner.claim:
            raise FencedError(
                f"sink '{self._owner.sink}' of job '{self._owner.job}' belongs to a run with claim "
                f"{self.marker.claim}; this one has claim {self._owner.claim}"
            )

    def _drop_troubled(self) -> None:
        """Drop a producer that has lost a connection since its last transaction: it may wait for ever."""
        if self._producer is not None:
            self._producer.poll(0)
            if self._failures.heard:
                self._drop_producer()

    def _attempt(self, records: Sequence[Record], wanted: Marker, deadline: float) -> None:
        """Write a transaction. The client's calls do not always keep to their timeouts, so a thread makes them.

        One that stays in a call is left behind: its transaction is ended by the next producer.
        """
        done: Future[None] = Future()

        def transact() -> None:
            try:
                self._transact(records, wanted, deadline)
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                done.set_exception(error)
            else:
                done.set_result(None)

        Thread(target=transact, name="malflow-kafka", daemon=True).start()
        try:
            done.result(self._seconds / _ATTEMPTS)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _transact(self, records: Sequence[Record], wanted: Marker, deadline: float) -> None:
        producer = self._producer
        assert producer is not None  # noqa: S101 - narrows the type
        producer.begin_transaction()
        produce_all(producer, records, deadline)
        offset = TopicPartition(self._topic, 0, wanted.transaction, wanted.text)
        producer.send_offsets_to_transaction([offset], self._consumer.consumer_group_metadata(), _left(deadline))
        self._read_marker(self._onlooker, deadline)
        self._check_marker()
        producer.commit_transaction(_left(deadline))

    def _consider(self, failure: KafkaException, deadline: float, records: Sequence[Record]) -> None:
        """Return if another attempt may succeed.

        Raises:
            KafkaFailed: if not.
        """
        error: Any = failure.args[0]
        rejected = self._failures.take_final(_FINAL)
        if rejected is not None:
            raise rejected
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            raise KafkaFailed(
                "the setting 'transaction.timeout.ms' is above the broker's 'transaction.max.timeout.ms'; lower it"
            )
        doing = f"committing to topic '{self._topic}' as '{self._name}'"
        if error.code() in _FINAL:
            raise self._settings.failed(doing, failure, *filter(None, [hint_of(error.code())[2:]]))
        if time.monotonic() + _PAUSE > deadline:
            self._check_topics(records)
            raise self._settings.failed(f"{doing} within {self._seconds:g} s{self._failures.heard}", failure)
        LOG.warning("%s: trying again after %s", doing, self._settings.text(failure))
        time.sleep(_PAUSE)

    def _check_topics(self, records: Sequence[Record]) -> None:
        """Raise the error that says so if the records have a topic that does not exist, and the servers say it."""
        topics = sorted({record[0] for record in records})
        try:
            missing = sorted(set(topics).difference(describe(self._settings, topics))) if topics else []
        except KafkaFailed:
            return
        if missing:
            raise KafkaFailed(f"topic '{missing[0]}' does not exist on {self._settings.servers}; create it first")

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()


def _left(deadline: float) -> float:
    return min(_REQUEST_SECONDS, max(0.1, deadline - time.monotonic()))
