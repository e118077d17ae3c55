"""A test for exactly-once: two dataflows compute the same totals, until one of them is stopped and restarted.

Needs `pip install 'malflow[testing]'`.
"""

from collections import defaultdict

from malflow import KeyedStream, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource
from malflow.testing import assert_exactly_once


def numbers(provider: StreamProvider) -> KeyedStream[int, int, int]:
    source = SingleIteratorSource(range(10))
    return provider.new_stream().source("numbers", source).key_distribute("parity", lambda msg: msg.value % 2)


def build_right(provider: StreamProvider) -> None:
    def add(_key: int, value: int, total: int) -> tuple[int, int]:
        return total + value, total + value

    numbers(provider).stateful_map("total", add, default=int).sink("totals", StdOutSink())


def build_wrong(provider: StreamProvider) -> None:
    totals: dict[int, int] = defaultdict(int)  # not part of the state: it is empty after a restart

    def add(value: int) -> int:
        totals[value % 2] += value
        return totals[value % 2]

    numbers(provider).map("total", add).sink("totals", StdOutSink())


def main() -> None:
    for build_dataflow in (build_right, build_wrong):
        try:
            assert_exactly_once(build_dataflow, range(1, 11))
        except AssertionError as found:
            print(f"{build_dataflow.__name__}: {found}")
        else:
            print(f"{build_dataflow.__name__}: exactly once")


if __name__ == "__main__":
    main()
