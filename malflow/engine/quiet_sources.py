"""The silence of sources: the tick time in which they emitted nothing."""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timedelta

from malflow.engine.part_placement import Parts, Place, places_of

__all__ = ["QuietSources"]

_NONE = timedelta(0)


class QuietSources:
    """The sources that emitted nothing in the last tick of a run, and the time between its ticks.

    Before the first tick, these are all sources, but no time has passed.

    Args:
        parts: the parts of each source that each worker holds.

    Attributes:
        places: all sources and workers that have parts.
        quiet: the sources and workers that emitted nothing in the last tick.
        passed: the time from the start of the previous tick to that of the current one.
        quiet_time: the same for the previous tick.
        heard: the start of the last tick in which a source emitted records, by source and worker.
    """

    def __init__(self, parts: Parts) -> None:
        self.places = self.quiet = places_of(parts)
        self.passed = self.quiet_time = _NONE
        self.heard: dict[Place, datetime] = {}
        self._now: datetime | None = None

    def add(self, parts: Parts, new: Iterable[Place]) -> None:
        """Add parts between two ticks; on their workers, the silence starts over.

        Args:
            parts: the parts of each source that each worker holds.
            new: the sources and workers with new parts.
        """
        self.places = places_of(parts)
        self.quiet = self.quiet.intersection(self.places).difference(new)

    @property
    def has_begun(self) -> bool:
        """Whether there has been a tick."""
        return self._now is not None

    def begin_tick(self, now: datetime) -> None:
        """Record the start of a tick."""
        self.quiet_time, self.passed = self.passed, _NONE if self._now is None else now - self._now
        self._now = now

    def end_tick(self, emitting: Iterable[Place]) -> None:
        """Record which sources emitted records in the tick."""
        emitting = set(emitting)
        self.quiet = self.places - emitting
        if self._now is not None:
            self.heard.update(dict.fromkeys(emitting, self._now))

    def skip_tick(self) -> None:
        """Exclude a tick in which sources were not polled."""
        self.quiet, self.passed, self._now = self.places, _NONE, None

    def finished(self, live: Container[Place]) -> frozenset[Place]:
        """Return the places without unfinished parts."""
        return frozenset(place for place in self.places if place not in live)
