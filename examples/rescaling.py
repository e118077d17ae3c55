"""Change the number of workers while records flow: keys move to other workers, together with their sums."""

import threading
import time
from itertools import count

from malflow import DataMessage, OperatorContext, SingleThreadRuntime, StreamProvider
from malflow.sources import SingleIteratorSource

KEYS = 10


def main() -> None:
    places: dict[int, int] = {}

    def show_moves(msg: DataMessage, ctx: OperatorContext) -> None:
        number, total = msg.value
        before = places.get(msg.key, ctx.worker_id)
        places[msg.key] = ctx.worker_id
        if before != ctx.worker_id:
            workers = len(ctx.workers)
            print(
                f"{workers} workers: key {msg.key} moved from {before} to {ctx.worker_id}, at {number} with sum {total}"
            )

    def build_dataflow(provider: StreamProvider) -> None:
        (
            provider.new_stream()
            .source("numbers", SingleIteratorSource(count()))
            .key_distribute("last digit", lambda msg: msg.value % KEYS)
            .stateful_map("sum", lambda _key, value, total: ((value, total + value), total + value), default=int)
            .inspect("show moves", show_moves)
        )

    runtime = SingleThreadRuntime(build_dataflow, parallelism=2)

    def rescale() -> None:
        for workers in (2, 4, 1, 3):
            time.sleep(0.1)
            runtime.rescale(workers).result()
        time.sleep(0.1)
        runtime.stop()

    threading.Thread(target=rescale).start()
    runtime.execute()


if __name__ == "__main__":
    main()
