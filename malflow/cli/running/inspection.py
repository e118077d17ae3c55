"""Look at the dataflow of a script without running it: the script runs up to its first `execute` or `start`."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from malflow.cli.output.error_report import code_of_exit, report
from malflow.cli.output.exits import CommandError, Exit, Leave, exit_code
from malflow.cli.output.output import Output
from malflow.cli.running.adapting import adapted, with_defaults
from malflow.cli.running.script import Calls, Target, run_flow, several_calls
from malflow.config import Settings
from malflow.engine.plan import Program
from malflow.errors import MalflowError
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.building import built
from malflow.runtime.hooks import Call
from malflow.words import plural

__all__ = ["Look", "end_process", "inspect_flow", "inspect_script"]

Look = Callable[[Runtime], int]
"""Looks at a runtime of a script, writes the result, and returns the exit code."""

_PATIENCE = 5.0
"""The longest time, in seconds, that functions may take which the script has registered for the end of the process."""


class _Inspected(BaseException):
    """Unwinds the script after the command is done, so its ``with`` and ``finally`` blocks run."""


def inspect_flow(
    target: Target,
    arguments: Sequence[str],
    look: Callable[[Runtime, Program], int],
    output: Output,
    settings: Settings,
    call: int,
) -> None:
    """Build the dataflow of a script with settings, and look at its program; the rest is as in `inspect_script`."""

    def look_at_program(runtime: Runtime) -> int:
        made = adapted(runtime, with_defaults(settings, runtime, target.job))
        return look(made, built(declared_by(made).build_dataflow))

    inspect_script(target, arguments, look_at_program, output, call)


def inspect_script(target: Target, arguments: Sequence[str], look: Look, output: Output, call: int) -> None:
    """Run a script up to a call of `execute` or `start`, and look at the runtime.

    Args:
        target: the flow.
        arguments: the script's own arguments.
        look: looks at the script's own runtime, within its call.
        output: how to write.
        call: the number of the call, from 1.

    Raises:
        Leave: with the exit code of the command.
        CommandError: if there is no such flow, or no such call.
    """
    inspection = _Inspection(target, look, output, call)
    command = click.get_current_context().command_path
    calls = inspection.calls = Calls(inspection.on_call, call, output.say, command=command, looks=True)
    try:
        inspection.run(target, arguments)
    finally:
        if calls.descendants.is_here:
            inspection.tell_of_processes()
    if not calls.descendants.is_here:  # the child of a fork has come to the end of the script
        raise Leave(inspection.code or Exit.DONE)
    if inspection.code is None:
        raise CommandError(
            f"{target.title} called execute() or start() {plural(calls.made, 'time')}; there is no call {call}"
        )
    if _is_waited_for():
        end_process(inspection.code)
    raise Leave(inspection.code)


class _Inspection:
    """The hook of a command that only looks.

    Attributes:
        code: the exit code; None until the dataflow has been looked at.
        calls: the calls of the script.
    """

    calls: Calls

    def __init__(self, target: Target, look: Look, output: Output, call: int) -> None:
        self._target = target
        self._look = look
        self._output = output
        self._call = call
        self.code: int | None = None

    def run(self, target: Target, arguments: Sequence[str]) -> None:
        """Run the script, and note the exit code of an error that it raises."""
        try:
            run_flow(target, arguments, self.calls)
        except _Inspected:
            pass
        except SystemExit as leaving:
            self._left(leaving)
        except (CommandError, Leave):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is told
            if self.code is None:
                report(error, self._output)
                self.code = exit_code(error) if isinstance(error, MalflowError | KeyboardInterrupt) else Exit.FLOW

    def _left(self, leaving: SystemExit) -> None:
        if not self.calls.descendants.is_here:
            raise Leave(code_of_exit(leaving)) from None
        if self.code is None:
            self._output.say(f'{self._target.title} ended before execute(); its own arguments follow "--"')
            raise Leave(leaving.code if isinstance(leaving.code, int) else Exit.UNFORESEEN) from None

    def on_call(self, runtime: Runtime, _call: Call) -> Runtime:
        """Look at the first runtime, and unwind the script."""
        if self.code is None:
            self.code = self._looked_at(runtime)
        if threading.current_thread() is not threading.main_thread():
            self.tell_of_processes()
            end_process(self.code)
        raise _Inspected

    def tell_of_processes(self) -> None:
        """Say which processes of the script would have run something."""
        descendants = self.calls.descendants
        descendants.close()
        for process, call in dict.fromkeys(descendants.calls):
            self._output.say(
                f"{self._target.title} started process {process}, and {call}() there was left out: "
                f"{descendants.command} starts nothing"
            )

    def _looked_at(self, runtime: Runtime) -> int:
        if self._call == 1 and several_calls(self._target):
            self._output.say("this is call 1 of several: --call 2 for the next")
        try:
            return self._look(runtime)
        except Exception as error:  # noqa: BLE001 - whatever the function raises that builds the dataflow is told
            report(error, self._output)
            is_own = isinstance(error, MalflowError | CommandError)
            return exit_code(error) if is_own else Exit.FLOW


def _is_waited_for() -> bool:
    """Whether Python would wait for threads of the script. They may wait for a run that never comes."""
    return any(it is not threading.current_thread() and not it.daemon and it.is_alive() for it in threading.enumerate())


def end_process(code: int) -> NoReturn:
    """End the process without waiting for threads, after the functions that are registered for its end."""
    timer = threading.Timer(_PATIENCE, os._exit, (code,))
    timer.daemon = True
    timer.start()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # its reader has gone
            code = Exit.BROKEN_PIPE
    os._exit(code)
