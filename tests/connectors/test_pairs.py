"""From one system to another, exactly once: jobs that are killed or sleep while records are added."""

from __future__ import annotations

import pytest

from tests.connectors.pairs import Pair
from tests.kit.killing import DRIVER_POINTS, POINTS, wake
from tests.kit.nights import NIGHTLY, only_nightly

pytestmark = pytest.mark.slow

PAIRS = [
    ("kafka", "postgres"),
    *(pytest.param(it, marks=pytest.mark.nightly) for it in (("changes", "parquet"), ("changes", "delta"))),
]
ON_SPARK = [("kafka", "postgres")]
MORE_ON_SPARK = [("changes", "delta"), ("kafka", "kafka"), ("changes", "postgres"), ("changes", "parquet")]


@pytest.mark.fault("A7")
@pytest.mark.parametrize("pair", PAIRS, ids="_to_".join, indirect=True)
def test_kills_between_two_systems_lose_and_double_nothing(pair: Pair) -> None:
    for point in POINTS if NIGHTLY else ["prepared", "before-commit"]:
        pair.add()
        pair.kill(point)
    pair.add()
    pair.run()
    pair.check(whole=True)


@pytest.mark.spark
@pytest.mark.fault("A7")
@pytest.mark.parametrize("pair", [*ON_SPARK, *(MORE_ON_SPARK if NIGHTLY else [])], ids="_to_".join, indirect=True)
@pytest.mark.nightly
def test_kills_of_the_driver_between_two_systems(pair: Pair) -> None:
    for point in DRIVER_POINTS if NIGHTLY else ["before-commit"]:
        pair.add()
        pair.kill(f"{point}:2", "spark")
    pair.add()
    pair.run(*(["spark"] if NIGHTLY else []))  # on one thread, a job from Spark goes on sooner
    pair.check(whole=True)


@pytest.mark.spark
@pytest.mark.fault("A7")
@only_nightly
@pytest.mark.parametrize("point", DRIVER_POINTS)
@pytest.mark.parametrize("pair", [*ON_SPARK, *MORE_ON_SPARK], ids="_to_".join, indirect=True)
def test_driver_that_wakes_up_after_its_heir(pair: Pair, point: str) -> None:
    pair.add()
    with pair.parked(f"{point}:2", "spark") as zombie:
        pair.run("spark")
        pair.check(whole=True)
        code, errors = wake(zombie)
    assert code == 1
    stopped_at_source = "exists, but this job has no position in it"  # its heir made the slot before it read
    assert "FencedError" in errors or (pair.source == "changes" and stopped_at_source in errors)
    pair.check(whole=True)
