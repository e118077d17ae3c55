"""Transactions with a marker: records and their transaction's number become visible together, once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from malflow.connectors.kafka.client import LOG, ClientSettings, KafkaFailed
from malflow.connectors.kafka.produce import Failures, Record, hint_of, is_about_records, produce_all
from malflow.connectors.kafka.topics import describe
from malflow.connectors.tables.refused_rows import found_by_halves
from malflow.errors import FencedError
from malflow.sinks.transactional import SinkOwner

__all__ = ["MarkedWriter", "Marker", "MarkerLost"]

_REQUEST_SECONDS = 30.0
"""The longest wait in seconds for one request; the time for the whole commit limits it too. Half of it gives up during
a slow failover, double leaves less time for another attempt."""

_PAUSE = 0.2
"""The seconds before a commit is retried. Half of it asks a broker in failover twice as often, double delays the
snapshot."""

_ATTEMPTS = 3
"""The minimum number of attempts within the time for a commit."""

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
"""Errors that a retry does not resolve."""


class Marker(NamedTuple):
    """The last committed transaction, and the claims of the runs that wrote this marker and the first one."""

    transaction: int = 0
    claim: int = 0
    since: int = 0

    @property
    def text(self) -> str:
        """The marker as the metadata of an offset."""
        return f"malflow epoch {self.transaction} claim {self.claim} since {self.since}"


class MarkerLost(Exception):
    """The servers have lost the marker that they had confirmed, or have an older one."""


class MarkedWriter:
    """Write in Kafka transactions. They also commit an offset with the marker as its metadata.

    The transactional id and the group follow from the owner's name. A run thus finds what its predecessor has
    committed, and aborts what it has left open. A broker may come back with an older disk while the job runs: each
    transaction therefore reads the marker before its commit, once the broker has registered the transaction.

    Args:
        settings: the settings of a producer.
        owner: the sink and the run that write.
        topic: the topic for the offset, on its partition 0.
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
        """Abort transactions of earlier runs, write the claim, and return the last committed transaction.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if Kafka does not allow it, or does not answer in time.
        """
        self._write((), None)
        return self.marker.transaction

    def accept_loss(self) -> None:
        """Continue from the existing marker."""
        self._confirmed = self.marker.transaction

    def write(self, transaction: int, records: Sequence[Record]) -> None:
        """Make a transaction visible, unless it is visible already.

        Raises:
            FencedError: if a run with a higher claim writes.
            KafkaFailed: if it fails, or the outcome is unknown; the next call finds out.
            MarkerLost: if the servers lack a transaction that they had confirmed.
        """
        if transaction > self.marker.transaction:
            self._write(records, transaction)

    def refused(self, records: Sequence[Record]) -> dict[int, Exception]:
        """Return the errors of the records that the brokers refuse, by position; try them in transactions that abort.

        Raises:
            KafkaFailed: if the brokers can't be asked.
        """
        return dict(found_by_halves(records, self._try))

    def _try(self, records: Sequence[Record]) -> None:
        """Write records, and abort their transaction.

        Raises:
            KafkaFailed: if the brokers refuse them, or can't be asked.
        """
        deadline = time.monotonic() + self._seconds
        try:
            if self._producer is None:
                self._renew(deadline)
            self._attempted(lambda: self._transact_and_abort(records, deadline))
        except KafkaException as failure:
            self._drop_producer()
            rejected = self._failures.take()
            if rejected is not None and rejected.refuses_records:
                raise rejected from None
            failed = self._settings.failed(f"trying records of topic '{self._topic}'", failure)
            failed.refuses_records = is_about_records(failure.args[0])
            raise failed from None
        rejected = self._failures.take()
        if rejected is not None:
            self._drop_producer()  # later records would be out of its order
            raise rejected

    def _transact_and_abort(self, records: Sequence[Record], deadline: float) -> None:
        producer = self._producer
        assert producer is not None  # noqa: S101 - narrows the type
        producer.begin_transaction()
        produce_all(producer, records, deadline)
        producer.flush(_left(deadline))
        producer.abort_transaction(_left(deadline))

    def close(self) -> None:
        """Release the clients; the next producer aborts an open transaction."""
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
                self._drop_producer()  # it is dead, or the outcome is unknown: the next one finds out
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
        """Begin with a new producer. It settles the last one's open transaction; the marker shows the outcome."""
        self._read_marker(self._onlooker, deadline)  # a fenced run must not disturb its successor
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
        """Drop a producer that has lost a connection since its last transaction: it may wait forever."""
        if self._producer is not None:
            self._producer.poll(0)
            if self._failures.heard:
                self._drop_producer()

    def _attempt(self, records: Sequence[Record], wanted: Marker, deadline: float) -> None:
        """Write a transaction."""
        self._attempted(lambda: self._transact(records, wanted, deadline))

    def _attempted(self, act: Callable[[], None]) -> None:
        """Act in a thread, since the client's calls do not always keep to their timeouts.

        A thread that hangs in a call is abandoned: the next producer ends its transaction.
        """
        done: Future[None] = Future()

        def transact() -> None:
            try:
                act()
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
        """Raise, unless a retry may succeed.

        Raises:
            KafkaFailed: if it can't.
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
            failed = self._settings.failed(doing, failure, *filter(None, [hint_of(error.code())[2:]]))
            failed.refuses_records = is_about_records(error)
            raise failed
        if time.monotonic() + _PAUSE > deadline:
            self._check_topics(records)
            raise self._settings.failed(f"{doing} within {self._seconds:g} s{self._failures.heard}", failure)
        LOG.warning("%s: retrying after %s", doing, self._settings.text(failure))
        time.sleep(_PAUSE)

    def _check_topics(self, records: Sequence[Record]) -> None:
        """Raise an error if the servers report that a topic of the records does not exist."""
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
