"""The whole path of a record: from a source through a `map` to a sink, which prints key, value and timestamp.

The records have no key yet; their timestamps are their positions in the list.
"""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("words", SingleIteratorSource(["Look", "ma'", "I'm", "streaming"]))
        .map("upper", str.upper)
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
