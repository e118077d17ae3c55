"""The check that workers have received the records that were sent to them.

When Spark loses a task's output, it repeats the task. A function that is not deterministic may then return another
result, so that some workers have received the old output and others the new one. Spark compares both outputs as well,
unless configured otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from malflow.errors import RunFailed
from malflow.runtime.spark.changelog import Changelog
from malflow.runtime.spark.protocol import StageReport

__all__ = ["RecordCounts", "check_counts", "summed"]

Count = tuple[int, int, int, int]
"""Channel, sender, target, and the number of records."""

_MODULO = (1 << 64) - 1
"""Sums of hashes are kept to 64 bits, so that they stay small numbers."""


class RecordCounts(NamedTuple):
    """The records that a stage of a worker received and sent, stored with its output.

    Attributes:
        taken: their number, by channel and sender.
        sent: their number, by channel and target.
    """

    taken: Mapping[tuple[int, int], int]
    sent: Mapping[tuple[int, int], int]

    def received_by(self, worker: int) -> Iterator[Count]:
        """Yield the counts of the records that the worker received."""
        return ((channel, sender, worker, records) for (channel, sender), records in self.taken.items())

    def sent_by(self, worker: int) -> Iterator[Count]:
        """Yield the counts of the records that the worker sent."""
        return ((channel, worker, target, records) for (channel, target), records in self.sent.items())


def summed(counts: Iterable[Count]) -> dict[int, int]:
    """Return a sum of hashes for each channel, modulo 2 to the power of 64.

    Reports have only these. Their size thus does not grow with the number of workers: if all records arrived, the sums
    of all senders and of all receivers are equal. Hashes of integers are the same in all processes of one version of
    Python. Spark requires that.
    """
    sums: dict[int, int] = {}
    for count in counts:
        sums[count[0]] = sums.get(count[0], 0) + hash(count) & _MODULO
    return sums


def check_counts(reports: Sequence[StageReport], changelog: Changelog) -> None:
    """Check that the records sent and received agree on each channel.

    Args:
        reports: the reports of all workers and stages.
        changelog: has the counts of each of them, for the error.

    Raises:
        RunFailed: if they differ.
    """
    sent, taken = (_total(sums) for sums in ([it.sent for it in reports], [it.taken for it in reports]))
    for channel in sorted(sent.keys() | taken.keys()):
        if sent.get(channel, 0) != taken.get(channel, 0):
            raise RunFailed(
                f"{_difference(channel, reports, changelog)} on channel {channel}: Spark repeated a part of the tick "
                "with different records"
            )


def _total(sums: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for of_worker in sums:
        for channel, hashed in of_worker.items():
            total[channel] = total.get(channel, 0) + hashed & _MODULO
    return total


def _difference(channel: int, reports: Sequence[StageReport], changelog: Changelog) -> str:
    """Return which worker received other records than were sent to it."""
    sent: dict[tuple[int, int], int] = {}
    told: dict[int, int] = {}
    taken: dict[tuple[int, int], int] = {}
    known: set[int] = set()
    for it in reports:
        stored = changelog.output(it.stage, it.worker, it.tick)
        counts = None if stored is None else stored.counts
        if channel in it.taken:
            told[it.worker] = it.taken[channel]
        if counts is None:
            continue
        sent.update({(sender, to): n for at, sender, to, n in counts.sent_by(it.worker) if at == channel})
        if channel in it.taken:
            known.add(it.worker)
        taken.update({(sender, to): n for at, sender, to, n in counts.received_by(it.worker) if at == channel})
    for target in sorted(told.keys() | {to for _, to in sent}):
        went = {sender: n for (sender, to), n in sent.items() if to == target}
        if summed((channel, sender, target, n) for sender, n in went.items()).get(channel, 0) == told.get(target, 0):
            continue
        came = {sender: n for (sender, to), n in taken.items() if to == target}
        if target not in known and target in told:
            return f"worker {target} received other records than those that were sent to it"
        sender = next(it for it in sorted(went.keys() | came.keys()) if went.get(it, 0) != came.get(it, 0))
        return (
            f"worker {target} received {came.get(sender, 0)} of the {went.get(sender, 0)} records that worker {sender} "
            "sent"
        )
    return "workers received other records than those that were sent"
