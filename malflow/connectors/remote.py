"""A remote system: which of its errors pass, how long it is tried again, and what it says without secrets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import ClassVar, Generic, TypeVar

from malflow.connectors.options import require_duration
from malflow.connectors.retrying import repeated
from malflow.errors import MalflowError
from malflow.store.redaction import redacted

__all__ = ["RemoteSystem"]

T = TypeVar("T")
E = TypeVar("E", bound=MalflowError)


class RemoteSystem(ABC, Generic[E]):
    """A server or database of a connector. The repr of a subclass shows where it is, never a secret.

    Args:
        asked_by: the class that asks, for messages.
        retry_for: how long a lost connection is tried again before the error surfaces.

    Attributes:
        retry_for: the same in seconds.
        error: the class of what is raised when an action fails.
        refusals: the classes of what the client library raises.

    Raises:
        GraphError: if `retry_for` is not a timedelta, or negative.
    """

    error: type[E]
    refusals: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, asked_by: str, retry_for: timedelta) -> None:
        require_duration(asked_by, "retry_for", retry_for)
        self._asked_by = asked_by
        self._secrets: Iterable[str] = ()
        self.retry_for = retry_for.total_seconds()

    @staticmethod
    @abstractmethod
    def is_lost(error: BaseException) -> bool:
        """Whether an error is one of the connection or of contention, so that a later attempt may succeed."""

    @staticmethod
    @abstractmethod
    def reason(error: BaseException) -> str:
        """Return the server's error text."""

    def retry(self, action: Callable[[], T], what: str) -> T:
        """Return the result of an idempotent action, repeated while the connection is lost for at most `retry_for`.

        Raises:
            MalflowError: of the class `error`, if it is lost for longer, or the server refuses what is done.
        """
        try:
            return repeated(action, self.retry_for, self.is_lost, lambda error: self.failure(what, error))
        except self.refusals as error:
            raise self.failure(what, error) from None

    def failure(self, what: str, error: BaseException) -> E:
        """Return an error that says what failed, where, and the server's reason."""
        return self.error(f"{what} failed at {self!r}: {self.without_secrets(self.reason(error))}")

    def without_secrets(self, text: str) -> str:
        """Return a message on one line, without passwords."""
        return redacted(" ".join(text.split()), self._secrets)
