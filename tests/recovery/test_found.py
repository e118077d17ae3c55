"""Bugs that the tests of recovery have found, each with the shortest reproduction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from malflow.errors import FencedError
from tests.recovery.scheduler import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_run_that_starts_beside_one_that_commits_finds_no_damage(world: World) -> None:
    old, new = world.processes
    old.do("open")
    old.do("snapshot")
    new.start("open")
    assert new.run_to("get", "m/")  # it has listed the manifests
    for _ in range(4):
        old.do("snapshot")  # and all of them are collected
    new.finish()
    assert new.session is not None
    assert new.log == old.log


def test_two_runs_that_begin_a_job_at_once_miss_no_manifests(world: World) -> None:
    first, second = world.processes
    first.start("open")
    first.run_to("put", "job.json")
    first.run_to("list", "gc/")
    first.step(2)
    assert first.stepper.waiting == ("list", "d/")  # it has found no manifests
    second.do("open")
    second.do("snapshot")
    first.finish()
    assert first.session is not None
    assert first.log == second.log


def test_two_runs_that_begin_a_job_at_once_miss_no_file_of_the_job(world: World) -> None:
    first, second = world.processes
    first.start("open")
    assert first.run_to("list", "m/")  # the job's file is not there
    second.do("open")
    first.finish()
    assert first.session is not None


def test_snapshot_collected_during_a_start_does_not_become_the_newest() -> None:
    world = World(growth=0.01)  # every other snapshot is a base
    old, new = world.processes
    old.do("open")
    for _ in range(4):
        old.do("snapshot")
    old.start("snapshot")
    assert old.run_to("put", "gc/")
    new.start("restore", 3)
    assert new.run_to("put", "m/")
    old.finish()
    new.finish()
    world.check()
    world.close()


def test_a_run_that_is_fenced_while_it_reads_its_snapshot_finds_no_damage(world: World) -> None:
    slow, quick = world.processes
    for times in (2, 2, 1, 1):
        slow.do("open")
        for _ in range(times):
            slow.do("snapshot")
    slow.start("open")
    assert slow.run_to("get", "d/")  # it has claimed the job
    quick.do("open")
    for _ in range(3):
        quick.do("snapshot")  # the last one makes what the other reads garbage
    slow.finish()
    assert isinstance(slow.stepper.error, FencedError)
    assert quick.session is not None
