"""The exchange of records between worker processes, between two stages of a tick."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from malflow.engine.plan import Stage
from malflow.engine.workers import Sent
from malflow.errors import RunFailed
from malflow.records.batch import Batch
from malflow.runtime.processes.links import Link, wait_for
from malflow.runtime.transport.chunks import Chunk, ChunkBuffer

__all__ = ["PeerExchange", "PeerIsGone", "TickAborted"]

_Parcel = list[tuple[int, int, int, list[Chunk]]]
"""The records from one process to another: channel, sending worker, receiving worker, chunks."""


class PeerIsGone(Exception):
    """Another worker process has closed its end.

    Attributes:
        process: its number.
    """

    def __init__(self, process: int) -> None:
        super().__init__(process)
        self.process = process


class TickAborted(Exception):
    """The coordinator has sent another command, since the tick can't end."""


class PeerExchange:
    """Exchanges the output of a stage with all other processes.

    Every process sends one frame to each other one after each stage, even without records, and waits for theirs, and
    until its own have left: nothing sends them while the next stage runs, or the coordinator is waited for. A
    process that is ahead may have sent the frame of the next stage as well; frames stay in order.

    Args:
        peers: the links to the other processes, by number.
        control: the link to the coordinator; a command that arrives meanwhile ends the tick.
        owners: the process of each worker.
        process: the number of this process.
        debug: whether to check that values do not change before they are packed.
    """

    def __init__(
        self, peers: Mapping[int, Link], control: Link, owners: Sequence[int], process: int, *, debug: bool
    ) -> None:
        self._peers = peers
        self._control = control
        self._owners = owners
        self._process = process
        self._debug = debug
        self._mine = [worker for worker, owner in enumerate(owners) if owner == process]
        self._tick = 0

    def begin(self, tick: int) -> None:
        """Set the number of the tick, with which frames are marked."""
        self._tick = tick

    def __call__(self, stage: Stage, sent: Sent) -> None:
        """Complete the output of a stage with that of the workers in other processes.

        Raises:
            PeerIsGone: if another process has closed its end.
            TickAborted: if the coordinator has sent another command.
            NotPicklable: if a record can't be pickled.
        """
        if not self._peers:
            return
        names = {channel.number: channel.name for channel in stage.outputs}
        marks = (self._tick, min(names))
        for process, link in self._peers.items():
            link.send(pickle.dumps((marks, self._parcel(names, sent, process)), 5))
        links = [*self._peers.values(), self._control]
        wait_for(links, self._has_all)
        if self._control.arrived or not self._control.is_open:
            raise TickAborted
        arrived = {}
        for process, link in self._peers.items():
            if not link.arrived:
                raise PeerIsGone(process)
            found, parcel = pickle.loads(link.arrived.popleft())  # noqa: S301 - of this run
            if found != marks:
                raise RunFailed(f"process {process} has sent records of {found} where those of {marks} were expected")
            arrived[process] = parcel
        self._complete(names, sent, arrived)

    def _has_all(self) -> bool:
        if self._control.arrived or not self._control.is_open:
            return True
        return all((link.arrived and not link.is_sending) or not link.is_open for link in self._peers.values())

    def _parcel(self, names: Mapping[int, str], sent: Sent, process: int) -> _Parcel:
        """Pack the records for the workers of another process."""
        targets = [worker for worker, owner in enumerate(self._owners) if owner == process]
        parcel: _Parcel = []
        for channel, name in names.items():
            for sender, by_target in zip(self._mine, sent[channel], strict=True):
                for target in targets:
                    if by_target[target]:
                        buffer = ChunkBuffer(name, debug=self._debug)
                        buffer.add(by_target[target])
                        parcel.append((channel, sender, target, buffer.take()))
        return parcel

    def _complete(self, names: Mapping[int, str], sent: Sent, arrived: Mapping[int, _Parcel]) -> None:
        count = len(self._owners)
        for channel in names:
            mine = dict(zip(self._mine, sent[channel], strict=True))
            sent[channel] = [mine.get(worker) or _no_batches(count) for worker in range(count)]
        for parcel in arrived.values():
            for channel, sender, target, chunks in parcel:
                sent[channel][sender][target] = [chunk.batch(names[channel]) for chunk in chunks]


def _no_batches(count: int) -> list[list[Batch]]:
    return [[] for _ in range(count)]
