"""The log of a command, on standard error, unless the script has a log of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click

from malflow.cli.output.error_report import error_document
from malflow.cli.output.output import Output
from malflow.monitor import JsonFormatter, RepeatFilter, TextFormatter

if TYPE_CHECKING:
    from malflow.config import Settings

__all__ = ["LogFormat", "log_as_configured", "log_error", "write_log"]

LogFormat: TypeAlias = Literal["text", "json"]

_FORMATTERS: Final[dict[LogFormat, Callable[[], logging.Formatter]]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}


class _Lines(logging.Handler):
    """Writes records; before `begin`, it keeps them, since their format is not known yet."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._before = [*logging.getLogger().handlers]
        self._form: LogFormat | None = None
        self._kept: list[logging.LogRecord] = []
        self.addFilter(RepeatFilter())

    def begin(self, form: LogFormat) -> None:
        """Write the records that were kept, and write all later ones at once."""
        self._form = form
        self.setFormatter(_FORMATTERS[form]())
        kept, self._kept = self._kept, []
        for record in kept:
            self.emit(record)

    def emit(self, record: logging.LogRecord) -> None:
        if self._form is None:
            self._kept.append(record)
        elif logging.getLogger().handlers == self._before:  # otherwise, the script's own handlers write it
            try:
                self._write(record)
            except Exception:  # noqa: BLE001 - a record that can't be written must not end the run
                self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        if self._output.json:
            text = record.getMessage()
            if record.exc_info:
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
            self._output.document("log", {"level": record.levelname.lower(), "message": text}, err=True)
        elif self._form == "json":
            click.echo(self.format(record), err=True)
        else:
            self._output.warn(f"{record.levelname.lower()}: {self.format(record)}")


def write_log(output: Output) -> None:
    """Write the warnings of malflow, and with ``-v`` all of its log, as lines of text."""
    _added(output).begin("text")


def log_as_configured(
    output: Output, wish: LogFormat | None, load: Callable[[], Settings]
) -> tuple[Settings, LogFormat]:
    """Write the log as the settings say, and return both; JSON begins at the level ``info``.

    Args:
        output: how to write; with ``-v``, at least the level ``info``.
        wish: the format that an option asks for; None for the one in the settings.
        load: returns the settings, and may log warnings about them.

    Raises:
        ConfigError: if the settings are wrong.
    """
    handler = _added(output)
    try:
        settings = load()
    except BaseException:
        handler.begin(wish or "text")
        raise
    form = wish or settings.log.format
    if ("log", "level") in settings.stacks or (form == "json" and not output.json):
        level = logging.getLevelNamesMapping()[settings.log.level.upper()]
        logging.getLogger("malflow").setLevel(min(level, logging.INFO) if output.verbose else level)
    handler.begin(form)
    return settings, form


def log_error(error: BaseException) -> None:
    """Write an error of the script to the log, with its operator and its traceback."""
    facts = error_document(error)
    logging.getLogger("malflow").error("%s", facts["message"], extra={"operator": facts["operator"]}, exc_info=error)


def _added(output: Output) -> _Lines:
    log = logging.getLogger("malflow")
    handler = _Lines(output)
    log.addHandler(handler)
    if output.verbose and log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    return handler
