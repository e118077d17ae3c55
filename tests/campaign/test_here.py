"""The campaign itself: its cases pass on one thread, and it reports differences."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaign.cases import Campaign, Difference
from tests.campaign.comparing import Job
from tests.campaign.differential import here
from tests.campaign.flows import flows, resting

pytestmark = pytest.mark.nightly


def test_cases_pass_on_one_thread(capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign("here", 1, 60, most=4)

    here(campaign)

    assert campaign.failed == {}
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [f"seed={it}" for it in range(1, 5)]


def test_a_seed_draws_the_same_dataflows_again() -> None:
    assert [repr(it.dataflow) for it in flows(7, 3)] == [repr(it.dataflow) for it in flows(7, 3)]


def test_a_case_that_fails_is_told_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign("here", 5, 60, most=1)

    def case() -> str:
        raise Difference("one is missing")

    campaign.attempt(5, case)

    assert "seed=5" in capsys.readouterr().out
    assert "here --seed 5 --cases 1   # Difference: one is missing" in campaign.summary()


def test_a_state_or_record_that_is_lost_is_found(tmp_path: Path) -> None:
    job = Job([resting(random.Random(3))], 3, tmp_path)
    backend = job.backend()
    result = job.run_here(backend, 2)
    job.check_outputs(result)
    job.check_outputs_at_least(result)
    job.check_states(backend, "a run")

    job.expected[0].states["right-state"][99] = 1
    with pytest.raises(Difference, match=r"right-state, 1 of .* keys: 99: 'nothing' for 1"):
        job.check_states(backend, "a run")

    result.records["left-out"].pop()
    with pytest.raises(Difference, match="left-out lacks 1 records"):
        job.check_outputs(result)
    with pytest.raises(Difference, match="left-out: lost 1 records"):
        job.check_outputs_at_least(result)
