"""The page of the runs of a command, ``malflow run --serve`` and ``--open``, and the redaction of its records."""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import FlowCommand
from malflow.cli.output.output import Output
from malflow.config import Settings
from malflow.errors import ConfigError, ConfigFault, GraphError
from malflow.monitor.samples import Redact
from malflow.names import thing_at
from malflow.words import error_line, short_repr

if TYPE_CHECKING:
    from malflow.monitor.opentelemetry import Telemetry
    from malflow.serve import Page

__all__ = [
    "ServingCommand",
    "opened_page",
    "redact_of",
    "serve_options",
    "show_in_browser",
    "telemetry_of",
    "token_pipe",
    "with_serve_alone",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_ADDRESS = re.compile(r"([A-Za-z0-9_.-]*:|\[[0-9A-Fa-f:.]+\]:)?[0-9]+")
CONFIGURED: Final = ""
"""The value of ``--serve`` without an address."""


class ServingCommand(FlowCommand):
    """A command with a ``--serve`` that an address may follow, or by the next argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        return super().parse_args(ctx, with_serve_alone(args))


def with_serve_alone(args: list[str]) -> list[str]:
    """Return the arguments, changed to keep a ``--serve`` without an address from taking the next one.

    >>> with_serve_alone(["--serve", "flow.py"]), with_serve_alone(["--serve", "0.0.0.0:80", "flow.py"])
    (['--serve=', 'flow.py'], ['--serve', '0.0.0.0:80', 'flow.py'])
    """
    end = args.index("--") if "--" in args else len(args)
    followed = [at + 1 < end and (args[at + 1] == CONFIGURED or _ADDRESS.fullmatch(args[at + 1])) for at in range(end)]
    alone = [
        f"--serve={CONFIGURED}" if it == "--serve" and not followed[at] else it for at, it in enumerate(args[:end])
    ]
    return [*alone, *args[end:]]


def serve_options(command: _F) -> _F:
    """Add the options of the page."""
    for decorate in (
        click.option("--page-token", type=int, hidden=True),
        click.option("--open", "opens", is_flag=True, help="Open the page in a browser; implies --serve."),
        click.option(
            "--serve", metavar="[HOST:PORT]", help="Show the run in a browser, at 127.0.0.1:8642 or this address."
        ),
    ):
        command = decorate(command)
    return command


def opened_page(settings: Settings, token_from: int | None = None) -> Page:
    """Return a page that listens, with these settings.

    Args:
        settings: the settings.
        token_from: the end of a pipe with a token, for settings that have none; None makes a new token.

    Raises:
        MissingDependency: if its packages are not installed.
        CommandError: if it may not listen at its address, or can't.
    """
    page_class: type[Page] = import_module("malflow.serve").Page  # an extra
    serve = settings.serve
    try:
        page = page_class(
            serve.address,
            control=serve.control,
            token=serve.token or _token_in(token_from),
            metrics_token=serve.metrics_token,
            hosts=serve.hosts,
        )
        page.open()
    except GraphError as error:
        raise CommandError(f"[serve] {error}", Exit.CONFIGURATION) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"the page can't listen at {serve.address}: {reason}", Exit.CONFIGURATION) from None
    return page


def token_pipe(token: str) -> int:
    """Return the end of a pipe from which a child can read a token, since other users can see its arguments."""
    read, write = os.pipe()
    with os.fdopen(write, "w") as end:
        end.write(token)
    return read


def _token_in(pipe: int | None) -> str | None:
    if pipe is None:
        return None
    with os.fdopen(pipe) as end:
        return end.read() or None


def telemetry_of(settings: Settings) -> Telemetry | None:
    """Return the sender of metrics that the settings ask for; None if they ask for none.

    Raises:
        MissingDependency: if its packages are not installed.
    """
    metrics = settings.metrics
    if metrics.otlp is None:
        return None
    sender: type[Telemetry] = import_module("malflow.monitor.opentelemetry").Telemetry  # an extra
    return sender(metrics.otlp, headers=metrics.headers, every=metrics.every, traces=metrics.traces)


def show_in_browser(page: Page, output: Output, *, opens: bool, has_token: bool) -> None:
    """Say where the page is, and open it in a browser if wanted.

    The token is written only to a terminal, never to a log, and not at all if the user has chosen it.

    Args:
        page: the page.
        output: how to write.
        opens: whether to open it in a browser.
        has_token: whether the user has chosen the token.
    """
    if has_token:
        output.say(f"the page is at {page.address}; it asks for the token of [serve]")
    elif sys.stderr.isatty():
        output.say(f"the page is at {page.url}")
    else:
        output.say(
            f"the page is at {page.address}; set MALFLOW_SERVE__TOKEN, since its token is shown in terminals only"
        )
    if opens:
        _open(page, output)


def _open(page: Page, output: Output) -> None:
    """Open the page by a file that only this user can read, since others can see the arguments of a browser.

    The file has a code that works once, within a minute. Then the file is useless, and is removed.
    """
    from malflow.serve.access import CODE_SECONDS  # noqa: PLC0415 - needs aiohttp, as the page does

    try:
        with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="malflow-", delete=False) as file:
            address = f"{page.address}#{page.code()}"
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><title>malflow</title>')
    except OSError as error:
        output.say(f"no browser is opened: {error}")
        return
    timer = threading.Timer(CODE_SECONDS, _remove, (file.name,))
    timer.daemon = True
    timer.start()
    atexit.register(_remove, file.name)
    if not webbrowser.open(Path(file.name).as_uri()):
        output.say("there is no browser to open")
        _remove(file.name)


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()


_SETTING = ("serve", "redact")


def redact_of(settings: Settings) -> Redact | None:
    """Return the configured function; None if there is none.

    Raises:
        ConfigError: if there is no such function.
    """
    text = settings.serve.redact
    if text is None:
        return None
    try:
        thing: Any = thing_at(text)
    except ValueError:
        raise _fault(settings, f"must be module:function, such as flow:mask; got {short_repr(text)}") from None
    except Exception as error:
        raise _fault(settings, f"{text!r} can't be loaded: {error_line(error)}") from error
    if not callable(thing):
        raise _fault(settings, f"{text!r} is not a function; got {short_repr(thing)}")
    found: Redact = thing
    return found


def _fault(settings: Settings, reason: str) -> ConfigError:
    entries = settings.stacks.get(_SETTING, ())
    origin = str(entries[-1].origin) if entries else None
    return ConfigError([ConfigFault("serve.redact", origin, f"serve.redact {reason}")])
