"""Write your own stateful operator: here one that emits values in batches of five.

`on_data` returns the key's new state; None forgets the key. `on_epoch` sees the states of all keys: at the
end of the stream, at the epoch `MAX`, it emits the batches that are not full.
"""

from collections.abc import MutableMapping

from malflow import MAX, DataMessage, NoKey, Output, SingleThreadRuntime, StatefulLogic, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


class CustomBatching(StatefulLogic):
    """Collect values; emit them when there are `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size

    def on_data(self, msg: DataMessage, batch: list[int], output: Output) -> list[int] | None:
        """Add a value to its key's batch."""
        batch.append(msg.value)
        if len(batch) < self._size:
            return batch
        output.send(DataMessage(msg.key, batch, msg.timestamp))
        return None

    def on_epoch(self, epoch: object, batches: MutableMapping[object, list[int]], output: Output) -> None:
        """Emit the last batches, at the end."""
        if epoch is MAX:
            for key in list(batches):
                output.send(DataMessage(key, batches.pop(key), MAX))


def build_dataflow(provider: StreamProvider) -> None:
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(range(101)))
        .key_local("one-key", lambda _msg: NoKey)  # only keyed streams have state
        .stateful_op("batches", CustomBatching(5), default=list)
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
