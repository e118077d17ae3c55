"""Write your own operator: here `flatten`, which emits the items of a list one by one.

A logic is any object with `on_data`. It may send any number of messages for each one that it receives, and
chooses their keys and timestamps: here, those of the list.
"""

from malflow import DataMessage, Output, SingleThreadRuntime, StatelessLogic, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


class CustomFlatten(StatelessLogic):
    """Emit the items of each list."""

    def on_data(self, msg: DataMessage, output: Output) -> None:
        """Emit the items of one list."""
        for item in msg.value:
            output.send(DataMessage(msg.key, item, msg.timestamp))


def build_dataflow(provider: StreamProvider) -> None:
    lists = [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    (
        provider.new_stream()
        .source("iter-source", SingleIteratorSource(lists))
        .stateless_op("custom-flatten", CustomFlatten())
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
