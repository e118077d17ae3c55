"""The first minute: a dataflow in seven lines. It makes four words upper-case, and prints them."""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    words = provider.new_stream().source("words", SingleIteratorSource(["to", "be", "or", "not"]))
    words.map("upper", str.upper).sink("stdout", StdOutSink())


SingleThreadRuntime(build_dataflow).execute()
