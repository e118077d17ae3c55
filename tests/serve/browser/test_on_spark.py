"""The page of a run on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow.runtime.spark.runtime import SparkRuntime
from tests.kit.waiting import wait_until
from tests.serve.browser.jobs import Prices, orders
from tests.serve.browser.shown import shown
from tests.serve.browser.viewer import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.spark, pytest.mark.usefixtures("place")]


@pytest.mark.nightly
def test_a_run_on_spark_is_shown(view: Callable[..., Viewer], spark: Any) -> None:
    with shown(orders(Prices()), runtime=SparkRuntime, parallelism=2, spark=spark) as run:
        wait_until(lambda: run.handle.progress.tick > 3)
        seen = view(run.url).ready()
        seen.sees("Spark \N{MULTIPLICATION SIGN} 2")
        seen.show("totals")
        seen.tab.locator(".panel dd", has_text="/s").first.wait_for()
        assert seen.tab.locator("g.stage").count() == 2
        seen.click("Stop")
        seen.tab.locator("dialog button.main").click()
        seen.tab.locator("[data-status=ended]").wait_for()
