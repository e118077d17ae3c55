"""State that expires: a `ttl_map` keeps a map per key; each entry has a time to live.

The first dataflow is a running total whose entry would expire 15 after its last change, but there is no
epoch before the end. The second joins each word with the previous one, and older words expire as epochs
pass.
"""

from malflow import ExpireMap, SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Totals = ExpireMap[str, int, int]
Words = ExpireMap[int, str, int]


def add(_key: bool, value: int, timestamp: int, state: Totals) -> tuple[int, Totals]:
    total = (state.get("total") or 0) + value
    state.insert("total", total, timestamp + 15)
    return total, state


def join_with_last(_key: int, word: str, timestamp: int, state: Words) -> tuple[str, Words]:
    state.insert(timestamp, word, timestamp + 2)
    words = (state.get(timestamp - 1), word)
    return "|".join(word for word in words if word is not None), state


def build_running_total(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(100)))
    by_parity = numbers.key_local("parity", lambda msg: msg.value % 2 == 1)
    timed = by_parity.assign_timestamps("index", lambda msg: msg.timestamp)
    on_time, _late = timed.generate_epochs("no-epochs", lambda _msg, previous: previous)
    on_time.ttl_map("running-total", add).sink("stdout", StdOutSink())


def build_sliding_window(provider: StreamProvider) -> None:
    words = ["foo", "bar", "hello", "world", "baz"]
    stream = provider.new_stream().source("words", SingleIteratorSource(words))
    timed = stream.key_local("one-key", lambda _msg: 0).assign_timestamps("index", lambda msg: msg.timestamp)
    on_time, _late = timed.generate_epochs("each-index", lambda msg, _previous: msg.timestamp)
    on_time.ttl_map("sliding-window", join_with_last).sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_running_total).execute()
    SingleThreadRuntime(build_sliding_window).execute()


if __name__ == "__main__":
    main()
