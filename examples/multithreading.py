"""Four workers share the work: every value is its own key, and its hash determines the worker.

In Malstrom's example of this name, each worker is a thread. malflow hosts the four workers in one thread,
step by step and always in the same order, so the distribution over workers can be observed and tested
anywhere.
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
