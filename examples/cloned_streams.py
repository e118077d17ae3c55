"""One stream becomes two: `cloned` gives every record to each of its outputs.

Nothing is copied: both branches get the same objects, so a value that one branch changes in place is
changed for the other, too. Make new values instead.
"""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StatelessSink, StdOutSink
from malflow.sources import SingleIteratorSource, StatelessSource


def build_dataflow(provider: StreamProvider) -> None:
    numbers, more_numbers = (
        provider.new_stream()
        .source("iter-source", StatelessSource(SingleIteratorSource(range(101))))
        .cloned("clone-values", 2)
    )
    numbers.sink("numbers-sink", StatelessSink(StdOutSink()))
    more_numbers.sink("more-numbers-sink", StatelessSink(StdOutSink()))


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
