"""Two streams become one: `union` emits the records of all its inputs, in no particular order."""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("iter-source", SingleIteratorSource(range(101)))
    more_numbers = provider.new_stream().source("other-iter-source", SingleIteratorSource(range(101)))
    numbers.union(more_numbers).sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
