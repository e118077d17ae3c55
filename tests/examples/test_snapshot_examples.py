"""Examples whose state outlives a run or moves, run in this process or killed in others."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import flight_delays_crash, snapshots_failing
from malflow.partitioners import rendezvous_select

pytestmark = pytest.mark.slow

Run = Callable[..., list[str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run an example's main() and return the lines that it and its child processes printed."""

    def run_example(name: str, *arguments: object) -> list[str]:
        importlib.import_module(f"examples.{name}").main(*arguments)
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return run_example


def test_snapshots(run: Run, tmp_path: Path) -> None:
    words = [("once", 0, 1), ("upon", 1, 1), ("a", 2, 1), ("time", 3, 1), ("once", 4, 2), ("more", 5, 1)]

    def counts(already: dict[str, int]) -> list[str]:
        return [f"{{ key: {w!r}, value: {n + already.get(w, 0)}, timestamp: {at} }}" for w, at, n in words]

    first, second = run("snapshots", str(tmp_path)), run("snapshots", str(tmp_path))

    assert first[:6] == counts({})
    assert second[:6] == counts({"once": 2, "upon": 1, "a": 1, "time": 1, "more": 1})
    assert re.fullmatch(r"snapshot \d+: tick \d+, \{'words': 0, 'count': 5\}, \d+ bytes", first[-1])
    assert second[6:-1] == first[6:], "what the first run left stays beside what the second adds"


def test_snapshots_example_uses_the_temporary_folder_by_default(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    for _ in range(2):
        lines = run("snapshots")
    assert [path.name for path in tmp_path.iterdir()] == ["malflow-snapshots"]
    assert lines[4] == "{ key: 'once', value: 4, timestamp: 4 }"


@pytest.mark.nightly
def test_snapshots_failing(run: Run) -> None:
    lines = run("snapshots_failing", 2)
    crashes = [int(match[1]) for line in lines if (match := re.fullmatch(r"crash \d, after snapshot (\d+)", line))]
    left = next(int(match[1].replace(",", "")) for line in lines if (match := re.search(r"had ([\d,]+) of", line)))

    assert 0 < crashes[0] < crashes[1], "each run added snapshots before it was killed"
    assert 0 < left < snapshots_failing.LAST, "the runs that were killed had done some of it"
    assert lines[-2].split(":", 1)[1].strip() == lines[-1].split(":", 1)[1].strip() == "{0: 25005000, 1: 25000000}"


def test_rescaling(run: Run) -> None:
    lines = run("rescaling")
    moves = [
        tuple(map(int, match.groups()))
        for line in lines
        if (match := re.fullmatch(r"(\d) workers: key (\d) moved from (\d) to (\d), at (\d+) with sum (\d+)", line))
    ]
    scales = {4: 2, 1: 4, 3: 1}
    expected = [
        (workers, key, rendezvous_select(key, range(previous)), rendezvous_select(key, range(workers)))
        for workers, previous in scales.items()
        for key in range(10)
    ]

    assert len(moves) == len(lines)
    assert {move[:4] for move in moves} == {move for move in expected if move[2] != move[3]}
    for _, key, _, _, number, total in moves:
        assert total == sum(range(key, number + 1, 10)), "the sum goes on over the move"


def test_flight_delays_crash(run: Run) -> None:
    lines = run("flight_delays_crash")
    killed, resumed = lines[:2]
    after, twice = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", resumed))

    assert re.fullmatch(r"killed at flight 15,000 of 26,483; snapshots until then: [1-9]\d*;", killed)
    assert 0 <= after < flight_delays_crash.CRASH_AT  # 0 where only the snapshot of the start was complete
    assert after + twice == flight_delays_crash.CRASH_AT - 1
    assert "UA         4,605   38,342        4,605   38,342" in lines
    assert lines[-1] == "the totals are equal"


@pytest.mark.nightly
def test_flight_delays_crash_fails_where_the_totals_differ(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_delays_crash, "stream", lambda folder: 0)

    with pytest.raises(SystemExit, match="the process was not killed, or the totals differ"):
        run("flight_delays_crash")
