"""SQL expressions agree with Apache Flink, apart from the listed differences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.oracles.sql_cases import CASES, Answer, answer_of_flink, answer_of_malflow

PAGE = (Path(__file__).parent / "DIFFERENCES.md").read_text()
KINDS = {"expression", "type", "error"}
"""Kinds of cases that are run here: about one row at a time."""

NAMES = [name for name, case in CASES.items() if case["kind"] in KINDS]
SOONER = [{"error": "plan"}, {"error": "run"}]
"""What fails for Flink's first row may fail for us before it."""


def agrees(ours: Answer, theirs: Answer) -> bool:
    """Whether two answers are the same."""
    return ours == theirs or [ours, theirs] == SOONER


def plain(answer: Answer) -> Answer:
    """Return an answer with times as texts, as JSON has them."""
    return json.loads(json.dumps(answer, default=str))  # type: ignore[no-any-return]


def test_the_page_lists_the_differences_with_their_reasons() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", PAGE.partition("\n## SQL\n")[2], re.MULTILINE)
    assert dict(rows) == {name: it["differs"] for name, it in CASES.items() if it["slice"] == "12a" and "differs" in it}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [1, 3])
def test_an_answer_is_that_of_flink_or_differs_on_purpose(name: str, workers: int) -> None:
    case = CASES[name]
    ours, theirs = answer_of_malflow(case, workers), answer_of_flink(case)
    if "differs" in case:
        assert not agrees(ours, theirs)
        assert {key: it for key, it in plain(ours).items() if key != "types"} == case["expected"]["malflow"]
        return
    assert agrees(ours, theirs), (ours, theirs)
