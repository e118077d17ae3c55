"""The policy of an operator for records at which its function fails, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from malflow.callables import deferred, takes
from malflow.errors import GraphError, short_repr

__all__ = ["FAIL", "FATES", "ErrorPolicy", "Failure", "Fate", "OnError", "policy_of"]

Fate = Literal["fail", "skip"]
"""The fate of a record at which a function failed: it ends the run, or it is skipped."""

FATES: tuple[Fate, ...] = ("fail", "skip")


@dataclass(frozen=True, slots=True)
class Failure:
    """A call of a user's function that failed, as a policy sees it.

    Attributes:
        operator: the operator's name.
        key: the key of the record; `NoKey` without one.
        value: its value.
        timestamp: its timestamp.
        error: the exception that the function raised.
    """

    operator: str
    key: Any
    value: Any
    timestamp: Any
    error: Exception


@dataclass(frozen=True, slots=True)
class OnError:
    """The policy of an operator for records at which its function fails.

    Args:
        fate: the fate of such a record, or a function that decides about each `Failure`.

    Raises:
        GraphError: if an argument is invalid.
    """

    fate: Fate | Callable[[Failure], Fate] = "fail"

    def __post_init__(self) -> None:
        if isinstance(self.fate, str):
            if self.fate not in FATES:
                raise GraphError(f"on_error= takes {_WORDS}; got {short_repr(self.fate)}{_near(self.fate)}")
            return
        if not callable(self.fate):
            raise GraphError(f"on_error= takes {_WORDS}; got {short_repr(self.fate)}")
        kind = deferred(self.fate)
        if kind is not None:
            raise GraphError(f"on_error= takes a plain function; got {kind}, which decides nothing when it is called")
        if not takes(self.fate, 1):
            raise GraphError("on_error= calls its function as on_error(failure), but it takes other arguments")

    @property
    def never_passes(self) -> bool:
        """Whether every failure ends the run, so that calls need no guard."""
        return self.fate == "fail"


FAIL = OnError()
"""The default policy: every failure ends the run."""

ErrorPolicy: TypeAlias = Fate | Callable[[Failure], Fate] | OnError
"""The argument ``on_error=`` of operators."""


def policy_of(on_error: ErrorPolicy) -> OnError:
    """Return the policy that an argument ``on_error=`` denotes.

    Raises:
        GraphError: if it denotes none.
    """
    return on_error if isinstance(on_error, OnError) else OnError(on_error)


def _near(word: str) -> str:
    near = get_close_matches(word, FATES, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


_WORDS = f"{', '.join(repr(word) for word in FATES)} or a function of the failure that returns one of these words"
