"""Measure connectors beside what one would write by hand with the same client, and beside other libraries.

pip install 'malflow[kafka,parquet,postgres]'
python benchmarks/connectors.py [--only kafka,parquet,postgres] [--rounds N] [--records N]
    [--kafka localhost:9092] [--postgres "host=localhost dbname=test"]
    [--bytewax venv/bin/python] [--quix other-venv/bin/python]

Kafka and Postgres need a server; that of Postgres has wal_level = logical. A topic is made, and tables malflow_bench*
and a slot of that name are made and dropped. bytewax runs where it is installed; Quix Streams needs an interpreter of
its own, since it holds the client of Kafka back.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

PARTS = {"kafka": (300_000, 3), "parquet": (1_000_000, 5), "postgres": (200_000, 5)}
"""How many records each part has, and how many rounds, by default."""


def main() -> None:
    options = _options()
    parts = options.only.split(",")
    unknown = sorted(set(parts) - PARTS.keys())
    if unknown:
        raise SystemExit(f"--only takes {', '.join(PARTS)}; got {', '.join(unknown)}")
    for part in parts:
        records, rounds = PARTS[part]
        print(f"\n## {part}\n", flush=True)
        _measure(part, options, options.records or records, options.rounds or rounds)


def _measure(part: str, options: argparse.Namespace, records: int, rounds: int) -> None:
    if part == "kafka":
        from connector_parts import kafka_sums  # noqa: PLC0415 - each part has an extra of its own

        pythons = {"bytewax": options.bytewax, "quix": options.quix}
        kafka_sums.measure(options.kafka, records, rounds, {name: it for name, it in pythons.items() if it})
    elif part == "parquet":
        from connector_parts import parquet_sums  # noqa: PLC0415

        parquet_sums.measure(records, rounds)
    else:
        from connector_parts import postgres_tables  # noqa: PLC0415

        postgres_tables.measure(options.postgres, records, rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rounds", type=int, help="how often each peer runs")
    parser.add_argument("--records", type=int, help="how many records there are")
    parser.add_argument("--kafka", default="localhost:9092", help="the broker's address")
    parser.add_argument("--postgres", default="host=localhost dbname=test", help="the server's DSN")
    here = sys.executable if find_spec("bytewax") else None
    parser.add_argument("--bytewax", default=here, help="a Python that has bytewax")
    parser.add_argument("--quix", help="a Python that has quixstreams")
    return parser.parse_args()


if __name__ == "__main__":
    main()
