"""The first minute: a dataflow in eight lines. It makes four words upper-case, and prints them."""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StatelessSink, StdOutSink
from malflow.sources import SingleIteratorSource, StatelessSource


def build_dataflow(provider: StreamProvider) -> None:
    source = StatelessSource(SingleIteratorSource(["to", "be", "or", "not"]))
    words = provider.new_stream().source("words", source)
    words.map("upper", str.upper).sink("stdout", StatelessSink(StdOutSink()))


SingleThreadRuntime(build_dataflow).execute()
