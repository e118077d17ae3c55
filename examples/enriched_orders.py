"""Orders from Kafka, each with its customer's row in Postgres, into Kafka, exactly once.

Start the servers, for example

    docker run -d --name kafka -p 9092:9092 apache/kafka:4.1.1
    docker run -d --name postgres -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres:17 -c wal_level=logical

and run (``pip install 'malflow[kafka,postgres]'``)

    python examples/enriched_orders.py --servers localhost:9092 --postgres "host=localhost user=postgres"

The first run creates two topics, a table and some records. Kill it whenever you like, and run it again: each order is
written once, with its customer as of that moment. An order waits if its customer does not exist yet. Readers of the
topic see it once if they read only committed records, as librdkafka does by default:

    kcat -b localhost:9092 -t shop_enriched -C
"""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.postgres import Change, PostgresChanges
from malflow.snapshot import FsspecBackend

import psycopg
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it is its public place

Order = dict[str, Any]
Waiting = tuple[Any, tuple[Order, ...]]
"""A customer's row, or None if it does not exist, and the orders that wait for it."""

CUSTOMERS = [(1, "Ada", "London"), (2, "Grace", "New York")]
ORDERS = [{"order": 100 + n, "customer": 1 + n % 3, "amount": 5 * n} for n in range(30)]


def customer_of(record: Order | Change) -> int:
    """Return the customer of an order, or of a change of the table."""
    if isinstance(record, Change):
        number: int = (record.new or record.old or {})["id"]
        return number
    return int(record["customer"])


def enrich(_customer: int, record: Order | Change, state: Waiting) -> tuple[list[Order], Waiting]:
    """Remember the customer's row, and emit the orders that have one."""
    row, waiting = state
    if isinstance(record, Change):
        row = record.new
    else:
        waiting = (*waiting, record)
    if row is None:
        return [], (row, waiting)
    return [{**order, "name": row["name"], "town": row["town"]} for order in waiting], (row, ())


def run(servers: str, postgres: str, name: str, state: str, *, once: bool) -> None:
    """Run the dataflow until it is stopped or, with `once`, to the current end of the input."""

    def build_dataflow(provider: StreamProvider) -> None:
        orders = KafkaSource(
            f"{name}_orders",
            servers=servers,
            decode="json",
            timestamps="datetime",
            stop="latest" if once else None,
        )
        changes = PostgresChanges(postgres, [f"{name}_customers"], slot=name, until="now" if once else None)
        sink = KafkaSink(f"{name}_enriched", servers=servers, encode="json", delivery="exactly-once")

        table: Any = provider.new_stream().source("customers", changes).key_distribute("id", by_customer)
        placed: Any = provider.new_stream().source("orders", orders).key_distribute("customer", by_customer)
        enriched = table.union(placed).stateful_map("enrich", enrich, default=lambda: (None, ()))
        enriched.flat_map("each", list).sink("enriched", sink)

    SingleThreadRuntime(build_dataflow, FsspecBackend(state, job=name), timedelta(seconds=1)).execute()


def by_customer(message: Any) -> int:
    return customer_of(message.value)


def prepare(servers: str, postgres: str, name: str) -> None:
    """Create the topics and the table with some records in them, unless they exist."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        table = psycopg.sql.Identifier(f"{name}_customers")
        make = "create table if not exists {} (id int primary key, name text, town text)"
        connection.execute(psycopg.sql.SQL(make).format(table))
        add = psycopg.sql.SQL("insert into {} values (%s, %s, %s) on conflict do nothing").format(table)
        for customer in CUSTOMERS:
            connection.execute(add, customer)
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(f"{name}_orders", 2, 1), NewTopic(f"{name}_enriched", 1, 1)])
    try:
        for topic in made.values():
            topic.result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return
    producer = Producer({"bootstrap.servers": servers})
    for order in ORDERS:
        producer.produce(f"{name}_orders", json.dumps(order))
    producer.flush(60)


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders from Kafka, enriched from Postgres, into Kafka.")
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--postgres", default="host=localhost user=postgres")
    parser.add_argument("--name", default="shop", help="the name of the job, and the prefix of all names")
    parser.add_argument("--state", default="enriched_orders_state", help="the folder of the snapshots")
    parser.add_argument("--once", action="store_true", help="end at the current end of the input")
    options = parser.parse_args()
    prepare(options.servers, options.postgres, options.name)
    run(options.servers, options.postgres, options.name, options.state, once=options.once)


if __name__ == "__main__":
    main()
