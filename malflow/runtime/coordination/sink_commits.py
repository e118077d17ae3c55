"""The outputs of a run's sinks: taken over from other runs, with the records that snapshots contain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from malflow.engine.sinks import RunSinks
from malflow.engine.ticks import Ticks
from malflow.errors import GraphError, OperatorError
from malflow.runtime.progress.progress import SinkProgress
from malflow.snapshot.persistence import CoordinatingSession, Persistence, RestoreOptions, Session, job_of
from malflow.snapshot.writer import SnapshotSession

__all__ = [
    "KeptRecords",
    "begin_transactions",
    "fenced_first",
]

_ID_LENGTH = 8
"""Characters of the job's UUID in names of sinks: 32 bits tell jobs of one name apart; more make names longer."""


def begin_transactions(
    sinks: RunSinks,
    persistence: Persistence,
    session: Session,
    start: RestoreOptions,
    restored: int | None,
) -> None:
    """Take over the outputs, commit the transactions in the restored snapshot, and abort all others.

    Args:
        sinks: the sinks, with their positions in the snapshot.
        persistence: where snapshots are saved.
        session: the session that has claimed the job.
        start: the options for restoring state.
        restored: the id of the restored snapshot, or None.

    Raises:
        GraphError: if the session does not support transactions.
        SnapshotError: if the snapshot is older than the last commit of a sink, or another run has taken over an output.
        OperatorError: if a sink fails.
    """
    if not sinks.has_transactions:
        return
    if not isinstance(session, CoordinatingSession):
        raise GraphError(
            f"sinks that deliver exactly once need a persistence whose sessions have claimed and amend(), such as "
            f"FsspecBackend; those of {persistence!r} lack them"
        )
    uuid, claim = session.claimed
    origin = "the run starts without a snapshot" if restored is None else f"the run starts from snapshot {restored}"
    sinks.begin(
        f"{job_of(persistence)}-{uuid[:_ID_LENGTH]}",
        claim,
        origin=origin,
        accept_duplicates=start.accept_duplicates,
        store=session.writer.store if isinstance(session, SnapshotSession) else None,
    )


@contextmanager
def fenced_first(session: Session) -> Iterator[None]:
    """If a sink fails in the block, check that no other run has claimed the job, and with it the sinks.

    Raises:
        SnapshotError: such as a `FencedError`.
    """
    try:
        yield
    except OperatorError:
        session.confirm()
        raise


class KeptRecords:
    """Counts the records of the sinks that commit with snapshots.

    Args:
        sinks: the run's sinks.
        ticks: its ticks; they count the records of each operator.
    """

    def __init__(self, sinks: RunSinks, ticks: Ticks) -> None:
        self._sinks = sinks
        self._ticks = ticks
        self._kept: Mapping[str, int] = {}

    @property
    def taken(self) -> Mapping[str, int]:
        """The number of records that each of the sinks has received, for a snapshot that is taken now."""
        return {name: self._ticks.counts.get(name, 0) for name in self._sinks.uncommitted}

    def keep(self, taken: Mapping[str, int]) -> None:
        """Note that a snapshot is durable, with the records that the sinks had received."""
        self._kept = taken

    @property
    def progress(self) -> dict[str, SinkProgress]:
        """The progress of each of the sinks; readable from any thread."""
        kept, taken = self._kept, self.taken
        return {
            name: SinkProgress(kept.get(name, 0), taken[name] - kept.get(name, 0), uncommitted, limit)
            for name, (uncommitted, limit) in self._sinks.uncommitted.items()
        }
