"""The cases of a campaign: one after the other until the time is up, each with a seed that repeats it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

__all__ = ["Campaign", "Difference"]


class Difference(AssertionError):
    """Something came out otherwise than it must."""


@dataclass
class Campaign:
    """A part of the campaign, with its seeds and limits.

    Attributes:
        part: the name of what is run.
        seed: the seed of the first case; each further one has the next number.
        seconds: how long cases are begun.
        most: how many cases there are at most.
        size: how large a case is, for parts that have a size.
    """

    part: str
    seed: int
    seconds: float
    most: int | None = None
    size: int | None = None
    cases: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.began > self.seconds or self.cases == self.most

    def seeds(self) -> Iterator[int]:
        """Yield the seeds of the cases until the time is up; there is always one."""
        for seed in count(self.seed):
            yield seed
            if self.is_over:
                return

    def attempt(self, seed: int, case: Callable[[], str]) -> None:
        """Run a case, and print its seed and the outcome."""
        began = time.monotonic()
        try:
            said = case()
        except Exception as error:  # noqa: BLE001 - the other cases are run all the same
            self.failed[seed] = f"{type(error).__name__}: {error}"
            said = f"FAILED\n{traceback.format_exc()}"
        self.cases += 1
        print(f"{self.part} seed={seed} {time.monotonic() - began:.1f} s: {said}", flush=True)

    def summary(self) -> str:
        """Return what was run, and how to run again what failed."""
        minutes = (time.monotonic() - self.began) / 60
        lines = [f"{self.part}: {self.cases} cases in {minutes:.1f} minutes, {len(self.failed)} failed"]
        for seed, error in self.failed.items():
            lines.append(
                f"  python -m tests.campaign {self.part} --seed {seed} --cases 1   # {error.splitlines()[0][:200]}"
            )
        return "\n".join(lines)
