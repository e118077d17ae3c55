"""The session that malflow has made in this process, and how many runs use it.

A session belongs to who made it. One of the user's is used and left as it is, whichever thread made it. One that
malflow made serves all runs that start meanwhile, and the last of them stops it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from malflow.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SESSION_USERS", "SessionUsers", "is_alive"]


class SessionUsers:
    """Counts the runs that use the session that malflow has made. Threads may start and end runs at the same time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._session: SparkSession | None = None
        self._conf: Mapping[str, str] = {}
        self._count = 0

    def take(
        self, conf: Mapping[str, str], make: Callable[[Mapping[str, str]], SparkSession]
    ) -> tuple[SparkSession, bool]:
        """Return the session of this process, or a new one; and whether malflow has made it.

        Args:
            conf: the user's settings for a new one.
            make: makes a new one.

        Raises:
            GraphError: if there are such settings, and a session with others.
        """
        with self._lock:
            existing = _existing()
            if existing is None:
                self._session, self._conf, self._count = make(conf), dict(conf), 1
                return self._session, True
            own = self._session is not None and self._session.sparkContext is existing.sparkContext
            others = {name for name, value in conf.items() if not own or self._conf.get(name) != value}
            if others:
                raise GraphError(
                    f"conf has {', '.join(sorted(others))}, but a session exists already; set it where that session "
                    "is made"
                )
            self._count += own
            return existing, own

    def leave(self) -> None:
        """End the use of the session that malflow has made; the last run stops it, unless its Java is gone."""
        with self._lock:
            self._count -= 1
            if self._count or self._session is None:
                return
            session, self._session = self._session, None
            if is_alive(session):
                with suppress(Exception):  # Java may end meanwhile
                    session.stop()


SESSION_USERS: Final = SessionUsers()
"""The runs of this process: PySpark has one Java in a process."""


def _existing() -> SparkSession | None:
    """Return the session that is active in this thread, or else that of this process; None if there is none.

    Spark's active session is that of the thread that made it.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - only the extra has it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    context, made = SparkContext._active_spark_context, SparkSession._instantiatedSession  # noqa: SLF001 - no public way
    if made is not None and made.sparkContext is context:
        return made
    return None if context is None else SparkSession(context)


def is_alive(session: SparkSession) -> bool:
    """Whether a session's Java is running and the session was not stopped."""
    context: Any = session.sparkContext
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()  # noqa: SLF001 - there is no public way
    except Exception:  # noqa: BLE001 - py4j raises various errors for a lost connection
        return False
