"""Log records, warnings and printed text of worker processes, passed on to the process that started the run."""

from __future__ import annotations

import io
import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO, assert_never

from malflow.runtime.processes.messages import Logged, Printed, Setup, Warned
from malflow.sinks.stdout import discard_output
from malflow.words import short_repr

__all__ = [
    "deliver_side",
    "finish_lines",
    "forward_all",
    "install_filters",
    "levels_of_loggers",
    "logging_disabled",
    "pickled_filters",
]

_Send = Callable[[object], None]


# In a worker process


def forward_all(setup: Setup, send: _Send, workers: Callable[[], str]) -> None:
    """Forward everything that user code logs, prints or warns of in this process.

    Args:
        setup: the levels of the loggers in the process that started the run.
        send: sends a message to it.
        workers: returns the numbers of the workers in this process, as text.
    """
    forwarder, shown = _Forwarder(send, workers), warnings.showwarning
    logging.root.addHandler(forwarder)
    for name, (level, propagates) in setup.levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = propagates
    logging.disable(setup.disabled)
    sys.stdout = _Printer("stdout", send, workers)
    sys.stderr = _Printer("stderr", send, workers)

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        if not (_is_picklable(message) and _is_picklable(category)):
            message, category = str(message), next(filter(_is_picklable, category.__mro__))
        send(Warned(message, category, filename, lineno))

    warnings.showwarning = show  # type: ignore[assignment] # it takes all that Python passes

    def restore() -> None:
        """Make a child that user code forks write by itself: the connection is its parent's."""
        logging.root.removeHandler(forwarder)
        warnings.showwarning = shown
        for name, usual in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
            if isinstance(getattr(sys, name), _Printer):
                setattr(sys, name, usual)

    os.register_at_fork(after_in_child=restore)


def install_filters(pickled: Iterable[bytes]) -> None:
    """Install the filters of warnings, without importing modules for their categories: a program may not need them."""
    filters = []
    for data in pickled:
        action, message, categories, module, line = pickle.loads(data)  # noqa: S301 - of this run
        first, *others = (_category(*it) for it in categories)
        filters.append((action, message, (first, *others) if others else first, module, line))
    warnings.filters[:] = filters  # type: ignore[index] # typeshed has a sequence


def _category(module: str, name: str) -> type[Warning]:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else _ByName(name, (Warning,), {"__module__": module, "__qualname__": name})


class _ByName(type):
    """The type of categories of warnings that are not loaded: the class with that name is a subclass."""

    def __subclasscheck__(cls, other: type) -> bool:
        return any((it.__module__, it.__qualname__) == (cls.__module__, cls.__qualname__) for it in other.__mro__)


class _Forwarder(logging.Handler):
    """Sends log records, with the numbers of the process's workers as ``record.worker``."""

    def __init__(self, send: _Send, workers: Callable[[], str]) -> None:
        super().__init__()
        self._send = send
        self._workers = workers

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(Logged(_facts(record, self._workers())))
        except Exception:  # noqa: BLE001 - logging reports it
            self.handleError(record)


def _facts(record: logging.LogRecord, workers: str) -> Mapping[str, Any]:
    """Return the attributes of a record, with text in place of those that can't be pickled."""
    text = record.getMessage()
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    facts = vars(record) | {"msg": text, "args": None, "exc_info": None}
    facts |= {"worker": workers, "processName": f"malflow worker {workers}"}
    return {name: fact if _is_picklable(fact) else short_repr(fact) for name, fact in facts.items()}


def _is_picklable(fact: object) -> bool:
    if isinstance(fact, str | int | float | None):
        return True
    try:
        pickle.loads(pickle.dumps(fact, 5))  # noqa: S301 - just written
    except Exception:  # noqa: BLE001 - classes of the user may raise any
        return False
    return True


class _Printer(io.TextIOBase):
    """A standard stream that sends whole lines, each with the number of its workers in front.

    Its file descriptor is that of the process: what programs write there goes to the same place, without the number.
    """

    encoding = "utf-8"
    errors = "strict"
    mode = "w"
    line_buffering = True
    write_through = False

    def __init__(self, stream: str, send: _Send, workers: Callable[[], str]) -> None:
        self._stream = stream
        self._send = send
        self._workers = workers
        self._line = ""
        self._has_begun = False

    @property
    def name(self) -> str:
        """The name of the stream."""
        return f"<{self._stream}>"

    @property
    def buffer(self) -> io.RawIOBase:
        """The stream of bytes."""
        return _Bytes(self)

    def fileno(self) -> int:
        """Return the file descriptor of the process's own stream.

        Raises:
            UnsupportedOperation: if it is closed.
        """
        own: TextIO | None = getattr(sys, f"__{self._stream}__")
        if own is None:
            raise io.UnsupportedOperation("fileno")
        return own.fileno()

    def reconfigure(self, **_: object) -> None:
        """Ignore settings: lines are sent as soon as they are complete."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        lines = (self._line + text).split("\n")
        self._line = lines.pop()
        if lines:
            self._send(Printed(self._stream, "".join(f"{self._mark()}{line}\n" for line in lines)))
        return len(text)

    def _mark(self) -> str:
        """Return the prefix of a line; it is empty if the beginning of the line was sent."""
        has_begun, self._has_begun = self._has_begun, False
        return "" if has_begun else f"[worker {self._workers()}] "

    def flush(self) -> None:
        """Send the beginning of an unfinished line."""
        if self._line:
            line, self._line = self._line, ""
            self._send(Printed(self._stream, self._mark() + line))
            self._has_begun = True

    def finish(self) -> None:
        """Send an unfinished line."""
        if self._line or self._has_begun:
            self.write("\n")


class _Bytes(io.RawIOBase):
    """The bytes of a standard stream, in UTF-8."""

    def __init__(self, text: _Printer) -> None:
        self._text = text

    def fileno(self) -> int:
        return self._text.fileno()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode(errors="replace"))
        return len(data)


def finish_lines() -> None:
    """Send the unfinished lines of the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Printer):
            stream.finish()


# In the process that started the run


def levels_of_loggers() -> dict[str, tuple[int, bool]]:
    """Return the levels of all loggers by name, the root's under ``""``, and whether they propagate."""
    found = {"": (int(logging.root.level), True)}  # a level may be of an enumeration of the script
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and (logger.level or not logger.propagate):
            found[name] = (int(logger.level), True)
    return found


def logging_disabled() -> int:
    """Return the level up to which logging is disabled."""
    return int(logging.root.manager.disable)


def pickled_filters() -> list[bytes]:
    """Pickle the filters of warnings, each by itself, with the names of their categories."""
    pickled = []
    for action, message, category, module, line in warnings.filters:
        named = [(it.__module__, it.__qualname__) for it in (category if isinstance(category, tuple) else (category,))]
        with suppress(Exception):  # subclasses of texts, with a method of the user's
            pickled.append(pickle.dumps((action, message, named, module, line), 5))
    return pickled


def deliver_side(message: Logged | Printed | Warned) -> None:
    """Pass a message of a worker process to the user's handlers, streams and filters.

    Raises:
        BrokenPipeError: if the reader of a standard stream is gone; further text is dropped.
    """
    match message:
        case Logged(record=facts):
            record = logging.makeLogRecord(dict(facts))
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        case Printed(stream=stream, text=text):
            _write(stream, text)
        case Warned():
            warnings.showwarning(message.message, message.category, message.filename, message.lineno)
        case _:
            assert_never(message)


def _write(stream: str, text: str) -> None:
    """Write what a worker process has printed; as `print` does, drop it if the stream is closed.

    Raises:
        BrokenPipeError: if the reader of the stream is gone.
    """
    target: TextIO | None = getattr(sys, stream)
    if target is None:
        return
    try:
        try:
            target.write(text)
        except UnicodeEncodeError:  # the worker could not know the encoding
            encoding = target.encoding or "ascii"
            target.write(text.encode(encoding, "backslashreplace").decode(encoding))
        target.flush()
    except BrokenPipeError:
        with suppress(OSError):  # a stream of the user's without a file descriptor
            discard_output(target)
        raise
