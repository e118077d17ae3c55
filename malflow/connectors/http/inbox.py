"""The queue of received records, and the requests that wait to be acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = ["Inbox"]


@dataclass(frozen=True, slots=True)
class _Received:
    value: Any
    at: datetime
    size: int
    settle: Callable[[bool], object] | None


class Inbox:
    """A bounded queue between the threads of a server and a run.

    Args:
        most: the maximum number of records, including those read and not acknowledged.
        most_bytes: the maximum size of their bodies, in bytes.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._waiting: deque[_Received] = deque()
        self._unsettled: deque[tuple[int, _Received]] = deque()
        self._bytes = 0
        self._last = datetime.min.replace(tzinfo=UTC)
        self.taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, value: Any, size: int, settle: Callable[[bool], object] | None) -> bool:
        """Add a record unless the queue is full; return whether it was added.

        Args:
            value: the record.
            size: bytes of its body.
            settle: called with True once a durable snapshot covers the record, with False if none will.
        """
        with self._lock:
            held = len(self._waiting) + len(self._unsettled)
            if held >= self._most or (held and self._bytes + size > self._most_bytes):
                return False
            self._last = max(self._last, datetime.now(UTC))
            self._waiting.append(_Received(value, self._last, size, settle))
            self._bytes += size
            return True

    def take(self, limit: int) -> tuple[Sequence[Any], Sequence[datetime]]:
        """Return the next records and their times of arrival."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            for received in taken:
                self.taken += 1
                if received.settle is None:
                    self._bytes -= received.size
                else:
                    self._unsettled.append((self.taken, received))
        return [received.value for received in taken], [received.at for received in taken]

    def settle(self, taken: int) -> None:
        """Acknowledge the first records, up to a number of records taken."""
        with self._lock:
            settled = []
            while self._unsettled and self._unsettled[0][0] <= taken:
                received = self._unsettled.popleft()[1]
                self._bytes -= received.size
                settled.append(received)
        _tell(settled, durable=True)

    def give_up(self) -> None:
        """Refuse all requests that wait to be acknowledged. Senders then repeat them."""
        with self._lock:
            left = [received for _, received in self._unsettled]
            left += [received for received in self._waiting if received.settle is not None]
            self._unsettled.clear()
            self._waiting = deque(received for received in self._waiting if received.settle is None)
            self._bytes = sum(received.size for received in self._waiting)
        _tell(left, durable=False)


def _tell(received: list[_Received], *, durable: bool) -> None:
    for one in received:
        if one.settle is not None:
            one.settle(durable)
