"""Keys that have so many records that their worker holds the others up."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from malflow.engine.plan import Program
from malflow.engine.ticks import Ticks
from malflow.nodes import ExchangeNode, Node, StatefulNode
from malflow.operators.key_sampling import ENOUGH, HotSample
from malflow.runtime.host import Host
from malflow.states.kinds import StateKind

__all__ = ["HotKey", "HotKeyWatch", "hot_keys"]

_log = logging.getLogger("malflow.runtime")

_LOOKS = 16
"""The number of ticks between two looks."""

_TWICE = 2
"""A worker has too much with twice its share, and a key is to blame from half of its worker's records."""

_MOST = 0.75
"""A worker has too much with twice its share of the records, or with three quarters of all."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """The busiest worker and the busiest key of an exchange.

    Attributes:
        worker: the worker to which most records and accumulators are sent.
        worker_share: its share, from 0 to 1.
        key: the key that most of them have, as a text.
        key_share: its share.
    """

    worker: int
    worker_share: float
    key: str
    key_share: float


def hot_keys(program: Program, samples: Mapping[str, Mapping[int, HotSample]]) -> dict[str, HotKey]:
    """Return the busiest worker and key of each exchange with enough records, by its reader or its own name.

    Args:
        program: the program.
        samples: the last sample of each sending worker, by the name of the exchange.
    """
    found = {name: _merged([*by_sender.values()]) for name, by_sender in dict(samples).items()}
    return {_shown_name(program, name): it for name, it in found.items() if it is not None}


def _merged(samples: list[HotSample]) -> HotKey | None:
    total = sum(it.records for it in samples)
    if total < ENOUGH:
        return None
    workers: Counter[int] = Counter()
    keys: Counter[str] = Counter()
    for it in samples:
        workers[it.worker] += it.of_worker
        keys[it.key] += it.of_key
    ((worker, of_worker),), ((key, of_key),) = workers.most_common(1), keys.most_common(1)
    return HotKey(worker, of_worker / total, key, of_key / total)


def _readers(program: Program, name: str) -> list[Node]:
    """Return the nodes that read an exchange."""
    vertices = program.vertices
    exchanges = {at for at, it in enumerate(vertices) if isinstance(it.node, ExchangeNode) and it.node.name == name}
    return [it.node for it in vertices if any(port.vertex in exchanges for port in it.inputs)]


def _shown_name(program: Program, name: str) -> str:
    readers = _readers(program, name)
    return readers[0].name if len(readers) == 1 else name


class HotKeyWatch:
    """Warns once for each operator of which one worker gets too many records because of one key.

    Args:
        program: the program.
        host: knows the number of workers.
    """

    def __init__(self, program: Program, host: Host) -> None:
        self._program = program
        self._host = host
        self._told: set[str] = set()

    def note(self, ticks: Ticks) -> None:
        """Look at the samples, every 16 ticks."""
        if ticks.number % _LOOKS or not ticks.hot:
            return
        many = min(_TWICE / self._host.parallelism, _MOST)
        for name, by_sender in ticks.hot.items():
            it = _merged([*by_sender.values()])
            if it is None or name in self._told or it.worker_share < many or _TWICE * it.key_share < it.worker_share:
                continue
            self._told.add(name)
            _log.warning(
                "worker %d of '%s' takes %.0f %% of the records: key %s %.0f %%; %s",
                it.worker,
                _shown_name(self._program, name),
                100 * it.worker_share,
                it.key,
                100 * it.key_share,
                _cure(_readers(self._program, name)),
            )


def _cure(readers: list[Node]) -> str:
    """Return the cure of a hot key, by the operator that gets its records."""
    (reader, *others) = readers
    if not others and isinstance(reader, StatefulNode) and reader.kind is StateKind.WINDOW and reader.local is None:
        return (
            f"not all of {reader.definition or 'its aggregators'} can be added up before the exchange; agg.count, "
            "agg.min, agg.max, agg.fsum and agg.sum(..., of=int) can; or key by more than that, and add up the results "
            "by agg.merged"
        )
    return "key by more than that, such as by the key and the record's number modulo 8, and add up the results"
