"""Transform records one by one: a source, a `map`, and an `inspect` that prints each record.

A stream needs no sink: without one, its records are dropped.
"""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .map("double", lambda value: value * 2)
        .inspect("print", lambda msg, _ctx: print(msg.value))
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
