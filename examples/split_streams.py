"""One stream becomes two, by a property of each record: the even numbers, and all numbers.

`split` passes a list of flags, all False, to the function; the record goes to each output whose flag is set.
A record without a flag is dropped.
"""

from malflow import DataMessage, SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def even_and_all(msg: DataMessage, outputs: list[bool]) -> None:
    outputs[0] = msg.value % 2 == 0
    outputs[1] = True


def build_dataflow(provider: StreamProvider) -> None:
    even_numbers, all_numbers = (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .split("split-even-odd", even_and_all, 2)
    )
    even_numbers.sink("even-sink", StdOutSink())
    all_numbers.sink("all-sink", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
