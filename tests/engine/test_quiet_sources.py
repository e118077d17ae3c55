"""The sources that emitted nothing in a tick, and the time that passed between ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from malflow.engine.idle_epochs import QuietSources

START = datetime(2026, 1, 1, tzinfo=UTC)
PARTS = {"a": [["x"], ["y"]], "b": [[], ["z"]]}
ALL = {("a", 0), ("a", 1), ("b", 1)}


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def test_before_the_first_tick_all_are_quiet_and_no_time_has_passed() -> None:
    sources = QuietSources(PARTS)
    sources.begin_tick(at(100))
    assert sources.quiet == ALL
    assert (sources.passed, sources.quiet_time) == (timedelta(0), timedelta(0))


def test_time_passes_from_tick_to_tick() -> None:
    sources = QuietSources(PARTS)
    seen = []
    for second in (100, 103, 110, 111):
        sources.begin_tick(at(second))
        seen.append((sources.passed.seconds, sources.quiet_time.seconds))
        sources.end_tick([("a", 1)])
    assert seen == [(0, 0), (3, 0), (7, 3), (1, 7)]
    assert sources.quiet == ALL - {("a", 1)}


def test_the_time_of_a_tick_without_polls_does_not_count() -> None:
    sources = QuietSources(PARTS)
    sources.begin_tick(at(0))
    sources.end_tick([("a", 1)])
    sources.begin_tick(at(50))
    sources.skip_tick()
    for second, expected in ((90, (0, 0)), (91, (1, 0)), (93, (2, 1))):
        sources.begin_tick(at(second))
        assert (sources.passed.seconds, sources.quiet_time.seconds) == expected
        assert sources.quiet == ALL


def test_only_workers_with_parts_can_have_finished() -> None:
    assert QuietSources(PARTS).finished({("a", 0)}) == {("a", 1), ("b", 1)}
