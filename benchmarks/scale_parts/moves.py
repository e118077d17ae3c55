"""How much sooner ticks end after parts have moved from busy workers to idle ones."""

from __future__ import annotations

from random import paretovariate
from statistics import median

from malflow.engine.parts.balance import Balance, Load, Unit

__all__ = ["measure_move"]

_LOOK = 5.0
"""Seconds between two looks at the loads."""

_LOOKS = 1_440
"""The looks of two hours."""


def measure_move(parts: int, workers: int, draws: int, alpha: float) -> dict[str, float]:
    """Return the time of a tick before and after all moves, as a multiple of the least, and the number of moves.

    Parts have loads of Pareto's distribution, and are dealt by their number; each worker has a process of its own. A
    tick waits for the busiest worker. The least time follows from the sum of all loads, or from the largest.
    """
    before, after, moves = [], [], []
    for _ in range(draws):
        rates = [paretovariate(alpha) for _ in range(parts)]
        places = [part % workers for part in range(parts)]
        least = max(sum(rates) / workers, *rates)
        before.append(max(_by_worker(rates, places, workers)) / least)
        moves.append(_move_all(rates, places, workers))
        after.append(max(_by_worker(rates, places, workers)) / least)
    found = {"before": median(before), "after": median(after), "moves": median(moves)}
    return found | {"before, worst": max(before), "after, worst": max(after), "most moves": max(moves)}


def _move_all(rates: list[float], places: list[int], workers: int) -> int:
    """Move parts for two hours; return the number of moves."""
    balance, lanes, moves = Balance(), range(workers), 0
    for look in range(_LOOKS):
        loads = _by_worker(rates, places, workers)
        busy = [Load(load / max(loads), load / max(loads)) for load in loads]  # the others wait for the busiest
        if not balance.is_uneven(_LOOK * look, busy, lanes):
            continue
        units = [Unit("s", part, {"s": [part]}, places[part], rate) for part, rate in enumerate(rates)]
        choice = balance.choose(busy, lanes, units, dict(enumerate(loads)))
        if choice is None:
            break
        places[choice.unit.part] = choice.after
        balance.note_move(choice, _LOOK * look)
        moves += 1
    return moves


def _by_worker(rates: list[float], places: list[int], workers: int) -> list[float]:
    loads = [0.0] * workers
    for place, rate in zip(places, rates, strict=True):
        loads[place] += rate
    return loads
