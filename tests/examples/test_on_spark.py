"""The flights on Spark."""

from __future__ import annotations

from typing import Any

import pytest

from examples import on_spark


@pytest.mark.spark
def test_the_flights_come_to_the_same_on_spark(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    on_spark.main()
    assert capsys.readouterr().out == (
        "           on Spark        on one thread\n"
        "hours      1,762 keys           1,762 keys  equal\n"
        "carriers      16 keys              16 keys  equal\n"
        "late           3 keys               3 keys  equal\n"
        "cancelled      3 keys               3 keys  equal\n"
        "26,483 flights left\n"
    )
