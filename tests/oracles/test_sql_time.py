"""Queries over time agree with Flink SQL: windows, late rows, joins and the first rows of windows."""

from __future__ import annotations

import pytest

from tests.oracles.sql_cases import CASES, answer_of_flink, answer_of_malflow

OF_TIME = [name for name, it in CASES.items() if it["slice"] == "12a" and it["kind"] in {"window", "join"}]

DIFFERENT = {name: it["differs"] for name, it in CASES.items() if "differs" in it}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", OF_TIME)
def test_an_answer_is_that_of_flink(name: str, workers: int, request: pytest.FixtureRequest) -> None:
    if reason := DIFFERENT.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason))
    assert answer_of_malflow(CASES[name], workers) == answer_of_flink(CASES[name])
