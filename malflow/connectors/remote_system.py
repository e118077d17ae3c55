"""A remote system: transient errors, retries, and error texts without secrets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from malflow.checks import checked_seconds
from malflow.connectors.retrying import repeated
from malflow.durations import Duration
from malflow.errors import MalflowError
from malflow.store.redaction import redacted

__all__ = ["RemoteSystem"]

T = TypeVar("T")
E = TypeVar("E", bound=MalflowError)


class RemoteSystem(ABC, Generic[E]):
    """A server or database of a connector. The repr of a subclass shows its address, never a secret.

    Args:
        asked_by: the class that uses it, for messages.
        retry_for: how long to retry a lost connection before the error surfaces.

    Attributes:
        retry_for: the same in seconds.
        error: the class of the error when an action fails.
        refusals: the classes of errors that the client library raises.

    Raises:
        GraphError: if `retry_for` is not a span of time, or negative.
    """

    error: type[E]
    refusals: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, asked_by: str, retry_for: Duration) -> None:
        self._asked_by = asked_by
        self._secrets: Iterable[str] = ()
        self.retry_for = checked_seconds(asked_by, "retry_for", retry_for, may_be_zero=True)

    @staticmethod
    @abstractmethod
    def is_lost(error: BaseException) -> bool:
        """Whether an error comes from the connection or from contention; a retry may then succeed."""

    @staticmethod
    @abstractmethod
    def reason(error: BaseException) -> str:
        """Return the server's error text."""

    def retry(self, action: Callable[[], T], what: str) -> T:
        """Return the result of an idempotent action; retry it for up to `retry_for` while the connection is lost.

        Raises:
            MalflowError: of the class `error`, if it is lost for longer, or the server reports an error.
        """
        try:
            return repeated(action, self.retry_for, self.is_lost, lambda error: self.failure(what, error))
        except self.refusals as error:
            raise self.failure(what, error) from None

    def failure(self, what: str, error: BaseException) -> E:
        """Return an error that names the failed action, the server, and its reason."""
        return self.error(f"{what} failed at {self!r}: {self.without_secrets(self.reason(error))}")

    def without_secrets(self, text: str) -> str:
        """Return a message on one line, without passwords."""
        return redacted(" ".join(text.split()), self._secrets)
