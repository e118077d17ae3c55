"""The output of a stage on one worker: sends batches to the workers of later stages, by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from malflow.engine.plan import Stage
from malflow.operators.hot_keys import HotSample
from malflow.operators.routing import Router
from malflow.records.batch import Batch

__all__ = ["OutputChannels", "Outputs", "Sender", "Target"]

Outputs = dict[int, list[list[Batch]]]
"""The batches for each worker, by the number of the output channel."""


class Target(Protocol):
    """A receiver of an operator's output: an edge of an operator of the same stage, a channel, or an observer."""

    def append(self, batch: Batch, /) -> None:
        """Receive a batch."""


class OutputChannels:
    """The output channels of a stage on one worker. Accumulators are held back until the end of a tick.

    Args:
        stage: the stage.
        worker: the index of the worker.
        workers: all workers.
        debug: whether to run the checks that are too slow for production.
    """

    def __init__(self, stage: Stage, worker: int, workers: Sequence[int], *, debug: bool) -> None:
        self._channels = stage.outputs
        self._worker = worker
        self._workers = workers
        self._routers = {
            channel.number: Router(
                channel.name, channel.partitioner, workers, channel, fields=None if debug else channel.fields
            )
            for channel in stage.outputs
            if channel.partitioner is not None
        }
        self._names = {channel.number: channel.name for channel in stage.outputs}
        self._locals = {
            channel.number: channel.local()
            for channel in stage.outputs
            if channel.local is not None and len(workers) > 1 and not debug
        }
        self._outputs = self._nothing()

    def send(self, channel: int, batch: Batch) -> None:
        """Send a batch through a channel."""
        local = self._locals.get(channel)
        if local is None:
            self._route(channel, batch)
            return
        for passing in local.take(batch):
            self._route(channel, passing)

    def drain(self) -> Outputs:
        """Return the output since the last call, with the accumulators that were held back."""
        for channel, local in self._locals.items():
            for batch in local.end_tick():
                self._route(channel, batch)
        return self.take()

    def take(self) -> Outputs:
        """Return the output since the last call."""
        outputs, self._outputs = self._outputs, self._nothing()
        return outputs

    def take_saved(self) -> Iterator[tuple[str, int]]:
        """Yield each operator whose channel pre-aggregates, and how many records that has saved since the last call."""
        return ((local.operator, local.take_saved()) for local in self._locals.values())

    def take_hot(self) -> dict[str, HotSample]:
        """Return the samples of the keys sent since the last call, by the names of the channels that have any."""
        if not self._routers:
            return {}
        hot = {self._names[number]: router.hot.take() for number, router in self._routers.items()}
        return {name: it for name, it in hot.items() if it is not None}

    def _route(self, channel: int, batch: Batch) -> None:
        router = self._routers.get(channel)
        if router is None:
            self._outputs[channel][self._worker].append(batch)
            return
        for worker, part in router.route(batch):
            self._outputs[channel][worker].append(part)

    def _nothing(self) -> Outputs:
        return {channel.number: [[] for _ in self._workers] for channel in self._channels}


@dataclass(frozen=True, slots=True)
class Sender:
    """A channel to a later stage, as the target of an operator.

    Attributes:
        channels: the output of the stage.
        number: the number of the channel.
    """

    channels: OutputChannels
    number: int

    def append(self, batch: Batch, /) -> None:
        """Send a batch to a later stage."""
        self.channels.send(self.number, batch)
