"""Remember something between records: a running sum.

State belongs to a key, so the stream is keyed first; here all records share one key. The function of
`stateful_map` receives the key's state with each value, and returns the output and the new state.
"""

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sources import SingleIteratorSource


def add(_key: int, value: int, total: int) -> tuple[int, int]:
    total += value
    return total, total


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .key_distribute("one-key", lambda _msg: 0)
        .stateful_map("sum", add, default=int)
        .inspect("print", lambda msg, _ctx: print(msg.value))
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
