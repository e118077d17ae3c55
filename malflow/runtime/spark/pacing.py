"""An adaptive limit of records per tick that keeps ticks at about a second, wherever the slow function is."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

__all__ = ["MOST_BYTES", "Pace", "PaceOptions"]

MOST_BYTES: Final = 128 << 20
"""Bytes of records that a worker may send in a stage of a tick: Java and the driver hold them in memory."""

_SECONDS: Final = 1.5
"""The usual duration of a tick. Half: Spark's overhead weighs more; double: results wait longer."""

_FIRST: Final = 32
"""Records of the first tick, over all workers, if ticks may take a second."""

_GROWTH: Final = 64.0
"""The largest growth of the limit in a tick. Less: a slower start; more: one short tick makes the next too long."""

_LEAST_GROWTH: Final = 1.5
"""The growth near the allowed time. Less: the limit stays low for longer; more: it exceeds the time more often."""

_TRUSTED_GROWTH: Final = 8.0
"""The largest growth from one tick to the next that an estimate of the fixed time justifies."""

_RECENT: Final = 16
"""Ticks from which the fixed time is estimated. Fewer: more noise; more: a slower reaction to a change."""

_TOLERATED: Final = 1.75
"""How much longer than allowed a tick may take. Less: noise lowers the limit; more: long ticks stay long."""

_WORTH_IT: Final = 3.0
"""Ticks grow up to this number of seconds to reduce their fixed time to a quarter."""

_HICCUP: Final = 5.0
"""A single tick this much too long lowers the limit at once. Less: hiccups do; more: one more long tick passes."""

_TRY_AFTER: Final = 32
"""Ticks without an estimate until a larger one is tried. Fewer: more long trials; more: a low limit stays longer."""

_SPREAD: Final = 1.5
"""The ratio of record counts among recent ticks from which the fixed time of a tick can be estimated."""


class PaceOptions(NamedTuple):
    """How long ticks may take.

    Attributes:
        pause: the minimum number of seconds from the start of one tick to the next; ticks may take as long.
        latency: the number of seconds that the user wants a tick to take at most; None for the usual time.
    """

    pause: float = 0.0
    latency: float | None = None


class Pace:
    """Adapts the number of records that each worker may poll per tick.

    Besides Spark's own overhead, a tick takes a fixed time plus a time per record. After a tick shorter than allowed,
    the limit grows in proportion; after a longer one it shrinks, but not below the records that take as long as the
    fixed time. Smaller ticks would not reduce that time. If the fixed time is large, ticks may take up to three seconds
    to amortize it. If records are large, the bytes that a worker may send are the limit. A single tick that is slightly
    too long is ignored: the machine may have been busy. With a latency, ticks take no longer than that, but a third of
    their time may always be spent on records.

    Args:
        options: how long ticks may take.
        workers: the number of workers.
        least: the least limit, for operators that process many records in the time of one.

    Attributes:
        limit: the most records that a worker may poll.
        pause: the minimum number of seconds from the start of one tick to the next.
    """

    def __init__(self, options: PaceOptions, workers: int, least: int = 1) -> None:
        self.pause = options.pause
        self._latency = options.latency
        self._seconds = seconds = _SECONDS * max(1.0, options.pause) if options.latency is None else options.latency
        self._least = least
        self.limit = max(least, int(_FIRST * seconds) // workers)
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._fixed = 0.0
        self._has_begun = False
        self._was_long = False
        self._unknown_for = _TRY_AFTER - 2

    def note(self, polled: int, seconds: float, size: int = 0) -> bool:
        """Adapt the limit to the measurements of a tick.

        Args:
            polled: the maximum number of records that a worker polled in the tick.
            seconds: the time taken by its tasks and the driver's sinks.
            size: the maximum number of bytes that a worker sent in a stage of the tick.

        Returns:
            Whether the tick was shorter than allowed only because of the limit.
        """
        is_short = self._note(polled, seconds)
        if polled and size * self.limit > MOST_BYTES * polled:
            self.limit = max(1, MOST_BYTES * polled // size)
            return is_short and 2 * size < MOST_BYTES
        return is_short

    def _note(self, polled: int, seconds: float) -> bool:
        begins, self._has_begun = not self._has_begun, True
        if polled == 0 or (begins and seconds > self._seconds):
            return False  # the first tick may have waited for processes to start
        self._recent.append((polled, seconds))
        is_bound = 2 * polled > self.limit
        if seconds < self._seconds:
            self._was_long = False
            if is_bound:
                growth = max(_LEAST_GROWTH, self._seconds / seconds, min(_TRUSTED_GROWTH, self._share(seconds)))
                self.limit = max(self.limit, int(polled * min(_GROWTH, growth)) + 1)
            return is_bound and 2 * seconds < self._seconds
        share = self._share(seconds)
        was_long, self._was_long = self._was_long, seconds > _TOLERATED * self._allowed
        # each part may yield one record, so a lower limit may have no effect
        fewer = max(self._least, int(polled * share))
        is_too_long = self._was_long and share < 1.0 and (was_long or seconds > _HICCUP * self._seconds)
        if is_too_long and fewer < self.limit:
            self.limit = fewer
        elif is_bound and self._unknown_for >= _TRY_AFTER:
            self._unknown_for = 0
            self.limit = max(self.limit, 2 * polled, int(polled * min(_TRUSTED_GROWTH, share)))
        elif is_bound and seconds < self._allowed:
            self.limit = max(self.limit, int(polled * min(_TRUSTED_GROWTH, share)) + 1)
        return False

    def _share(self, seconds: float) -> float:
        """Return the factor by which the next tick's records may grow, by the estimate of the fixed time."""
        self._estimate()
        return (self._allowed - self._fixed) / max(seconds - self._fixed, 1e-6)

    @property
    def _allowed(self) -> float:
        """The seconds that a tick may take."""
        if self._latency is not None:
            return max(self._latency, _LEAST_GROWTH * self._fixed)
        return max(self._seconds, 2 * self._fixed, min(4 * self._fixed, _WORTH_IT))

    def _estimate(self) -> None:
        """Estimate the fixed time by linear regression over recent ticks, if their record counts differ enough."""
        records = [polled for polled, _ in self._recent]
        self._unknown_for += 1
        if max(records) < _SPREAD * min(records):
            return
        self._unknown_for = 0
        times = [seconds for _, seconds in self._recent]
        mean, mean_time = sum(records) / len(records), sum(times) / len(times)
        spread = sum((it - mean) ** 2 for it in records)
        slope = sum((it - mean) * (at - mean_time) for it, at in self._recent) / spread
        self._fixed = min(max(0.0, mean_time - slope * mean), *times)
