"""Faults in a cluster of real processes: whatever ends, disappears or fails, each record counts once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SparkRuntime, rendezvous_select
from malflow.sinks import VecSink
from malflow.snapshot import fsck
from tests.bad_records.programs import replaying
from tests.kit.disks import make_room, small_disk
from tests.kit.nights import NIGHTLY, only_nightly
from tests.kit.waiting import wait_until
from tests.spark.clusters import SECONDS, Driver, need_spark
from tests.spark.flows import KEYS, PARTS, WRITTEN, are_of_a_tick, assert_written_once, expected_sums, kept_sums
from tests.spark.programs.faults import REPEATED, Options, backend_of, faulty

pytestmark = pytest.mark.spark

SIZE = Options.size
RECORDS = SIZE * len(PARTS)
LONG = 240
"""Records in each part of a run that lasts some seconds."""

BEFORE_THE_LAST_TASK = [
    number
    for number in range(50, 50 + KEYS)
    if rendezvous_select(number % KEYS, range(Options.parallelism)) < Options.parallelism - 1
]
"""Numbers whose key is on a worker after which another one still reads what its stage is given."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Start a cluster of two executors, each a process with processes of Python."""
    need_spark()
    with Driver(tmp_path_factory.mktemp("cluster")) as driver:
        yield driver


@pytest.fixture
def staying(cluster: Driver) -> Iterator[Driver]:
    """Return the cluster while Spark waits for the executor that it prefers."""
    wait_until(lambda: cluster.ask("registered")["executors"] == 2)
    cluster.ask("prefer", wait="8s")
    yield cluster
    cluster.ask("prefer", wait="0")


def assert_exact(folder: Path, size: int = SIZE) -> None:
    """Check that every number was counted and written once, and that all that is kept is whole."""
    assert_written_once(folder / WRITTEN, size)
    backend = backend_of(Options(str(folder)))
    assert kept_sums(backend) == expected_sums(size)
    report = fsck(backend)
    assert report.problems == ()
    assert report.snapshots


def assert_answers_of_ticks(answers: list[tuple[list[tuple[int, int]], int]]) -> None:
    """Check that each answer has the sums after its tick, and that they were asked for all the time."""
    by_tick = {tick: dict(found) for found, tick in answers}
    assert all(by_tick[tick] == dict(found) for found, tick in answers), "two answers of a tick"
    assert all(are_of_a_tick(found, SIZE) for found in by_tick.values())
    assert [*by_tick] == sorted(by_tick)
    assert len(set(map(str, by_tick.values()))) >= 4, "before and after the kill"


def counts_on_one_thread(folder: Path) -> dict[str, list[Any]]:
    """Return each operator's counts in a run of the same dataflow without faults."""
    folder.mkdir()
    options = Options(str(folder), fails=True)
    runtime = SingleThreadRuntime(faulty(options, VecSink()), backend_of(options))
    runtime.execute()
    counts = {
        name: [it.taken, [*it.given], it.failed, it.skipped, it.letters, it.retries]
        for name, it in runtime.progress.operators.items()
    }
    assert counts["some"][:5] == [RECORDS, [RECORDS - RECORDS // 5], RECORDS // 5, 0, RECORDS // 5]
    return counts


def checks(folder: Path) -> int:
    """Return how many records the function before the exchange received."""
    return len((folder / "checks").read_text(encoding="utf-8").split())


def killed(folder: Path) -> dict[str, Path]:
    """Return the temporary file name of each kill during a write."""
    marks = [it for it in folder.iterdir() if it.name.startswith(("worker ", "executor ", "only-executor "))]
    return {it.name: Path(it.read_text(encoding="utf-8")) for it in marks}


@pytest.mark.fault("I3")
@pytest.mark.nightly
def test_tasks_that_are_killed_short_of_memory_or_fail_are_tried_again(cluster: Driver, tmp_path: Path) -> None:
    deeds = [
        ("check", 10, "die_once"),
        ("sum", 30, "die_once"),
        ("check", 50, "run_out_of_memory_once"),
        ("sum", 65, "run_out_of_memory_once"),
        ("check", 85, "raise_twice"),
        ("sum", 105, "raise_twice"),
    ]
    end = cluster.run(folder=str(tmp_path), deeds=deeds)
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    marks = {"die_once at 10 in check", "die_once at 30 in sum", "raise_twice at 105 in sum 3"}
    assert marks <= {it.name for it in tmp_path.iterdir()}
    assert_exact(tmp_path)


@pytest.mark.fault("I4")
@pytest.mark.nightly
def test_a_task_that_always_fails_ends_the_run_with_operator_and_key(cluster: Driver, tmp_path: Path) -> None:
    end = cluster.run(folder=str(tmp_path), deeds=[("sum", 100, "raise_always")], every=0.01)
    kind, text, cause = end["error"]
    assert kind == "OperatorError"
    assert text.startswith(f"operator 'sum' failed at key {100 % KEYS}, value 100, timestamp 100: ValueError")
    assert (cause, end["key"], end["restarts"]) == ("ValueError('it is poison')", 100 % KEYS, 0)
    assert (tmp_path / "raise_always at 100 in sum 4").exists(), "it was tried as often as Spark says"
    assert not (tmp_path / "raise_always at 100 in sum 5").exists()
    assert kept_sums(backend_of(Options(str(tmp_path)))).get(100 % KEYS, 0) <= 3 * sum(range(100 % KEYS, 100, KEYS))
    assert cluster.run(folder=str(tmp_path))["error"] is None
    assert_exact(tmp_path)


@pytest.mark.fault("I2")
@pytest.mark.nightly
def test_lost_shuffle_data_is_sent_again(cluster: Driver, tmp_path: Path) -> None:
    """Whether a task still had to read what was lost is up to the machine: it has three tries."""
    deeds = [("sum", number, "lose_shuffle") for number in BEFORE_THE_LAST_TASK]
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        end = cluster.run(folder=str(folder), local=str(cluster.local), deeds=deeds)
        assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
        assert (folder / "lost").exists()
        assert checks(folder) == RECORDS, "no function is called again"
        assert_exact(folder)
        if (folder / REPEATED).exists():
            break
    assert (folder / REPEATED).exists(), "some records were sent again"


@pytest.mark.fault("I2")
@pytest.mark.nightly
def test_a_process_that_dies_after_its_changes_are_written(cluster: Driver, tmp_path: Path) -> None:
    deeds = [("sum", number, "lose_shuffle_and_die") for number in BEFORE_THE_LAST_TASK]
    end = cluster.run(folder=str(tmp_path), local=str(cluster.local), deeds=deeds)
    assert (end["error"], end["restarts"]) == (None, 0)
    assert (tmp_path / "lost").exists()
    assert set(killed(tmp_path)) == {"worker linked"}
    assert checks(tmp_path) == RECORDS
    assert_exact(tmp_path)


@pytest.mark.fault("I3")
@pytest.mark.nightly
def test_a_sink_that_fails_half_way_gets_every_record_at_least_once(cluster: Driver, tmp_path: Path) -> None:
    end = cluster.run(folder=str(tmp_path), breaks_at=60)
    assert (end["error"], end["restarts"]) == (None, 0)
    assert (tmp_path / "broken").exists()
    lines = (tmp_path / "lines").read_text(encoding="utf-8").splitlines()
    totals = {int(key): int(total) for key, total in (line.split() for line in lines)}
    assert len(set(lines)) >= RECORDS - len(PARTS), "some running totals of zero are alike"
    assert len(lines) > RECORDS, "some came twice"
    assert totals == expected_sums(SIZE)
    assert_exact(tmp_path)


@pytest.mark.fault("I30")
@pytest.mark.nightly
def test_a_full_scratch_disk_is_told_and_room_lets_the_next_run_go_on(cluster: Driver, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        end = cluster.run(folder=str(tmp_path), scratch=str(disk), attempts=1, every=0)
        kind, text, _ = end["error"]
        assert (kind, end["restarts"]) == ("StoreError", 1)
        assert "No space left on device; free some space" in text
        make_room(disk)
        assert cluster.run(folder=str(tmp_path), scratch=str(disk))["error"] is None
        assert [it for it in disk.rglob("*") if it.is_file()] == []
    assert_exact(tmp_path)


@only_nightly
@pytest.mark.fault("I2")
def test_an_executor_that_is_killed_costs_no_record(cluster: Driver, tmp_path: Path) -> None:
    before = cluster.executors()
    assert len(before) == 2
    cluster.ask("start", folder=str(tmp_path), sleep=0.002)
    wait_until(lambda: cluster.ask("progress")["tick"] >= 3)
    os.kill(before[0], signal.SIGKILL)
    end = cluster.wait()
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    assert_exact(tmp_path)
    wait_until(lambda: len(cluster.executors()) == 2)
    assert before[0] not in cluster.executors()


@only_nightly
@pytest.mark.fault("I3")
@pytest.mark.nightly
def test_workers_killed_while_writing_changes_leave_nothing_readable(cluster: Driver, tmp_path: Path) -> None:
    places = [
        ("check", 10, "worker torn"),
        ("sum", 40, "worker written"),
        ("check", 70, "worker linked"),
    ]
    end = cluster.run(folder=str(tmp_path), deeds=places)
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    assert set(killed(tmp_path)) == {f"{kill} at {number} in {place}" for place, number, kill in places}
    assert [it for it in (tmp_path / "scratch").rglob("*") if it.is_file()] == []
    assert_exact(tmp_path)


@pytest.mark.fault("I3")
@pytest.mark.nightly
def test_workers_that_are_killed_in_a_write_of_a_snapshot_cost_no_record(cluster: Driver, tmp_path: Path) -> None:
    kills = ["worker torn", "worker written", "worker linked"]
    end = cluster.run(folder=str(tmp_path), kills=kills, every=0.01)
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    assert set(killed(tmp_path)) == {f"{kill} in a snapshot" for kill in kills}
    assert_exact(tmp_path)


@pytest.mark.fault("I2", "K11")
@pytest.mark.nightly
def test_killed_executor_costs_neither_records_nor_answers(cluster: Driver, tmp_path: Path) -> None:
    """It is killed in a write of the changes of a tick, which a question that waits is part of."""
    before = cluster.executors()
    deeds = [("check", 40, "executor torn")]
    end = cluster.run(folder=str(tmp_path), deeds=deeds, most=60, asks=True, fails=True)
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    assert set(killed(tmp_path)) == {"executor torn at 40 in check"}
    assert end["counts"] == counts_on_one_thread(tmp_path / "alone")
    assert_answers_of_ticks(end["answers"])
    assert [it for it in (tmp_path / "scratch").rglob("*") if it.is_file()] == []
    assert_exact(tmp_path)
    wait_until(lambda: len(cluster.executors()) == 2)
    assert set(cluster.executors()) != set(before)


@pytest.mark.fault("I2", "I5")
@pytest.mark.nightly
def test_executor_killed_while_writing_a_snapshot(cluster: Driver, tmp_path: Path) -> None:
    before = cluster.executors()
    end = cluster.run(folder=str(tmp_path), kills=["only-executor torn"], every=0.01)
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, RECORDS)
    (temporary,) = killed(tmp_path).values()
    late = temporary.with_name(temporary.name.removeprefix(".tmp-").rpartition("-")[0])
    assert not late.exists()
    (tmp_path / "over").touch()
    wait_until(late.exists)
    assert f"d/{late.name}" in fsck(backend_of(Options(str(tmp_path)))).unused
    assert_exact(tmp_path)
    wait_until(lambda: len(cluster.executors()) == 2)
    assert set(cluster.executors()) != set(before)


@pytest.mark.fault("I2", "O5", "N7", "N8")
@pytest.mark.nightly
def test_killed_executors_cost_no_letter_replay_or_count(cluster: Driver, tmp_path: Path) -> None:
    """Kill one executor while calls are under way, and one at a random moment in each round of replays."""
    size = 600 if NIGHTLY else 60
    numbers = range(replaying.PARTS * size)
    operators = [*enumerate(replaying.OPERATORS)]
    failing = {name: sum(n % 7 == at for n in numbers) for at, name in operators}
    lasting = {name: sum(n % 7 == at and n % 2 for n in numbers) for at, name in operators}
    cluster.ask("start_replaying", folder=str(tmp_path), size=size, ends=False, deaths=[90], executors=True)
    wait_until(lambda: cluster.ask("counts")["records"].get("out") == len(numbers) - sum(failing.values()))
    assert (tmp_path / "dead 90").exists()
    counts = cluster.ask("counts")["counts"]
    assert {name: counts[name]["failed"] for name in failing} == failing
    assert {name: counts[name]["kept"] for name in failing} == failing
    assert counts["call"]["calls"] == len(numbers) - failing["parse"]
    for _ in range(10 if NIGHTLY else 0):
        assert {name: replayed_amid_a_kill(cluster, name) for name in failing} == failing
    (tmp_path / "mended").touch()
    assert {name: replayed_amid_a_kill(cluster, name) for name in failing} == failing
    replayed_amid_a_kill(cluster, "order")
    counts = cluster.ask("counts")["counts"]
    cluster.ask("stop")
    end = cluster.wait()
    assert (end["error"], end["restarts"]) == (None, 0)
    assert {name: counts[name]["kept"] for name in failing} == lasting
    replaying.check(tmp_path, size, whole=True)


def replayed_amid_a_kill(cluster: Driver, operator: str) -> int:
    """Replay the letters of an operator while an executor is killed; return the number of replayed letters."""
    wait_until(lambda: len(cluster.executors()) == 2)
    cluster.tell("replay", operator=operator)
    if NIGHTLY or operator == "call":
        time.sleep(random.uniform(0, 0.2))  # noqa: S311 - no secret
        os.kill(cluster.executors()[0], signal.SIGKILL)
    answer = cluster.answer()
    assert (answer["late"], answer["texts"]) == (0, 0)
    done: int = answer["done"]
    return done


@pytest.mark.fault("I2")
@pytest.mark.nightly
def test_tasks_stay_with_their_state_and_move_with_a_lost_executor(staying: Driver, tmp_path: Path) -> None:
    end = staying.run(folder=str(tmp_path))
    assert (end["error"], end["restarts"], end["moves"], end["copies"]) == (None, 0, 0, 1.0)
    assert end["read"] == 0, "the state was empty at the start"
    assert_exact(tmp_path)
    folder = tmp_path / "killed"
    folder.mkdir()
    staying.ask("start", folder=str(folder), size=LONG, most=30)
    wait_until(lambda: staying.ask("progress")["tick"] >= 5)
    os.kill(staying.executors()[0], signal.SIGKILL)
    end = staying.wait()
    assert (end["error"], end["restarts"], end["copies"]) == (None, 0, 1.0)
    stages, workers = 2, Options.parallelism
    assert 0 < end["moves"] <= 3 * stages * workers, "away from the lost executor, and then to the one in its place"
    assert end["read"] > 0, "by those that took over"
    assert_exact(folder, LONG)


@pytest.mark.fault("I31")
@pytest.mark.nightly
def test_workers_leave_a_decommissioned_executor(staying: Driver, tmp_path: Path) -> None:
    """It gets no more tasks, but for those that Spark would wait for it, eight seconds in each stage of a tick."""
    staying.ask("start", folder=str(tmp_path), size=LONG, most=30)
    wait_until(lambda: staying.ask("progress")["tick"] >= 3)
    executor = staying.ask("decommission")["executor"]
    wait_until(lambda: executor not in staying.ask("anchored")["executors"])
    (pid,) = staying.processes(f"--executor-id\0{executor}\0")
    end = staying.wait()
    assert (end["error"], end["restarts"], end["outputs"]) == (None, 0, LONG * len(PARTS))
    assert_exact(tmp_path, LONG)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(staying.executors()) == 2 and pid not in staying.executors())


@pytest.mark.fault("I2")
@pytest.mark.nightly
def test_without_what_anchors_need_the_run_says_so_once(staying: Driver, tmp_path: Path) -> None:
    end = staying.run(folder=str(tmp_path), anchorless=True)
    assert (end["error"], end["restarts"]) == (None, 0)
    assert [text for text in end["warnings"] if "keep" in text] == [
        "Spark can't keep tasks where their state is: 'Anchors' has no such door; each executor may come to hold the "
        "state of all workers"
    ]
    assert_exact(tmp_path)


@pytest.mark.nightly
def test_changes_that_are_lost_or_damaged_start_the_run_again(staying: Driver, tmp_path: Path) -> None:
    """No other process has the state: the tasks of a worker stay on an executor of one core."""
    end = staying.run(folder=str(tmp_path), deeds=[("sum", 50, "lose_scratch"), ("sum", 100, "flip_scratch")])
    assert (end["error"], end["restarts"]) == (None, 2)
    assert "is missing from the scratch folder" in end["warnings"][0]
    assert "is damaged: its content is not what this run wrote" in end["warnings"][1]
    assert_exact(tmp_path)


@only_nightly
@pytest.mark.fault("I1")
@pytest.mark.parametrize("point", ["before-manifest:3", "manifest-written:3"])
@pytest.mark.nightly
def test_a_driver_that_is_killed_in_a_commit_is_continued_exactly(tmp_path: Path, point: str) -> None:
    need_spark()
    with Driver(tmp_path / "driver", "local[2]", MALFLOW_FAILPOINT=point) as driver:
        driver.ask("start", folder=str(tmp_path), every=0.01)
        assert driver.process.wait(SECONDS) == -signal.SIGKILL
    options = Options(str(tmp_path))
    before = kept_sums(backend_of(options))
    assert 0 < sum(before.values()) < sum(expected_sums(SIZE).values())
    SingleThreadRuntime(faulty(options, VecSink()), backend_of(options), parallelism=2).execute()
    assert_exact(tmp_path)


@pytest.mark.fault("I1", "I6", "I13")
@pytest.mark.nightly
def test_a_driver_that_is_killed_anywhere_is_continued_exactly(spark: Any, tmp_path: Path) -> None:
    with Driver(tmp_path / "driver", "local[2]") as driver:
        driver.ask("start", folder=str(tmp_path), every=0.01)
        wait_until(lambda: driver.ask("progress")["tick"] >= 2)
        driver.process.kill()
        assert driver.process.wait(SECONDS) == -signal.SIGKILL
    options = Options(str(tmp_path))
    SparkRuntime(faulty(options, VecSink()), backend_of(options), parallelism=3, spark=spark).execute()
    assert_exact(tmp_path)
