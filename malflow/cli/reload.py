"""``malflow run --reload``: start a flow again, with its state, whenever one of its modules changes.

The run is a child process. After a change, another child finds out whether the new program could start. If it could
not, the old run continues. Otherwise, the old run stops with a snapshot, and the new run begins with that snapshot.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from malflow.cli.exits import Exit
from malflow.cli.modules import Seen, changed_names, modules_in
from malflow.cli.output import Output
from malflow.cli.reloaded import SNAPSHOT_SECONDS
from malflow.cli.serving import CONFIGURED, token_pipe
from malflow.cli.target import Target
from malflow.runtime.processes.spawning import flags_of_interpreter

__all__ = ["REHEARSAL", "Given", "Reloader", "given_to"]

REHEARSAL: Final = "plan"
"""The command that says whether a program could start."""
_TURN: Final = 0.5
"""The seconds between two looks at the modules."""
_SETTLING: Final = 0.1
"""The seconds without another change before the new program is checked."""
_LONGEST_REHEARSAL: Final = 120.0
_PATIENCE: Final = 1.0
"""The seconds that a child has to end by itself after a second signal."""
_OF_ONE_START: Final = frozenset({"restore", "rename", "drop", "replay", "opens"})
"""Options that apply only to the first start; later starts begin with the snapshot of the previous run."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Given:
    """The options and arguments of a command, as they were written.

    Attributes:
        options: the words of each option, by its name in the command.
        arguments: the flow, and the script's own arguments.
    """

    options: Mapping[str, tuple[str, ...]]
    arguments: tuple[str, ...]

    def words(self, names: frozenset[str] | None, without: frozenset[str]) -> list[str]:
        """Return the options and arguments as words of a command line.

        Args:
            names: the options that the command has; None for all.
            without: options that are left out.
        """
        kept = [it for name, it in self.options.items() if name not in without and (names is None or name in names)]
        flow, *others = self.arguments
        return [*(word for words in kept for word in words), flow, "--", *others]


def given_to(context: click.Context, words: Sequence[str]) -> Given:
    """Return the options and arguments of a command from the words after its name."""
    values, _, _ = context.command.make_parser(context).parse_args([*words])
    options: dict[str, tuple[str, ...]] = {}
    for it in context.command.params:
        found = values.get(it.name or "")
        if isinstance(it, click.Option) and isinstance(found, str | bool | list):
            each = found if isinstance(found, list) else [found]
            option = max(it.opts, key=len)
            options[it.name or ""] = (
                (option,) if it.is_flag else tuple(word for value in each for word in (option, str(value)))
            )
    arguments = values.get("arguments")
    return Given(options, (str(values["flow"]), *(arguments if isinstance(arguments, list | tuple) else ())))


class Reloader:
    """The parent process of a flow that starts again after changes.

    Args:
        target: the flow.
        given: the options and arguments of the command.
        output: how to write.
    """

    def __init__(self, target: Target, given: Given, output: Output) -> None:
        self._target = target
        self._given = given
        self._output = output
        self._folder = Path() if target.file is None else target.file.parent
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._code = 0
        self._has_run = False
        self._token = secrets.token_urlsafe(32)  # of the page: a browser stays logged in
        self._signals: list[int] = []
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self) -> int:
        """Run the flow until a signal ends it; return its exit code."""
        with self._noting_signals():
            seen = modules_in(self._folder)
            self._start()
            try:
                while not self._signals:
                    if self._note_end() and self._is_over:
                        return self._code
                    now = modules_in(self._folder)
                    if now != seen:
                        seen = self._changed(seen, now)
                    self._sleep(_TURN)
                return self._end()
            finally:
                self._release()

    @property
    def _is_over(self) -> bool:
        """Whether no edit can help: the command was not understood, or the reader of its output has gone."""
        return self._code == Exit.BROKEN_PIPE or (self._code == Exit.USAGE and not self._has_run)

    # Changes

    def _changed(self, before: Seen, now: Seen) -> Seen:
        """Start the new program if it can start; return the modules that were seen."""
        while not self._signals:
            self._sleep(_SETTLING)
            settled = modules_in(self._folder)
            if settled != now:
                now = settled
                continue
            names = changed_names(before, now)
            if not names:
                return now
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            self._tell("changed", f"{shown} changed", names)
            self._keep_state()
            problem = self._rehearsed()
            if modules_in(self._folder) != now:
                continue  # the program that was checked is not the one that would start
            if problem is None:
                self._restart()
            elif not self._signals:
                self._refuse(problem, names)
            return now
        return now

    def _rehearsed(self) -> str | None:
        """Return the reason why the program could not start; None if it could."""
        from malflow.cli import cli  # noqa: PLC0415 - it loads this module

        context = click.Context(cli)
        command = cli.get_command(context, REHEARSAL)
        names = frozenset(it.name for it in command.params if it.name) if command is not None else frozenset()
        words = self._given.words(names, self._left_out | {"json", "as_json"})
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [*_malflow(), REHEARSAL, *self._default(), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
            )
            deadline = time.monotonic() + _LONGEST_REHEARSAL
            while process.poll() is None and not self._signals and time.monotonic() < deadline:
                self._sleep(_SETTLING)
            if process.poll() is None:
                process.kill()
                process.wait()
                return f"it did not get to its execute() within {_LONGEST_REHEARSAL:g} s"
            if process.returncode == Exit.DONE:
                return None
            told.seek(0)
            return told.read().decode(errors="replace").strip() or f"exit code {process.returncode}"

    def _refuse(self, problem: str, names: Sequence[str]) -> None:
        is_alive = self._child is not None and self._child.poll() is None
        state = "the run before this change continues" if is_alive else "it starts once it is mended"
        self._tell("refused", f"{problem}\n{self._target.title} was not reloaded; {state}", names)

    def _restart(self) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            while child.poll() is None and not self._signals:
                self._sleep(_SETTLING)
        if self._signals:
            return
        self._note_stop()
        self._start()

    # The child

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        words = self._given.words(None, self._left_out)
        serves = {"serve", "opens"} & self._given.options.keys()
        token = [token_pipe(self._token)] if serves else []
        for_page = ["--page-token", *map(str, token)] if token else []
        if serves == {"opens"}:  # which only the first start has
            for_page += ["--serve", CONFIGURED]
        try:
            with theirs:
                number = theirs.fileno()
                command = [*_malflow(), "run", "--reloaded", str(number), *for_page, *self._default(), *words]
                self._child = subprocess.Popen(command, pass_fds=(number, *token))  # noqa: S603 - our own program
        finally:
            for it in token:
                os.close(it)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset({"reload", *(_OF_ONE_START if self._has_run else ())})

    def _default(self) -> list[str]:
        return ["--default-persistence", str(self._folder / ".malflow")]

    def _note_end(self) -> bool:
        """Note that the child has ended by itself; return whether it has."""
        if self._child is None or self._child.poll() is None:
            return False
        code = self._note_stop()
        by = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}" if code else "has ended"
        if not self._is_over:
            self._tell("ended", f"{self._target.title} {by}; it starts again once a module changes", ())
        return True

    def _note_stop(self) -> int:
        """Note and return the exit code of the child, which has ended; without a child, return the last code."""
        child, self._child = self._child, None
        if child is None:
            return self._code
        code = child.wait()
        self._release()
        self._has_run = self._has_run or code == 0
        self._code = code if code >= 0 else 128 - code
        return code

    def _end(self) -> int:
        """End the child after a signal; a second one ends it without a snapshot, a third one at once."""
        self._release()
        child, hard = self._child, None
        while child is not None and child.poll() is None:
            self._sleep(_SETTLING)
            if len(self._signals) > 2:  # noqa: PLR2004 - the third signal
                child.kill()
            elif len(self._signals) > 1:
                hard = hard or time.monotonic() + _PATIENCE
                if time.monotonic() > hard:  # it was sent to this process alone
                    child.send_signal(signal.SIGTERM)
                    hard = time.monotonic() + _PATIENCE
        if child is not None:
            self._code = child.returncode if child.returncode >= 0 else 128 - child.returncode
        return self._code

    def _release(self) -> None:
        """Close the socket, so that the child ends."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, do: str, text: str = "") -> bool:
        """Send a request to the child; return whether it could be sent."""
        if self._child is None or self._child.poll() is not None or self._socket is None:
            return False
        try:
            self._socket.sendall(json.dumps({"do": do, "text": text}).encode() + b"\n")
        except OSError:
            return False
        return True

    def _keep_state(self) -> None:
        """Wait until the child has taken a snapshot, with which the new program will begin."""
        deadline = time.monotonic() + SNAPSHOT_SECONDS
        asked = self._ask("snapshot") and self._socket is not None
        while asked and self._socket is not None and not self._signals and time.monotonic() < deadline:
            ends: list[Any] = [self._socket, self._wakes]
            if select.select(ends, [], [], _SETTLING)[0]:
                with suppress(OSError):
                    self._socket.recv(100)
                return

    # Output and signals

    def _tell(self, event: str, text: str, names: Sequence[str]) -> None:
        if self._output.json:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            facts = {"flow": self._target.title, "at": at, "event": event, "changed": [*names], "message": text}
            self._output.document("reload", facts, err=True)
        elif event != "changed" or not self._output.quiet:
            self._write(text)

    def _write(self, text: str) -> None:
        """Write lines; if the child may have a live view, it writes them itself, above the view."""
        if "live" not in self._given.options or not self._ask("say", text):
            self._output.warn(text)

    def _sleep(self, seconds: float) -> None:
        """Wait; a signal cuts it short."""
        if select.select([self._wakes], [], [], seconds)[0]:
            os.read(self._wakes, 100)

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        def on_signal(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            with suppress(OSError):
                os.write(self._waker, b"\0")

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wakes)
            os.close(self._waker)


def _malflow() -> list[str]:
    """Return the words of a command line that runs malflow as this process does."""
    program = Path(sys.argv[0])
    is_script = program.name.startswith("malflow") and program.is_file()
    return [sys.executable, *flags_of_interpreter(), *([str(program)] if is_script else ["-m", "malflow"])]
