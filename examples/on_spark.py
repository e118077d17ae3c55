"""The month of flights on Spark, on all cores of this machine, compared with the same dataflow on one thread.

Needs Java 17 or later and `pip install 'malflow[spark]'`. On a cluster, pass `SparkRuntime` your session, and folders
for snapshots and scratch files that all machines can reach.
"""

import sys
from typing import Any

from malflow import SingleThreadRuntime, SparkRuntime
from malflow.sinks import VecSink

from flight_delays import build

NAMES = ("hours", "carriers", "late", "cancelled")


def last_totals(sinks: list[VecSink]) -> list[dict[Any, Any]]:
    hours, *others = sinks
    return [
        {(msg.key, msg.value.start): msg.value for msg in hours},
        *({it.key: it.value for it in sink} for sink in others),
    ]


def main() -> None:
    on_spark = [VecSink() for _ in NAMES]
    SparkRuntime(build(*on_spark), parallelism=4, name="flights").execute()
    here = [VecSink() for _ in NAMES]
    SingleThreadRuntime(build(*here)).execute()

    print("             on Spark          on one thread")
    for name, spark_totals, totals in zip(NAMES, last_totals(on_spark), last_totals(here), strict=True):
        same = "equal" if spark_totals == totals else "different"
        print(f"{name:10}{len(spark_totals):6,} totals  {len(totals):14,} totals  {same}")
    flights = sum(delays.flights for delays in last_totals(on_spark)[1].values())
    print(f"{flights:,} flights left")
    if last_totals(on_spark) != last_totals(here):
        sys.exit("the totals differ")


if __name__ == "__main__":
    main()
