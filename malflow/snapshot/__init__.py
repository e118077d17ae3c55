"""What outlives a run: where the state goes, and where it comes from."""

from malflow.snapshot.persistence import NoPersistence, Persistence, WorkerDeltas

__all__ = ["NoPersistence", "Persistence", "WorkerDeltas"]
