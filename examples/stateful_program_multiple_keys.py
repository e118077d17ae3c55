"""A running sum for each key: one for even numbers, one for odd numbers."""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def add(_key: bool, value: int, total: int) -> tuple[int, int]:
    total += value
    return total, total


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .key_distribute("key-by-parity", lambda msg: msg.value % 2 == 1)
        .stateful_map("sum", add, default=int)
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
