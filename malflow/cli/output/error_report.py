"""The report of an error: one paragraph and the user's frames, or a JSON document."""

from __future__ import annotations

import os
import re
import select
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.output import Output
from malflow.cli.output.texts import as_options
from malflow.diagnostics import is_of_malflow
from malflow.errors import ConfigError, GraphError, MalflowError, OperatorError
from malflow.runtime.transport.error_pickles import TracebackElsewhere
from malflow.store.redaction import safe_lines
from malflow.words import error_line, error_text, short_repr

__all__ = ["code_of_exit", "end_of_output", "error_document", "has_lost_reader", "report", "user_frames"]

_MOST_FRAMES = 12
"""The most frames of a traceback; the innermost ones count. Fewer may hide the caller's mistake, more push the message
off the screen."""

_ELSEWHERE = re.compile(r'^ *File "(.+)", line (\d+), in (.+)\n +(.*)$', re.MULTILINE)
_LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for folder in {
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
    }
)


def report(error: BaseException, output: Output, hint: str | None = None) -> None:
    """Write an error on standard error.

    Args:
        error: the error.
        output: how to write.
        hint: a line that follows it.
    """
    if output.json:
        output.document("error", {"error": error_document(error)}, err=True)
        return
    if output.full:
        output.warn("".join(traceback.format_exception(error)).rstrip())
        return
    text = as_options(_message(error)) if isinstance(error, MalflowError) else _message(error)
    output.warn(f"error: {text}", "red")
    for frame in user_frames(error):
        output.warn(f"   {_seen_from_here(frame.filename)}:{frame.lineno}  {(frame.line or frame.name).strip()}")
    if hint:
        output.warn(f"   {hint}")


def error_document(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON values: its kind, message, operator, key (of a record, or a setting) and location."""
    frames = user_frames(error)
    location = getattr(error, "location", None) or (f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None)
    has_key = isinstance(error, OperatorError) and error.has_record
    key = short_repr(getattr(error, "key", None)) if has_key else None
    if isinstance(error, ConfigError):
        key, location = error.key, error.origin
    return {
        "kind": type(error).__name__,
        "message": safe_lines(_message(error)),
        "operator": getattr(error, "operator", None),
        "key": key,
        "location": location,
    }


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        place = f" [{error.filename}:{error.lineno}]" if error.filename else ""
        return f"{error.msg}{place}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, CommandError | MalflowError):
        return error_text(error)
    return "\n".join([error_line(error), *getattr(error, "__notes__", ())])


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of the user's code, of the innermost error that has such; the last one raised it."""
    if isinstance(error, CommandError | ConfigError | SyntaxError | KeyboardInterrupt):
        return []
    found: list[traceback.FrameSummary] = []
    for link in _chain(error):
        found = [it for it in _frames(link) if _is_users(it.filename)] or found
    if isinstance(error, GraphError) and error.location:
        found = found[-1:]
    return found[-_MOST_FRAMES:]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an error; the frames of an error in another process are in its text."""
    if not isinstance(error, TracebackElsewhere):
        return list(traceback.extract_tb(error.__traceback__))
    found = _ELSEWHERE.findall(str(error))
    return [traceback.FrameSummary(file, int(line), name, line=text) for file, line, name, text in found]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ if link.__cause__ is not None or link.__suppress_context__ else link.__context__


def _is_users(file: str) -> bool:
    return not (is_of_malflow(file) or file.startswith(("<frozen ", "<string>", *_LIBRARIES)))


def _seen_from_here(file: str) -> str:
    """Return a file as a path from here, if it is below this folder."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or this folder has been removed
        return str(path) if path.is_absolute() else file


def code_of_exit(leaving: SystemExit) -> int:
    """Return the exit code that Python gives to a SystemExit, and write its text."""
    if leaving.code is None:
        return Exit.DONE
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    click.echo(leaving.code, err=True)
    return Exit.UNFORESEEN


def has_lost_reader(error: BaseException) -> bool:
    """Whether an error says that the reader of standard output has gone, rather than another one."""
    if not isinstance(error, BrokenPipeError) or sys.stdout is None:
        return False
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in watch.poll(0))
    except (OSError, ValueError):
        return False


def end_of_output() -> None:
    """Discard what Python would write at exit, after the reader of standard output has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
