"""The log of a command, on standard error, unless the script has a log of its own."""

from __future__ import annotations

import logging

from malflow.cli.output import Output

__all__ = ["write_log"]


class _Lines(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self._before = [*logging.getLogger().handlers]

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers != self._before:
            return  # the script's own handlers write it
        try:
            text = record.getMessage()
            if record.exc_info:
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        except Exception:  # noqa: BLE001 - a record that can't be written must not end the run
            self.handleError(record)
            return
        if self._output.json:
            self._output.document("log", {"level": record.levelname.lower(), "message": text}, err=True)
        else:
            self._output.warn(f"{record.levelname.lower()}: {text}")


def write_log(output: Output) -> None:
    """Write the warnings of malflow, and with ``-v`` all of its log."""
    log = logging.getLogger("malflow")
    log.addHandler(_Lines(output))
    if output.verbose and log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
