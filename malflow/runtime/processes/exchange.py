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

_Arrived = list[tuple[int, int, int, list[Batch]]]
"""A parcel that is unpacked."""

_Marks = tuple[int, int]
"""The tick and the first channel of the stage that a frame is of."""


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
        arrived: dict[int, _Arrived] = {}
        wait_for([*self._peers.values(), self._control], lambda: self._has_all(names, marks, arrived))
        if self._is_aborted:
            raise TickAborted
        for process in self._peers:
            if process not in arrived:
                raise PeerIsGone(process)
        self._complete(names, sent, arrived)

    @property
    def _is_aborted(self) -> bool:
        return bool(self._control.arrived) or not self._control.is_open

    def _has_all(self, names: Mapping[int, str], marks: _Marks, arrived: dict[int, _Arrived]) -> bool:
        """Unpack what has arrived, while others are waited for; return whether nothing is to be waited for."""
        if self._is_aborted:
            return True
        if any(link.is_sending for link in self._peers.values()):  # others wait for that
            return False
        for process, link in self._peers.items():
            if process not in arrived and link.arrived:
                arrived[process] = _unpacked(names, marks, process, link.arrived.popleft())
        return all(process in arrived or not link.is_open for process, link in self._peers.items())

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

    def _complete(self, names: Mapping[int, str], sent: Sent, arrived: Mapping[int, _Arrived]) -> None:
        count = len(self._owners)
        for channel in names:
            mine = dict(zip(self._mine, sent[channel], strict=True))
            sent[channel] = [mine.get(worker) or _no_batches(count) for worker in range(count)]
        for parcel in arrived.values():
            for channel, sender, target, batches in parcel:
                sent[channel][sender][target] = batches


def _unpacked(names: Mapping[int, str], marks: _Marks, process: int, frame: bytearray) -> _Arrived:
    """Return the records that another process has sent.

    Raises:
        RunFailed: if they are of another stage or tick.
        NotPicklable: if a record can't be unpickled.
    """
    found, parcel = pickle.loads(frame)  # noqa: S301 - of this run
    if found != marks:
        raise RunFailed(f"process {process} has sent records of {found} where those of {marks} were expected")
    return [
        (channel, sender, target, [chunk.batch(names[channel]) for chunk in chunks])
        for channel, sender, target, chunks in parcel
    ]


def _no_batches(count: int) -> list[list[Batch]]:
    return [[] for _ in range(count)]
