"""Two runs and their collections, interleaved at every call of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from malflow.snapshot.protocol import commit, retention
from tests.kit.nights import at_night
from tests.recovery.planted_bugs import Edit
from tests.recovery.scenario import Violation
from tests.recovery.scheduler import CalmScheduler, SchedulerMachine, World, interleave

pytestmark = pytest.mark.slow

DELETES_WHAT_IS_IN_FLIGHT = Edit(
    retention, "delete_below", "if _is_below(key, boundary) and key not in needed]", "if key not in needed]"
)
USES_A_COLLECTED_NUMBER = Edit(commit.Claim, "_check_boundary", "if boundary >= seq:", "if False:")

Crossing = Callable[[], int]
SNAPSHOT = "snapshot"

CROSSINGS: dict[str, Crossing] = {
    "a run starts beside one that commits": partial(
        interleave, (SNAPSHOT,), ("open", *[SNAPSHOT] * 3), before=4, most=24
    ),
    "a run goes back beside one that commits": partial(
        interleave, (SNAPSHOT,), ("restore", SNAPSHOT), before=4, most=24
    ),
    "a run commits while one starts": partial(
        interleave, (SNAPSHOT,) * 4, ("open",), before=4, most=0, old_first=False
    ),
    "a run commits while one goes back": partial(
        interleave, (SNAPSHOT,) * 4, ("restore",), before=4, most=0, old_first=False
    ),
    "two runs begin a job": partial(interleave, ("open", SNAPSHOT), ("open", SNAPSHOT), before=0, most=24),
}

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=settings().max_examples * 2, stateful_step_count=40, report_multiple_bugs=False
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def collect_while_another_commits(world: World) -> None:
    """A run stands still in its collection, where it knows what is needed, while another writes its data."""
    old, new = world.processes
    old.do("open")
    old.do("snapshot")
    old.start("snapshot")
    assert old.run_to("list", "d/")
    new.do("open")
    new.start("snapshot")
    assert new.run_to("put", "m/")
    old.finish()
    new.finish()
    assert new.session is not None
    world.check()
    world.check_alive()


def commit_where_another_has_collected(world: World) -> None:
    """A run stands still before its manifest until its number is free again."""
    old, new = world.processes
    old.do("open")
    old.start("snapshot")
    assert old.run_to("put", "m/")
    for action in ("open", *["snapshot"] * 4):
        new.do(action)
    assert world.retained()[0] > 2
    old.finish()
    assert old.session is None
    world.check()
    world.check_alive()


SCRIPTS = (collect_while_another_commits, commit_where_another_has_collected)


@pytest.mark.fault("C10")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_interleavings_that_found_bugs_find_none(script: Callable[[World], None], world: World) -> None:
    script(world)


@pytest.mark.fault("D4")
@pytest.mark.parametrize(
    ("bug", "script", "violated"),
    [
        (DELETES_WHAT_IS_IN_FLIGHT, collect_while_another_commits, "fsck"),
        (USES_A_COLLECTED_NUMBER, commit_where_another_has_collected, "claimant"),
    ],
    ids=["in flight", "collected number"],
)
def test_a_bug_that_needs_an_interleaving_is_found(
    bug: Edit, script: Callable[[World], None], violated: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(Violation) as found:
        script(world)
    assert found.value.invariant == violated


@pytest.mark.fault("D3", "D5")
@pytest.mark.parametrize("name", at_night(CROSSINGS, but=["a run goes back beside one that commits"]))
def test_two_runs_can_cross_at_any_two_calls(name: str) -> None:
    assert CROSSINGS[name]() > 9


@pytest.mark.parametrize(
    ("bug", "violated"),
    [(DELETES_WHAT_IS_IN_FLIGHT, {"fsck", "state"}), (USES_A_COLLECTED_NUMBER, {"claimant"})],
    ids=["in flight", "collected number"],
)
@pytest.mark.nightly
def test_crossing_runs_find_a_bug(bug: Edit, violated: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(Violation) as found:
        CROSSINGS["a run starts beside one that commits"]()
    assert found.value.invariant in violated


@pytest.mark.skipif(settings().max_examples < 1000, reason="only a long search can be sure to come across them")
@pytest.mark.parametrize(
    "bug", [DELETES_WHAT_IS_IN_FLIGHT, USES_A_COLLECTED_NUMBER], ids=["in flight", "collected number"]
)
def test_a_search_finds_a_bug_that_needs_an_interleaving(bug: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    search = settings(max_examples=20_000, stateful_step_count=30, database=None, phases=[Phase.generate])
    with pytest.raises(Violation):
        run_state_machine_as_test(CalmScheduler, settings=search)
