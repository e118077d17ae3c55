"""A job with a failing file system still computes the right totals, or names the problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.errors import SnapshotCorrupt
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import CRASH, END, Crash, Fault, FaultyFileSystem, ScriptedSource
from tests.kit.backends import memory_filesystem


class RunningSum:
    """A running sum, whose source ends twice: behind 3 and behind 5."""

    def __init__(self, faults: Sequence[Fault], script: Sequence[Any] = (1, 2, 3, END, 4, 5)) -> None:
        self.faulty = FaultyFileSystem(memory_filesystem(), faults)
        self.source = ScriptedSource(script)
        self.sums: VecSink[Any, Any, Any] = VecSink()

    def build(self, provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", self.source).key_distribute("one", lambda msg: 0)
        stream.stateful_map("sum", lambda _key, value, total: (total + value, total + value), int).sink(
            "out", self.sums
        )

    def run(self) -> None:
        backend = FsspecBackend("job-folder", filesystem=self.faulty)
        SingleThreadRuntime(self.build, persistence=backend, debug=True).execute()

    def run_until_done(self) -> int:
        """Run again after each crash or error, until the source has ended for the second time; return the tries."""
        for tries in range(1, 9):
            try:
                self.run()
            except (Crash, SnapshotError):
                continue
            if self.sums.values[-1:] == [15]:
                return tries
        raise AssertionError("it never ended")


def test_without_a_fault_the_second_run_goes_on_where_the_first_ended() -> None:
    job = RunningSum([])

    assert job.run_until_done() == 2
    assert job.sums.values == [1, 3, 6, 10, 15]


@pytest.mark.parametrize("folder", ["/m/", "/d/"])
@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after", "error_before", "error_after", "throttled", "late"])
@pytest.mark.slow
def test_a_fault_in_any_write_leaves_the_total_right(kind: str, folder: str, nth: int) -> None:
    job = RunningSum([Fault(kind, "write", folder, nth)])

    tries = job.run_until_done()

    assert job.faulty.fired == job.faulty.faults
    assert tries <= 3
    assert set(job.sums.values) == {1, 3, 6, 10, 15}
    job.faulty.release()
    job.run()
    assert set(job.sums.values) == {1, 3, 6, 10, 15}


def test_a_torn_data_file_is_never_read() -> None:
    job = RunningSum([Fault("torn", "write", "/d/")])

    assert job.run_until_done() == 3
    assert job.sums.values == [1, 3, 6, 1, 3, 6, 10, 15]
    assert job.faulty.fired == job.faulty.faults


@pytest.mark.damages_snapshots("a bit is flipped")
@pytest.mark.parametrize("folder", ["/m/", "/d/"])
def test_a_flipped_bit_stops_the_next_run(folder: str) -> None:
    job = RunningSum([Fault("bit_flip", "write", folder, 1 if folder == "/m/" else 0)])
    job.run()

    with pytest.raises(SnapshotCorrupt, match=folder.strip("/")):
        job.run()
    assert job.faulty.fired == job.faulty.faults


def test_a_crash_of_the_program_goes_back_to_the_last_snapshot() -> None:
    job = RunningSum([], [1, 2, 3, END, 4, CRASH, 5])

    assert job.run_until_done() == 3
    assert job.sums.values == [1, 3, 6, 10, 10, 15]


def test_the_same_faults_lead_to_the_same_operations() -> None:
    def operations() -> list[tuple[str, str, str | None]]:
        job = RunningSum([Fault("error_after", "write", "/m/"), Fault("crash_after", "write", "/d/")])
        job.run_until_done()
        return [(call.operation, call.path.split("/")[-2], call.fault) for call in job.faulty.log]

    assert operations() == operations()
