"""Distribute a stream over two workers by key: all records of a key go to one worker, in order.

Only the key's hash determines the worker; two keys may well share one.
"""

from malflow import SingleThreadRuntime, StreamProvider, rendezvous_select
from malflow.sources import SingleIteratorSource


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .key_distribute("key-even", lambda msg: msg.value % 2 == 0, rendezvous_select)
        .inspect("print", lambda msg, ctx: print(f"{msg} @ worker {ctx.worker_id}"))
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow, parallelism=2).execute()


if __name__ == "__main__":
    main()
