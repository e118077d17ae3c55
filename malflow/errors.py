"""The errors malflow raises.

::

    MalflowError
      GraphError           (ValueError)           the dataflow is malformed; nothing has run
      ConfigError          (ValueError)           the configuration has faults; nothing has run
      UnsupportedOperator  (NotImplementedError)  this runtime cannot run this operator; nothing has run
      OperatorError        (RuntimeError)         user code failed in a named operator; cause chained
      SnapshotError        (RuntimeError)         a snapshot could not be written or read
        SnapshotCorrupt                           a file differs from the one written: torn, modified, unsigned
        SnapshotIncomplete                        a file of a snapshot is missing
        FencedError                               another run has claimed the job
        CommitUnknown                             the store did not confirm whether a snapshot was committed
        StoreError                                the store could not be read or written
      QueryError           (RuntimeError)         a question to a run could not be answered
      RecordsRefused       (ValueError)           an external system refuses records of a sink for good
      RunFailed            (RuntimeError)         the runtime's host failed, not the dataflow; cause chained
        SourceNotReplayable                       a source did not replay its records; no longer raised
      MissingDependency    (ImportError)          an extra is not installed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from malflow.callables import deferred, takes
from malflow.words import class_name, error_line, error_text, qualified_name, short_repr
from malflow.words import plural as many

__all__ = [
    "CommitUnknown",
    "ConfigError",
    "ConfigFault",
    "FencedError",
    "GraphError",
    "MalflowError",
    "MissingDependency",
    "OperatorError",
    "QueryError",
    "RecordsRefused",
    "RunFailed",
    "SnapshotCorrupt",
    "SnapshotError",
    "SnapshotIncomplete",
    "SourceNotReplayable",
    "StoreError",
    "UnsupportedOperator",
    "check_arguments",
    "check_methods",
    "check_not_deferred",
    "class_name",
    "error_text",
    "failures",
    "many",
    "not_imported",
    "offers",
    "qualified_name",
    "release_all",
    "short_repr",
]


class MalflowError(Exception):
    """The base class of all errors that malflow raises.

    Attributes:
        refuses_records: whether an external system, or a sink, refuses records for good; the sink's ``on_error=`` then
            decides about them. False for what may pass, or is about all records: lost connections, rejected passwords,
            missing tables.
    """

    refuses_records: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and all attributes, whatever arguments a subclass takes."""
        return _error_of, (type(self), self.args, vars(self))


def _error_of(kind: type[MalflowError], args: tuple[Any, ...], attributes: dict[str, Any]) -> MalflowError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class RecordsRefused(MalflowError, ValueError):
    """Records that an external system refuses for good; raised by sinks, also a user's, for ``on_error=`` to decide."""

    refuses_records: bool = True


class GraphError(MalflowError, ValueError):
    """The dataflow is malformed; nothing has run.

    Attributes:
        operator: the name of the operator at fault, or None.
        reason: the message without the location.
        location: ``file:line`` of the faulty user code, or None if unknown.
    """

    def __init__(self, message: str, *, operator: str | None = None, location: str | None = None) -> None:
        super().__init__(f"{message} [{location}]" if location else message)
        self.operator = operator
        self.reason = message
        self.location = location


class ConfigFault(NamedTuple):
    """A fault in the configuration of a run; ``str()`` is a line that begins with the place.

    Attributes:
        key: the setting, such as ``run.parallelism``; None for a file as a whole.
        origin: the place where it was written, such as ``malflow.toml:7``; None if nobody wrote it.
        reason: the fault, without secrets.
    """

    key: str | None
    origin: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.reason}" if self.origin else self.reason


class ConfigError(MalflowError, ValueError):
    """The configuration has faults; nothing has run. The message has a line for each.

    Attributes:
        faults: all faults, in the order of the layers.
        key: the setting of the first fault, or None.
        origin: the place of the first fault, or None.
    """

    def __init__(self, faults: Iterable[ConfigFault]) -> None:
        self.faults = tuple(faults)
        lines = [str(fault) for fault in self.faults]
        super().__init__(lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} faults:", *lines]))
        self.key = self.faults[0].key if lines else None
        self.origin = self.faults[0].origin if lines else None


class UnsupportedOperator(MalflowError, NotImplementedError):
    """The chosen runtime cannot run this operator; nothing has run."""


class OperatorError(MalflowError, RuntimeError):
    """User code failed in a named operator; the exception it raised is the cause.

    Attributes:
        operator: the operator's name.
        key, value, timestamp: the record being processed; None if there was no record (see `has_record`).
        has_record: whether a record was being processed.
        callback: the user's function and its location: ``<lambda> (flow.py:12)``; None if no callback failed.
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
        """Pickle all attributes. The error can then cross processes."""
        record = (self.key, self.value, self.timestamp) if self.has_record else None
        return _operator_error, (str(self), self.operator, record, self.callback)


class SnapshotError(MalflowError, RuntimeError):
    """A snapshot could not be written or read."""


class SnapshotCorrupt(SnapshotError):
    """A file of a snapshot is not as it was written: torn, modified, swapped, of another job, or unsigned.

    Attributes:
        name: the file, relative to the job's folder.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class SnapshotIncomplete(SnapshotCorrupt):
    """A file of a snapshot is missing."""


class FencedError(SnapshotError):
    """Another run has claimed the job: this one must stop, and loses its work since its last snapshot."""


class CommitUnknown(SnapshotError):
    """The store did not confirm whether a snapshot was committed; the next run finds out."""


class StoreError(SnapshotError):
    """The store could not be read or written; a failed write has left no data."""


class QueryError(MalflowError, RuntimeError):
    """A question to a run could not be answered; the run itself is not affected.

    Attributes:
        operator: the operator that was asked, or None.
    """

    def __init__(self, message: str, *, operator: str | None = None) -> None:
        super().__init__(message)
        self.operator = operator


class RunFailed(MalflowError, RuntimeError):
    """The runtime's host failed, not the dataflow; the state is that of the last snapshot."""


class SourceNotReplayable(RunFailed):
    """A source did not replay its records in a repeated tick. No longer raised: sources need not replay."""


class MissingDependency(MalflowError, ImportError):
    """An optional dependency is not installed; the message names the extra that provides it."""


def not_imported(needs: str, extra: str, error: ImportError) -> MissingDependency:
    """Return the error about an optional dependency that can't be imported, with the reason if it is installed.

    >>> print(not_imported("the sink needs psycopg", "postgres", ImportError("libpq.so.5: cannot open it")))
    the sink needs psycopg, which can't be imported: libpq.so.5: cannot open it; pip install 'malflow[postgres]'
    """
    lines = str(error).splitlines()
    reason = "" if isinstance(error, ModuleNotFoundError) or not lines else f", which can't be imported: {lines[0]}"
    return MissingDependency(f"{needs}{reason}; pip install 'malflow[{extra}]'")


def check_methods(thing: object, asked_by: str, methods: Iterable[str]) -> None:
    """Check that a duck-typed object has the methods that malflow will call."""
    if isinstance(thing, type):
        raise GraphError(f"{asked_by} needs an instance; got the class {thing.__name__}; write {thing.__name__}(...)")
    for method in methods:
        if not offers(thing, method):
            raise GraphError(f"{asked_by} needs an object with a method {method}(); got {short_repr(thing)}")
        check_not_deferred(thing, asked_by, (method,))


def check_not_deferred(thing: object, asked_by: str, methods: Iterable[str]) -> None:
    """Check that an object's methods run when they are called; ``list_*`` methods may be generators."""
    for method in methods:
        kind = deferred(getattr(thing, method, None), generators=method.startswith("list_"))
        if kind is not None:
            raise GraphError(
                f"{asked_by} needs an object with a plain method {method}(); that of {short_repr(thing)} is {kind}, "
                "which runs nothing when it is called; write it without 'async' and 'yield'"
            )


def check_arguments(method: Callable[..., object], asked_by: str, names: Sequence[str], instead: str) -> None:
    """Check that a method accepts the arguments that it will be called with.

    Args:
        method: the method.
        asked_by: its caller.
        names: the names of the arguments.
        instead: the hint for a method with other parameters.
    """
    if not takes(method, len(names)):
        called = f"{getattr(method, '__name__', 'it')}({', '.join(names)})"
        raise GraphError(
            f"{asked_by} calls {called}, but {short_repr(_owner(method))} takes other arguments; {instead}"
        )


require_methods, refuse_deferred, require_arguments = check_methods, check_not_deferred, check_arguments
"""Their names until checks were named alike."""


def _owner(method: Any) -> object:
    return getattr(method, "__self__", method)


def release_all(releases: Iterable[Callable[[], object]], error: BaseException | None = None) -> None:
    """Call every function, even if others raise; add their errors as notes to `error`, or raise the first.

    Args:
        releases: functions that release a resource.
        error: the exception already being raised, if any.

    Raises:
        BaseException: the first exception raised, with the others as notes, unless there is an `error`. An exception
            that ends the process, such as KeyboardInterrupt, takes precedence.
    """
    first = error
    for release in releases:
        try:
            release()
        except BaseException as failure:  # noqa: BLE001 - the others must be called too; the error is noted or raised below
            if first is None:
                first = failure
                continue
            if isinstance(first, Exception) and not isinstance(failure, Exception):
                first, failure = failure, first
            first.add_note(f"and while closing: {reason_of(failure)}")
    if first is not None and first is not error:
        raise first


class _Process:
    """This process.

    Attributes:
        is_own: whether malflow has started it, or runs in it as Spark's task.
    """

    is_own = False


def own_process() -> None:
    """From now on, report each exception of user code in this process as a failure of its operator."""
    _Process.is_own = True


def failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which a function of the user fails, for an ``except`` clause.

    These are each `Exception`, and the CancelledError of asyncio, although it does not derive from it: a function that
    awaits nothing may raise it too. It is looked up once something has failed, since asyncio is slow to import.

    In processes that malflow owns they are all others too, such as SystemExit: user code can't end the process there.
    """
    if _Process.is_own:
        return tuple(kind for kind in BaseException.__subclasses__() if kind is not GeneratorExit)
    return settled_failures()


def settled_failures() -> tuple[type[BaseException], ...]:
    """Return the `failures` of a process that malflow does not own: those that a policy for bad records can settle."""
    cancelled = getattr(sys.modules.get("asyncio.exceptions"), "CancelledError", None)
    return (Exception,) if cancelled is None else (Exception, cancelled)


def reason_of(error: BaseException) -> str:
    """Return the text of an exception, after its class unless it is an error of malflow; never raises."""
    return error_text(error) if isinstance(error, MalflowError) else error_line(error)


def offers(thing: object, method: str) -> bool:
    """Whether an object implements a method itself, rather than inheriting an abstract one."""
    found = getattr(thing, method, None)
    return callable(found) and not getattr(found, "__isabstractmethod__", False)


def _operator_error(
    message: str, operator: str, record: tuple[Any, Any, Any] | None, callback: str | None
) -> OperatorError:
    return OperatorError(message, operator=operator, record=record, callback=callback)
