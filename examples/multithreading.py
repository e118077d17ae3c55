"""Four workers share the work: every value is its own key, and its hash determines the worker.

In Malstrom's example of this name, each worker is a thread. Threads of Python share one core, so malflow has two other
ways. `SingleThreadRuntime` runs the four workers in one thread, step by step and always in the same order, so the
distribution over workers can be observed and tested anywhere. `MultiProcessRuntime` runs each worker in a process of
its own, on all cores of the machine (`pip install 'malflow[processes]'`).
"""

from malflow import MultiProcessRuntime, SingleThreadRuntime, StreamProvider, rendezvous_select
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
    print("in one thread:")
    SingleThreadRuntime(build_dataflow, parallelism=4).execute()
    print("in four processes, whose lines begin with their worker:")
    MultiProcessRuntime(build_dataflow, processes=4).execute()


if __name__ == "__main__":
    main()
