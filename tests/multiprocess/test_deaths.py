"""A worker process dies while its run continues: the run restarts, or ends with an error that names the process."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from malflow import RestartPolicy, RunFailed, SnapshotError, StreamProvider
from malflow.events import Restarted, RunFinished, RunStarted
from malflow.sinks import VecSink
from malflow.snapshot import snapshots
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource
from tests.kit.backends import at_once, kept_states
from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE
from tests.multiprocess.runs import BOTH, Heard, add, is_first, processes, scripted, summed

pytestmark = pytest.mark.slow

SIZE = 30
TICK = timedelta(microseconds=1)
SOON = timedelta(milliseconds=10)
TOTALS = {key: sum(range(key, SIZE, 3)) for key in range(3)}
DEATHS = {"SIGKILL": "was killed by SIGKILL", "SIGSEGV": "was killed by SIGSEGV", "exit": "has exited with code 3"}
CASES = at_night(product(DEATHS, BOTH), but=[*product(DEATHS, BOTH[:1]), ("SIGSEGV", "spawn")])


class Dies:
    """Kills the worker process that handles a number, as often as said, and notes its pid and worker.

    Args:
        how: the name of a signal, or "exit".
        folder: where it leaves its marks.
        at: the number.
        times: how often.
    """

    def __init__(self, how: str, folder: Path, at: int = SIZE // 2, times: int = 1) -> None:
        self.how = how
        self.folder = folder
        self.at = at
        self.times = times

    def __call__(self, msg: Any, ctx: Any) -> None:
        if msg.value != self.at or not any(is_first(self.folder / f"death-{nth}") for nth in range(self.times)):
            return
        (self.folder / "died").write_text(f"{os.getpid()} {ctx.worker_id}")
        if self.how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.Signals[self.how])
        time.sleep(DEADLINE)

    @property
    def died(self) -> tuple[int, int]:
        """The process that died, and the worker that handled the number."""
        pid, worker = (self.folder / "died").read_text().split()
        return int(pid), int(worker)


@pytest.mark.fault("E21", "H6", "J1")
@pytest.mark.parametrize(("how", "method"), CASES)
def test_a_run_restarts_when_a_worker_process_dies(tmp_path: Path, how: str, method: str) -> None:
    dies, heard = Dies(how, tmp_path), Heard()
    backend = at_once(tmp_path / "state")
    policy = RestartPolicy(backoff=SOON)
    build = summed(scripted(range(SIZE)), dies, VecSink())
    runtime = processes(build, backend, TICK, start_method=method, restart=policy, listeners=[heard])
    runtime.execute()
    assert kept_states(backend, "sum") == TOTALS
    [restarted] = heard.of(Restarted)
    assert (restarted.restarts, restarted.pause) == (1, SOON.total_seconds())
    assert DEATHS[how] in str(restarted.error)
    assert f"worker process {dies.died[0]}, " in str(restarted.error)
    assert [event.restarts for event in heard.of(RunStarted)] == [0, 1]
    assert heard.of(RunStarted)[1].snapshot is not None
    assert [(event.restarts, event.error) for event in heard.of(RunFinished)] == [(1, None)]
    assert runtime.progress.restarts == 1


@pytest.mark.fault("E21")
def test_a_restart_of_a_run_with_restore_goes_on_from_the_latest_snapshot(tmp_path: Path) -> None:
    dies, heard = Dies("SIGKILL", tmp_path), Heard()
    backend = at_once(tmp_path / "state")
    processes(summed(scripted(range(5)), dies, VecSink()), backend, TICK).execute()
    began = max(it.id for it in snapshots(backend))

    build = summed(scripted(range(SIZE)), dies, VecSink())
    policy = RestartPolicy(backoff=SOON)
    processes(build, backend, TICK, restart=policy, listeners=[heard], restore=began).execute()
    first, second = (event.snapshot for event in heard.of(RunStarted))
    assert first == began
    assert second is not None
    assert second > began
    assert kept_states(backend, "sum") == TOTALS


@pytest.mark.fault("E21")
@pytest.mark.parametrize(
    ("how", "method"), at_night(product(DEATHS, BOTH), but=[("SIGKILL", "spawn"), ("exit", BOTH[0])])
)
def test_a_run_without_a_persistence_ends_and_names_the_process(tmp_path: Path, how: str, method: str) -> None:
    dies, heard = Dies(how, tmp_path), Heard()
    build = summed(scripted(range(SIZE)), dies, VecSink())
    with pytest.raises(RunFailed) as raised:
        processes(build, parallelism=3, start_method=method, listeners=[heard]).execute()
    pid, worker = dies.died
    workers = "workers 0 and 1" if worker < 2 else "worker 2"
    assert str(raised.value).startswith(f"worker process {pid}, which ran {workers} of 3, {DEATHS[how]}")
    assert heard.of(Restarted) == []
    assert heard.of(RunFinished)[0].error is raised.value


@pytest.mark.fault("E21")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_while_others_wait_for_it_is_named(tmp_path: Path, victim: int) -> None:
    def die(_msg: Any, ctx: Any) -> None:
        if ctx.worker_id == victim:
            (tmp_path / "died").write_text(str(os.getpid()))
            os._exit(3)

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource({"a": [1], "b": [2]})).inspect("die", die)
        numbers.key_distribute("key", lambda msg: msg.value).stateful_map("sum", add, int)

    for _ in range(5 if NIGHTLY else 2):
        with pytest.raises(RunFailed) as raised:
            processes(build).execute()
        pid = (tmp_path / "died").read_text()
        assert str(raised.value) == f"worker process {pid}, which ran worker {victim} of 2, has exited with code 3"


def test_a_policy_without_restarts_ends_the_run(tmp_path: Path) -> None:
    backend, heard = at_once(tmp_path / "state"), Heard()
    build = summed(scripted(range(SIZE)), Dies("SIGKILL", tmp_path), VecSink())
    with pytest.raises(RunFailed, match="was killed by SIGKILL"):
        processes(build, backend, TICK, restart=RestartPolicy(0), listeners=[heard]).execute()
    assert heard.of(Restarted) == []
    processes(build, backend).execute()
    assert kept_states(backend, "sum") == TOTALS


def test_a_worker_that_dies_at_each_start_exhausts_the_policy(tmp_path: Path) -> None:
    backend, heard = at_once(tmp_path / "state"), Heard()
    build = summed(scripted(range(SIZE)), Dies("SIGKILL", tmp_path, at=0, times=9), VecSink())
    with pytest.raises(RunFailed, match="was killed by SIGKILL"):
        processes(build, backend, restart=RestartPolicy(2, SOON), listeners=[heard]).execute()
    assert [(event.restarts, event.pause) for event in heard.of(Restarted)] == [(1, 0.01), (2, 0.02)]
    assert [event.restarts for event in heard.of(RunFinished)] == [2]


def test_a_snapshot_between_two_deaths_renews_the_restarts(tmp_path: Path) -> None:
    backend, heard = at_once(tmp_path / "state"), Heard()
    first, second, third = (Dies("SIGKILL", tmp_path, at) for at in (9, 15, 21))
    for nth, dies in enumerate((first, second, third)):
        dies.folder = tmp_path / f"marks-{nth}"
        dies.folder.mkdir()

    def hook(msg: Any, ctx: Any) -> None:
        for dies in (first, second, third):
            dies(msg, ctx)

    build = summed(scripted(range(SIZE)), hook, VecSink())
    processes(build, backend, TICK, restart=RestartPolicy(1, SOON), listeners=[heard]).execute()
    assert [event.restarts for event in heard.of(Restarted)] == [1, 2, 3]
    assert kept_states(backend, "sum") == TOTALS


def test_a_source_without_positions_is_not_read_twice(tmp_path: Path) -> None:
    heard, numbers = Heard(), range(100_000)
    dies = Dies("SIGKILL", tmp_path, at=len(numbers) - 1)
    build = summed(SingleIteratorSource(numbers), dies, VecSink())
    policy = RestartPolicy(backoff=SOON)
    with pytest.raises(SnapshotError, match="source 'numbers' has no positions, so the run can't be restarted"):
        processes(build, at_once(tmp_path / "state"), TICK, restart=policy, listeners=[heard]).execute()
    assert DEATHS["SIGKILL"] in str(heard.of(RunFinished)[0].error)


def test_a_source_without_positions_starts_over_without_a_snapshot(tmp_path: Path) -> None:
    backend, heard = at_once(tmp_path / "state"), Heard()
    build = summed(SingleIteratorSource(range(SIZE)), Dies("SIGKILL", tmp_path), VecSink())
    processes(build, backend, restart=RestartPolicy(backoff=SOON), listeners=[heard]).execute()
    assert [event.restarts for event in heard.of(Restarted)] == [1]
    assert kept_states(backend, "sum") == TOTALS


@pytest.mark.fault("J8")
def test_a_death_is_noticed_although_a_forked_child_lives_on(tmp_path: Path) -> None:
    def hook(msg: Any, ctx: Any) -> None:
        if msg.value == SIZE // 2 and is_first(tmp_path / "forked"):
            child = os.fork()
            if not child:
                time.sleep(DEADLINE)
                os._exit(0)
            (tmp_path / "child").write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)

    backend, heard = at_once(tmp_path / "state"), Heard()
    runtime = processes(
        summed(scripted(range(SIZE)), hook, VecSink()),
        backend,
        TICK,
        restart=RestartPolicy(backoff=SOON),
        listeners=[heard],
    )
    handle = runtime.start()
    try:
        wait_until((tmp_path / "child").exists, DEADLINE)
        wait_until(lambda: heard.of(Restarted), 5)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
        assert handle.await_termination(DEADLINE)
    assert kept_states(backend, "sum") == TOTALS


class Fragile(int):
    """A number that kills the process that pickles it for another one, once.

    Attributes:
        mark: a file that says that it has happened.
    """

    mark: Path | None = None

    def __reduce__(self) -> Any:
        if self.mark is not None and is_first(self.mark):
            os.kill(os.getpid(), signal.SIGKILL)
        return int, (int(self),)


def test_a_worker_that_dies_while_it_hands_over_its_state(tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"

    def hook(msg: Any, _ctx: Any) -> None:
        if msg.value == SIZE // 2:
            (tmp_path / "waits").touch()
            wait_until(go.exists, DEADLINE)

    def add_fragile(_key: Any, value: int, total: int) -> tuple[int, int]:
        state = Fragile(total + value)
        state.mark = mark if value == SIZE // 2 else None
        return int(state), state

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("numbers", scripted(range(SIZE)))
        keyed = keyed.key_distribute("key", lambda msg: msg.value % 3).inspect("hook", hook)
        keyed.stateful_map("sum", add_fragile, int).sink("out", VecSink())

    backend, heard = at_once(tmp_path / "state"), Heard()
    runtime = processes(build, backend, restart=RestartPolicy(backoff=SOON), listeners=[heard])
    handle = runtime.start()
    wait_until((tmp_path / "waits").exists, DEADLINE)
    rescaled = handle.rescale(4)
    go.touch()
    assert handle.await_termination(DEADLINE)
    assert mark.exists()
    assert runtime.progress.restarts == 1
    assert isinstance(rescaled.exception(0), RunFailed)
    assert kept_states(backend, "sum") == TOTALS
