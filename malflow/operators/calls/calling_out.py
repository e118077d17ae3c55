"""The logic of a `map_async`, which the workers of a process share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from malflow.operators.calls.call_options import CallOptions
from malflow.operators.contract import Operator, OperatorContext

if TYPE_CHECKING:
    from malflow.operators.calls.map_async import Outside

__all__ = ["CallingOut"]


class CallingOut:
    """Makes the operators of a `map_async`. Those in one process share a client, threads, a rate and a breaker.

    Args:
        options: how the function is called.
    """

    def __init__(self, options: CallOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._outside: Outside | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the options; another process has a client of its own."""
        return CallingOut, (self.options,)

    def __call__(self, context: OperatorContext) -> Operator:
        """Return the operator of a worker."""
        from malflow.operators.calls.map_async import MapAsync  # noqa: PLC0415 - asyncio is slow to import

        return MapAsync(context, self)

    def join(self, context: OperatorContext) -> Outside:
        """Return the resources that the workers of this process share; the first one opens them."""
        from malflow.operators.calls.map_async import Outside  # noqa: PLC0415 - as above

        with self._lock:
            outside = self._outside
            if outside is None:
                outside = Outside(self.options, context)
                outside.open()
                self._outside = outside
            outside.workers += 1
            return outside

    def leave(self) -> None:
        """Release the shared resources; the last worker of a process closes them."""
        with self._lock:
            outside = self._outside
            if outside is None:
                return
            outside.workers -= 1
            if outside.workers:
                return
            self._outside = None
            outside.close()
