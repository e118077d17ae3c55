"""The running sum of a source with few parts that have drawn names: how well they are dealt decides its speed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from malflow import StreamProvider
from malflow.sinks import StatelessSink
from malflow.sources import StatefulSource, StatefulSourceImpl
from workloads.measured import Measured, scattered
from workloads.spark_flow import Forget, NumbersPartition, add, key_of, measure_dataflow

__all__ = ["measure_parts"]


class NamedNumbers(StatefulSourceImpl[str, int, int, int]):
    """The numbers below `keys`, over and over, from parts with these names; it never ends."""

    keyed = False

    def __init__(self, keys: int, names: Sequence[str]) -> None:
        self._keys = keys
        self._names = names

    def list_parts(self) -> Iterable[str]:
        """List the names."""
        return self._names

    def build_part(self, part: str, state: int | None) -> NumbersPartition:
        """Go on at a position; parts begin at different places."""
        first = self._names.index(part) * self._keys // len(self._names)
        return NumbersPartition(scattered(self._keys), first if state is None else state)


def measure_parts(keys: int, names: Sequence[str], workers: int, warm_up: float, seconds: float) -> Measured:
    """Run a running sum over parts with a snapshot each second, and measure a window of whole ticks.

    The runtime makes the session, so any version of it does.
    """

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(NamedNumbers(keys, names)))
        sums = numbers.key_distribute("key", key_of).stateful_map("sum", add, default=int)
        sums.sink("forget", StatelessSink(Forget()))

    return measure_dataflow(build_dataflow, None, keys, workers, warm_up, seconds)
