"""One stream becomes two: `cloned` sends every record to each of its outputs.

Nothing is copied: both branches get the same objects, so if one branch changes a value in place, the other
sees the change. Create new values instead.
"""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    numbers, more_numbers = (
        provider.new_stream().source("iter-source", SingleIteratorSource(range(101))).cloned("clone-values", 2)
    )
    numbers.sink("numbers-sink", StdOutSink())
    more_numbers.sink("more-numbers-sink", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
