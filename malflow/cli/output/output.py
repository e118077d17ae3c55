"""How a command writes: lines or JSON, with or without colours."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import click

from malflow.store.redaction import safe_lines

__all__ = ["Color", "Output", "document_line", "is_colored"]

Color = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Output:
    """What a command was asked to write, and how.

    Attributes:
        json: whether results, events and errors are JSON documents.
        quiet: whether to leave out everything but results and errors.
        verbose: whether to write the log.
        full: whether errors show all frames of their tracebacks.
        color: whether to use colours.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    full: bool = False
    color: Color = "auto"

    def say(self, text: str) -> None:
        """Write a line about what happens on standard error, unless it must be quiet."""
        if not self.quiet and not self.json:
            self.warn(text)

    def warn(self, text: str, style: str | None = None) -> None:
        """Write lines on standard error."""
        is_colored_here = is_colored(sys.stderr, self.color)
        safe = safe_lines(text)
        click.echo(click.style(safe, fg=style) if style else safe, err=True, color=is_colored_here)

    def write(self, text: str) -> None:
        """Write lines of a result on standard output."""
        click.echo(text, color=is_colored(sys.stdout, self.color))

    def document(self, kind: str, content: Mapping[str, Any], *, err: bool = False) -> None:
        """Write a JSON document on one line; its keys are in `malflow.cli.output.documents.KEYS`."""
        click.echo(document_line(kind, **content), err=err)

    @classmethod
    def of(cls, arguments: list[str]) -> Output:
        """Return how errors are written, from the arguments of a command. The arguments may not be understood."""
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        wishes = [it.partition("=")[2] for it in own if it.startswith("--color=")]
        color: Color = "always" if wishes == ["always"] else "never" if wishes == ["never"] else "auto"
        return cls(json="--json" in own, full="--traceback" in own, color=color)


def document_line(kind: str, **content: Any) -> str:
    """Return a JSON document on one line; its keys are those of `malflow.cli.output.documents.KEYS`."""
    return json.dumps({"malflow": 1, "kind": kind, **content})


def is_colored(stream: TextIO | None, wish: Color = "auto") -> bool:
    """Whether to use colours on a stream: ``NO_COLOR`` forbids them, ``FORCE_COLOR`` wants them without a terminal."""
    if wish != "auto":
        return wish == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
