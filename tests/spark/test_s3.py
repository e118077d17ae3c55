"""Runs with snapshots and changelog on S3."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from malflow import RestartPolicy, SingleThreadRuntime, SparkRuntime
from malflow.errors import StoreError
from malflow.snapshot import FsspecBackend, fsck, snapshots
from tests.kit.faulty_s3 import FaultyS3
from tests.spark.flows import expected_sums, kept_sums, sums

pytestmark = pytest.mark.spark

SECRETS = ("a-secret-key", "an-access-key", "a key to sign with")


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyS3]:
    with FaultyS3() as started:
        yield started


@pytest.mark.nightly
def test_job_on_s3_resumes_with_other_numbers_of_workers(
    spark: Any, server: FaultyS3, caplog: pytest.LogCaptureFixture
) -> None:
    options = server.options
    backend = FsspecBackend(f"s3://{server.bucket}/state", job="sums", storage_options=options, signing_key=SECRETS[-1])
    place: dict[str, Any] = {
        "spark": spark,
        "scratch": f"s3://{server.bucket}/scratch",
        "scratch_options": options,
        "restart": RestartPolicy(0),
    }
    server.inject("throttled", "PUT", "/scratch/")
    server.inject("throttled", "PUT", "/d/")
    SparkRuntime(sums(60), backend, timedelta(seconds=0.5), 2, max_records_per_tick=90, **place).execute()
    assert server.fired == 2
    assert kept_sums(backend) == expected_sums(60)
    SparkRuntime(sums(90), backend, parallelism=3, **place).execute()
    assert kept_sums(backend) == expected_sums(90)
    SingleThreadRuntime(sums(110), backend).execute()
    assert kept_sums(backend) == expected_sums(110)
    assert {2, 3, 1} >= {it.parallelism for it in snapshots(backend)} >= {3, 1}
    assert fsck(backend).problems == ()
    assert server.filesystem().find(f"s3://{server.bucket}/scratch") == []
    server.inject("403", "PUT", "/scratch/", times=99)
    with pytest.raises(StoreError) as refused:
        SparkRuntime(sums(120), backend, parallelism=2, **place).execute()
    server.reset()
    kept = [server.filesystem().cat_file(it) for it in server.filesystem().find(f"s3://{server.bucket}")]
    assert kept
    told = f"{refused.value!r} {refused.value.__cause__!r} {backend!r} {caplog.text} {kept!r}"
    assert [secret for secret in SECRETS if secret in told] == []
