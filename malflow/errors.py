"""The errors malflow raises.

::

    MalflowError
      GraphError           (ValueError)           the dataflow is malformed; nothing has run
      UnsupportedOperator  (NotImplementedError)  this runtime cannot run this operator; nothing has run
      OperatorError        (RuntimeError)         user code failed in a named operator; cause chained
      SnapshotError        (RuntimeError)         a snapshot could not be written or read
        SnapshotCorrupt                           a file is not what was written: torn, changed, swapped, unsigned
        SnapshotIncomplete                        a file that a snapshot needs is not there
        FencedError                               another run has claimed the job
        CommitUnknown                             the store never told whether a snapshot was committed
        StoreError                                the store could not be read or written
      RunFailed            (RuntimeError)         what hosts the dataflow failed; cause chained
        SourceNotReplayable                       a source did not give again what it had given
      MissingDependency    (ImportError)          an extra is not installed
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from malflow.callables import deferred, takes

__all__ = [
    "CommitUnknown",
    "FencedError",
    "GraphError",
    "MalflowError",
    "MissingDependency",
    "OperatorError",
    "RunFailed",
    "SnapshotCorrupt",
    "SnapshotError",
    "SnapshotIncomplete",
    "SourceNotReplayable",
    "StoreError",
    "UnsupportedOperator",
    "offers",
    "refuse_deferred",
    "release_all",
    "require_arguments",
    "require_methods",
    "shown",
    "told",
]


_LONGEST = 200
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _LONGEST
_short.maxdict = 20


class MalflowError(Exception):
    """The root of everything malflow raises on purpose."""


class GraphError(MalflowError, ValueError):
    """The dataflow is malformed; nothing has run.

    Attributes:
        operator: the name of the operator at fault, or None where no operator is.
        location: ``file:line`` of the user's code at fault, or None where it is not known.
    """

    def __init__(self, message: str, *, operator: str | None = None, location: str | None = None) -> None:
        super().__init__(f"{message} [{location}]" if location else message)
        self.operator = operator
        self.location = location


class UnsupportedOperator(MalflowError, NotImplementedError):
    """The chosen runtime cannot run this operator; nothing has run."""


class OperatorError(MalflowError, RuntimeError):
    """User code failed in a named operator; the exception it raised is the cause.

    Attributes:
        operator: the operator's name.
        key, value, timestamp: those of the record at hand; None where no record was (see `has_record`).
        has_record: whether a record was at hand.
        callback: what the user gave, and where: ``<lambda> (flow.py:12)``; None where no callback failed.
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str,
        record: tuple[Any, Any, Any] | None = None,
        callback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.has_record = record is not None
        self.key: Any
        self.value: Any
        self.timestamp: Any
        self.key, self.value, self.timestamp = record if record is not None else (None, None, None)
        self.callback = callback

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that the error travels between processes whole."""
        record = (self.key, self.value, self.timestamp) if self.has_record else None
        return _operator_error, (str(self), self.operator, record, self.callback)


class SnapshotError(MalflowError, RuntimeError):
    """A snapshot could not be written or read."""


class SnapshotCorrupt(SnapshotError):
    """A file of a snapshot is not what was written: torn, changed, swapped, of another job, or without its signature.

    Attributes:
        name: the file, below the job's folder.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that the error travels between processes whole."""
        return _named_error, (type(self), str(self), self.name)


class SnapshotIncomplete(SnapshotCorrupt):
    """A file that a snapshot needs is not there."""


class FencedError(SnapshotError):
    """Another run has claimed the job: this one must stop, and what it did since its last snapshot is void."""


class CommitUnknown(SnapshotError):
    """The store never told whether a snapshot was committed; the next run finds out."""


class StoreError(SnapshotError):
    """The store could not be read or written; what was to be written is not there."""


class RunFailed(MalflowError, RuntimeError):
    """What hosts the dataflow failed, and not the dataflow; state stands as of the last snapshot."""


class SourceNotReplayable(RunFailed):
    """A source did not give again the records that it had given, when a part of a tick had to be done again."""


class MissingDependency(MalflowError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


def require_methods(thing: object, wanted_by: str, methods: Iterable[str]) -> None:
    """Check at once that a duck-typed object has the methods that will be called on it later.

    Raises:
        GraphError: naming the method that is missing.
    """
    if isinstance(thing, type):
        raise GraphError(f"{wanted_by} needs an instance; got the class {thing.__name__}; write {thing.__name__}(...)")
    for method in methods:
        if not offers(thing, method):
            raise GraphError(f"{wanted_by} needs an object with a method {method}(); got {shown(thing)}")
        refuse_deferred(thing, wanted_by, (method,))


def refuse_deferred(thing: object, wanted_by: str, methods: Iterable[str]) -> None:
    """Check that those methods that an object has run when they are called.

    Raises:
        GraphError: naming one that is a coroutine function or, but for what lists something, a generator function.
    """
    for method in methods:
        kind = deferred(getattr(thing, method, None), generators=method.startswith("list_"))
        if kind is not None:
            raise GraphError(
                f"{wanted_by} needs an object with a plain method {method}(); that of {shown(thing)} is {kind}, of "
                "which nothing runs when it is called; write it without 'async' and 'yield'"
            )


def require_arguments(method: Callable[..., object], wanted_by: str, names: Sequence[str], instead: str) -> None:
    """Check at once that a method takes the arguments that it will be given.

    Args:
        method: the method.
        wanted_by: what will call it.
        names: what it will be given.
        instead: what to write where it takes another number of them.

    Raises:
        GraphError: if it does not.
    """
    if not takes(method, len(names)):
        called = f"{getattr(method, '__name__', 'it')}({', '.join(names)})"
        raise GraphError(f"{wanted_by} calls {called}, and that of {shown(_owner(method))} takes others; {instead}")


def _owner(method: Any) -> object:
    return getattr(method, "__self__", method)


def release_all(releases: Iterable[Callable[[], object]], error: BaseException | None = None) -> None:
    """Call every function, whatever the others raise; tell what they raised beside `error`, or raise the first.

    Args:
        releases: functions that let go of something.
        error: what is being raised already, if anything.

    Raises:
        BaseException: the first that was raised, with the others in its notes, unless there is an `error` to note them
            in; what ends a process, such as KeyboardInterrupt, goes before what does not.
    """
    first = error
    for release in releases:
        try:
            release()
        except BaseException as failure:  # noqa: BLE001 - the others must be called too; it is told or raised below
            if first is None:
                first = failure
                continue
            if isinstance(first, Exception) and not isinstance(failure, Exception):
                first, failure = failure, first
            first.add_note(f"and while closing: {_named(failure)}")
    if first is not None and first is not error:
        raise first


def shown(thing: object) -> str:
    """Show a user's object in an error: shortened, and never failing itself."""
    try:
        return _short.repr(thing)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not hide the error that is being told
        return f"<{type(thing).__qualname__} whose repr raised {type(error).__name__}>"


def told(error: BaseException) -> str:
    """Return the text of an exception of the user's, whose `str` may fail itself."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - a broken __str__ must not hide the error that is being told
        return f"<its str raised {type(worse).__name__}>"


def _named(error: BaseException) -> str:
    return told(error) if isinstance(error, MalflowError) else f"{type(error).__name__}: {told(error)}"


def offers(thing: object, method: str) -> bool:
    """Tell whether an object has a method of its own, and not only a contract's abstract one."""
    found = getattr(thing, method, None)
    return callable(found) and not getattr(found, "__isabstractmethod__", False)


def _operator_error(
    message: str, operator: str, record: tuple[Any, Any, Any] | None, callback: str | None
) -> OperatorError:
    return OperatorError(message, operator=operator, record=record, callback=callback)


def _named_error(kind: type[SnapshotCorrupt], message: str, name: str) -> SnapshotCorrupt:
    return kind(message, name=name)
