"""Every template runs, resumes, and passes its own test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it is documented there

from tests.cli.conftest import Malflow, environment, process
from tests.projects.conftest import Make, interrupted, started

pytestmark = pytest.mark.slow


def check_own_test() -> None:
    """Check that the project's test passes, and that it fails if state is not restored."""
    done = own_test()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def own_test() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=300)


def counts(out: str) -> list[tuple[str, int]]:
    return [(key, int(value)) for key, value in re.findall(r"key: '(\w+)', value: (\d+)", out)]


def test_minimal_project_runs_and_resumes(project: Make) -> None:
    project()
    first, second = interrupted("run", "flow.py"), interrupted("run", "flow.py")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "resumed" in second.err
    counted: dict[str, int] = {}
    for word, count in counts(first.out + second.out):
        counted[word] = counted.get(word, 0) + 1
        assert count == counted[word]
    assert counted["to"] >= 2
    check_own_test()


@pytest.mark.nightly
def test_own_test_finds_a_count_that_is_lost(project: Make) -> None:
    flow = project() / "flow.py"
    broken = (
        flow.read_text()
        .replace("lambda word, _, n: (n + 1, n + 1)", "count")
        .replace(
            "\nTALE =",
            "\nKEPT: dict[str, int] = {}\n\n\ndef count(word, _, n):\n    KEPT[word] = KEPT.get(word, 0) + 1\n"
            "    return KEPT[word], KEPT[word]\n\n\nTALE =",
        )
    )
    assert broken != flow.read_text()
    flow.write_text(broken)
    done = own_test()
    assert done.returncode == 1
    assert "1 failed" in done.stdout


@pytest.mark.nightly
def test_files_project_runs_and_resumes(project: Make) -> None:
    folder = project("files")
    assert process("run", "flow.py").code == 0
    totals = written(folder)
    assert sorted(totals) == [
        ["Bonn", "2026-03-28T00:00:00+00:00", 2, 11.25],
        ["Bonn", "2026-03-29T00:00:00+00:00", 1, 19.9],
        ["Ulm", "2026-03-28T00:00:00+00:00", 2, 42.5],
        ["Ulm", "2026-03-29T00:00:00+00:00", 1, 8.0],
    ]
    (folder / "orders" / "2026-03-31.csv").write_text("at,town,amount\n2026-03-31T09:00:00+00:00,Bonn,3\n")
    done = process("run", "flow.py")
    assert done.code == 0
    assert "warning" not in done.err
    assert [it for it in written(folder) if it not in totals] == [["Ulm", "2026-03-30T00:00:00+00:00", 1, 5.0]]
    assert len(written(folder)) == len(totals) + 1
    check_own_test()


@pytest.mark.nightly
def test_sql_project_runs_and_resumes(project: Make) -> None:
    folder = project("sql")
    readme = (folder / "README.md").read_text()
    assert "malflow run shop.sql" in readme
    assert process("run", "shop.sql").code == 0
    totals = written(folder)
    assert sorted(map(str, totals)) == [
        "{'day': '2026-03-28 00:00:00.000Z', 'town': 'Bonn', 'orders': 2, 'amount': 11.25}",
        "{'day': '2026-03-28 00:00:00.000Z', 'town': 'Ulm', 'orders': 2, 'amount': 42.5}",
        "{'day': '2026-03-29 00:00:00.000Z', 'town': 'Bonn', 'orders': 1, 'amount': 19.9}",
        "{'day': '2026-03-29 00:00:00.000Z', 'town': 'Ulm', 'orders': 1, 'amount': 8.0}",
    ]
    (folder / "orders" / "2026-03-31.csv").write_text("at,town,amount\n2026-03-31T09:00:00+00:00,Bonn,3\n")
    done = process("run", "shop.sql")
    assert done.code == 0
    assert "warning" not in done.err
    assert [it["amount"] for it in written(folder) if it not in totals] == [5.0]
    assert "2 passed" in own_test().stdout


def written(folder: Path) -> list[Any]:
    lines = [line for it in sorted((folder / "totals").glob("[!._]*")) for line in it.read_text().splitlines()]
    return [json.loads(it) for it in lines]


@pytest.mark.nightly
def test_kafka_project_runs_and_resumes(project: Make, kafka_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project("kafka")
    orders, totals = (f"{name}-{uuid4().hex}" for name in ("orders", "totals"))
    settings = folder / "malflow.toml"
    text = settings.read_text().replace("}/orders?", f"}}/{orders}?").replace("}/totals?", f"}}/{totals}?")
    text = text.replace('job = "hello"', f'job = "{orders}"')  # names the transactions
    settings.write_text(text)
    monkeypatch.setenv("BROKERS", kafka_servers)
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for made in admin.create_topics([NewTopic(it, 1, 1) for it in (orders, totals)]).values():
        made.result(60)
    given = [("Ulm", 12), ("Bonn", 7), ("Ulm", 30), ("Bonn", 4), ("Ulm", 8)]
    for part in (given[:3], given[3:]):
        producer = Producer({"bootstrap.servers": kafka_servers, "acks": "all"})
        for town, amount in part:
            producer.produce(orders, json.dumps({"town": town, "amount": amount}))
        assert producer.flush(60) == 0
        done = process("run", "flow.py", "--count", len(part))
        assert done.code == 0, done.err
    sums = [("Ulm", 12), ("Bonn", 7), ("Ulm", 42), ("Bonn", 11), ("Ulm", 50)]
    assert committed(kafka_servers, totals, len(sums)) == sums
    check_own_test()


def committed(servers: str, topic: str, count: int) -> list[tuple[str, int]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = [json.loads(it.value() or b"") for it in consumer.consume(count, 60)]
        assert not consumer.consume(1, 0.5)
        return [(it["town"], it["total"]) for it in found]
    finally:
        consumer.close()


@pytest.mark.spark
def test_spark_project_runs_and_resumes_without_java(project: Make, malflow: Malflow, spark: Any) -> None:
    project("spark")
    done = malflow("run", "flow.py", "--count", 3)
    assert done.code == 0, done.err
    assert "on Spark, 2 workers" in done.err
    found = counts(done.out)
    assert ("be", 2) in found
    resumed = malflow("run", "flow.py", "--on", "single", "--count", 6)
    assert resumed.code == 0, resumed.err
    both = counts(done.out + resumed.out)
    assert len(both) == len({*both})


@pytest.mark.fault("R2")
@pytest.mark.nightly
def test_second_process_of_a_job_takes_it_over(project: Make) -> None:
    project()
    command = (sys.executable, "-m", "malflow", "run", "flow.py", "--snapshots", "200ms")
    with started(*command) as first:
        first.read(20)
        with started(*command) as second:
            second.read(20)
            assert first.process.wait(60) == 7
            done = second.stop()
        assert first.process.stderr is not None
        assert "job 'hello' was claimed by another run" in first.process.stderr.read()
    assert done.code == 0
    assert process("state", "get", "count", "to", ".malflow/hello").out.split()[-1] == str(dict(counts(done.out))["to"])
