"""Sinks whose external system refuses records for good: policies, letters, replays, crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from malflow import OnError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.config import load
from malflow.connectors.http import HttpSink
from malflow.failures import ErrorPolicy
from malflow.snapshot import dead_letters
from malflow.testing import PAUSE, ScriptedSource, assert_sink
from malflow.testing.refusal_laws import REFUSAL_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from tests.bad_records.refusing_service import RefusingService, refusing_service
from tests.kit.backends import at_once

ONLY_REFUSALS = [law for law in SINK_LAWS if law not in REFUSAL_LAWS]


@pytest.fixture
def service() -> Iterator[RefusingService]:
    with refusing_service() as made:
        yield made


def send(
    service: RefusingService, folder: Path, script: list[Any], policy: ErrorPolicy = "fail", **options: Any
) -> None:
    def build(provider: StreamProvider) -> None:
        sink: HttpSink[Any, Any, Any] = HttpSink(service.url, retries=0, **{"delivery": "exactly-once", **options})
        provider.new_stream().source("numbers", ScriptedSource(script)).sink("out", sink, on_error=policy)

    SingleThreadRuntime(build, at_once(folder)).execute()


@pytest.mark.slow
def test_the_laws_of_refusals_hold_for_a_service(service: RefusingService) -> None:
    assert_sink(
        lambda: HttpSink(service.url, batch=7, retries=0, delivery="exactly-once"),
        lambda: service.values,
        refuse=lambda number: -number,
        mend=service.mend,
        without=ONLY_REFUSALS,
    )


@pytest.mark.fault("N18")
def test_a_job_that_failed_continues_with_another_policy(service: RefusingService, tmp_path: Path) -> None:
    script = [1, 2, -3, 4, PAUSE, 5]
    for _ in range(2):
        with pytest.raises(
            OperatorError, match=r"answered 422.*on_error='dead_letter' for sink 'out'.*--set operators"
        ):
            send(service, tmp_path, script)
    assert service.values == []
    send(service, tmp_path, script, "dead_letter")
    assert sorted(service.values) == [1, 2, 4, 5]
    assert [letter.value for letter in dead_letters(at_once(tmp_path), "out")] == [-3]


def test_skipped_records_leave_nothing(service: RefusingService, tmp_path: Path) -> None:
    send(service, tmp_path, [1, -2, 3], "skip")
    assert sorted(service.values) == [1, 3]
    assert not [*dead_letters(at_once(tmp_path), "out")]


def test_a_function_decides_by_the_record_and_the_error(service: RefusingService, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="value -2"):
        send(service, tmp_path, [1, -2], lambda failure: "fail" if failure.value == -2 else "skip")
    send(service, tmp_path / "other", [1, -3], lambda failure: "fail" if failure.value == -2 else "skip")
    assert sorted(service.values) == [1, 1]


@pytest.mark.parametrize("status", [401, 403, 404, 503])
def test_an_answer_about_all_records_makes_no_letters(service: RefusingService, tmp_path: Path, status: int) -> None:
    service.status = status
    with pytest.raises(OperatorError, match=f"answered {status}"):
        send(service, tmp_path, [1, -2], OnError("dead_letter"))
    assert not [*dead_letters(at_once(tmp_path), "out")]


@pytest.mark.fault("N19")
@pytest.mark.slow
def test_a_target_that_refuses_everything_makes_no_letters(service: RefusingService, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"150 of the 150 records of a transaction are refused"):
        send(service, tmp_path, [*range(-150, 0)], "dead_letter")
    assert not [*dead_letters(at_once(tmp_path), "out")]


def test_values_that_are_not_json_are_letters_before_the_snapshot(service: RefusingService, tmp_path: Path) -> None:
    send(service, tmp_path, [1, {2}, 3], "dead_letter")
    assert service.values == [1, 3]
    assert [(letter.value, letter.error) for letter in dead_letters(at_once(tmp_path), "out")] == [
        ({2}, "RecordsRefused")
    ]


@pytest.mark.fault("N20")
def test_a_formatter_that_fails_is_the_sinks_failure(service: RefusingService, tmp_path: Path) -> None:
    send(service, tmp_path, [1, 0, 4], "dead_letter", formatter=lambda msg: 8 // msg.value)
    assert service.values == [8, 2]
    assert [(it.value, it.error) for it in dead_letters(at_once(tmp_path), "out")] == [(0, "ZeroDivisionError")]


def test_delivery_at_least_once_keeps_letters_of_refused_records(service: RefusingService, tmp_path: Path) -> None:
    send(service, tmp_path, [1, -2, 3], "dead_letter", delivery="at-least-once", formatter=lambda msg: msg.value * 2)
    assert sorted(service.values) == [2, 6]
    assert [letter.value for letter in dead_letters(at_once(tmp_path), "out")] == [-2]


def test_a_configured_policy_is_that_of_the_sink(service: RefusingService, tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        sink: HttpSink[Any, Any, Any] = HttpSink(service.url, retries=0, delivery="exactly-once")
        provider.new_stream().source("numbers", ScriptedSource([1, -2])).sink("out", sink)

    file = tmp_path / "malflow.toml"
    file.write_text(f'[run]\npersistence = "{tmp_path}/state"\n[operators.out]\non_error = "dead_letter"\n')
    runtime = load(file, env={}).runtime(build)
    runtime.execute()
    assert service.values == [1]
    assert runtime.progress.counts["out"]["letters"] == 1
