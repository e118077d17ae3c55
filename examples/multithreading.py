"""Four workers share the work: every value is its own key, and goes to the worker that its hash names.

The name is that of Malstrom's example, where each worker is a thread. malflow hosts the four workers in one
thread, step by step and always in the same order: how a dataflow spreads over workers can be seen and
tested anywhere.
"""

from malflow import SingleThreadRuntime, StreamProvider, rendezvous_select
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .key_distribute("key-by-value", lambda msg: msg.value, rendezvous_select)
        .map("double", lambda value: value * 2)
        .inspect("print", lambda msg, ctx: print(f"{msg} @ worker {ctx.worker_id}"))
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow, parallelism=4).execute()


if __name__ == "__main__":
    main()
