"""The faults that stores and servers of the tests inject, by their names in `malflow.testing`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALWAYS", "ArmedFaults", "Fault"]

ALWAYS = 1 << 30
"""As `times` of a fault: until it is cleared."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one operation, or of several in a row.

    These kinds mean the same everywhere, the first six also in `malflow.testing.Fault`. Who injects faults documents
    the kinds of its own.

    =================================  =================================================================================
    ``crash_before``, ``crash_after``  the process ends before or after the operation is done
    ``error_before``                   an error; the operation is not done
    ``error_after``                    the operation is done, then an error
    ``throttled``                      a transient error; the operation is not done
    ``late``                           no answer; the operation is done when it is released
    =================================  =================================================================================

    Attributes:
        kind: its kind.
        operation: the method of a store, or of HTTP.
        target: a part of the path, or of what stands for it; empty for any.
        nth: how many matching operations succeed before, counted from when the fault was armed.
        times: how many matching operations fail from then on.
        release_after: of a late write: before which later call that can tell it is done, 0 being the next: those about
            its key, and lists of its folder. None waits for a release.
        seconds: of a delay: how long it is.
        message: the text of the error, instead of the usual one.
    """

    kind: str
    operation: str
    target: str = ""
    nth: int = 0
    times: int = 1
    release_after: int | None = None
    seconds: float = 0
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind} of {self.operation} {self.target} {self.nth}"

    def matches(self, operation: str, path: str) -> bool:
        """Whether it is a fault of such an operation."""
        return operation == self.operation and self.target in path


class ArmedFaults:
    """Faults that are armed, and those that have fired, in order."""

    def __init__(self) -> None:
        self.fired: list[Fault] = []
        self._armed: list[Fault] = []
        self._met: list[int] = []

    def arm(self, fault: Fault) -> None:
        """Inject a fault from now on."""
        self._armed.append(fault)
        self._met.append(0)

    def clear(self) -> None:
        """Inject no more faults."""
        self._armed.clear()
        self._met.clear()

    def take(self, operation: str, path: str) -> Fault | None:
        """Count an operation for each fault that it matches; return the first fault that is due, if any."""
        due = None
        for at, fault in enumerate(self._armed):
            if fault.matches(operation, path):
                if due is None and 0 <= self._met[at] - fault.nth < fault.times:
                    due = fault
                self._met[at] += 1
        if due is not None:
            self.fired.append(due)
        return due
