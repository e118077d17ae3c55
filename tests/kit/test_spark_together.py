"""What one process of pytest-xdist runs."""

from __future__ import annotations

import pytest

from tests.kit.spark_together import scope_of

CONFORMANCE = "tests/conformance/test_sinks.py"
GOLDEN = "tests/golden/test_golden.py"


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        (f"{CONFORMANCE}::test_closed[spark]", "spark"),
        (f"{CONFORMANCE}::test_closed[spark-two_workers-1]", "spark"),
        (f"{CONFORMANCE}::test_closed[once-spark]", "spark"),
        (f"{CONFORMANCE}::test_closed[threads]", CONFORMANCE),
        (f"{CONFORMANCE}::test_spark_is_no_parameter", CONFORMANCE),
        ("tests/conformance/test_file_sinks.py::test_a_sink_goes_on_on_the_other_runtime", "spark"),
        ("tests/spark/test_runs.py::test_nothing_is_left_behind", "spark"),
        ("tests/spark/test_anchors.py::test_places", "tests/spark/test_anchors.py"),
        (f"{GOLDEN}::test_states_of_parts_are_found_where_the_parts_are_dealt[dealt-spark, 4]", "spark"),
        (f"{GOLDEN}::test_golden_files_are_whole", GOLDEN),
        ("malflow/windows.py::malflow.windows.tumbling", "malflow/windows.py"),
    ],
)
def test_tests_on_spark_are_one_scope(test: str, scope: str) -> None:
    assert scope_of(test) == scope
