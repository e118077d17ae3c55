"""The command line: ``malflow run flow.py`` and the other commands, on any script unchanged.

`main` is what ``malflow`` and ``python -m malflow`` call. Commands are imported when they are named, so that
``malflow --help`` is quick.
"""

from __future__ import annotations

import sys

import click

from malflow.cli.groups import LazyGroup
from malflow.cli.output.exits import Exit, exit_code
from malflow.cli.output.output import Output
from malflow.version import __version__

__all__ = ["cli", "main"]

_COMMANDS = {
    "run": ("malflow.cli.commands.run:run", "Run a flow."),
    "check": ("malflow.cli.commands.check:check", "Build a flow without running it, and list its mistakes."),
    "sql": ("malflow.cli.commands.sql:sql", "Run a query, and show its rows."),
    "plan": ("malflow.cli.commands.plan:plan", "Show the effect of a start on a job's state, without starting."),
    "graph": ("malflow.cli.commands.graph:graph", "Draw a flow without running it."),
    "ps": ("malflow.cli.commands.runs:ps", "List the runs on this machine."),
    "top": ("malflow.cli.commands.top:top", "Watch a run."),
    "why": ("malflow.cli.commands.runs:why", "Say why nothing comes out of a run."),
    "stop": ("malflow.cli.commands.runs:stop", "Stop a run."),
    "rescale": ("malflow.cli.commands.runs:rescale", "Change the number of workers of a run."),
    "snapshots": ("malflow.cli.commands.snapshots:snapshots", "List, check, compare, restore and delete snapshots."),
    "state": ("malflow.cli.commands.state:state", "Read the stored state of a job."),
    "errors": ("malflow.cli.commands.errors:errors", "List, replay and remove dead letters."),
    "config": ("malflow.cli.commands.config:config", "Show and check the configuration of a flow."),
    "plugins": ("malflow.cli.commands.plugins:plugins", "List connectors and commands that are installed."),
    "new": ("malflow.cli.commands.new:new", "Make a new project."),
    "completion": ("malflow.cli.commands.plugins:completion", "Print the completion of a shell."),
}


_HELP = """Run dataflows, look into them, and look after their state.

FLOW is a script that runs a dataflow, unchanged: flow.py. It may also be a module (package.module), or a function
or a runtime in one (flow.py:build).

\b
  malflow new hello                      make a project: hello/flow.py
  malflow run flow.py                    run it
  malflow run flow.py -- --day monday    with arguments of its own
  malflow run flow.py --persistence DIR  keep its state in DIR, and resume
                                         from there the next time
  malflow sql -c "SELECT * FROM 'a.csv'" show the rows of a query
  malflow ps                             the runs of this machine
  malflow stop JOB                       stop one, with its state
"""


@click.group(
    help=_HELP, cls=LazyGroup, commands_by_name=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="malflow")
def cli() -> None:
    """Run dataflows, look into them, and look after their state."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return its exit code; it is what ``malflow`` calls.

    Args:
        arguments: the arguments; None for the arguments of the process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    output = Output.of(given)
    code = _invoked(given, output)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        from malflow.cli.output.error_report import end_of_output  # noqa: PLC0415 - few commands need it

        end_of_output()
        code = Exit.BROKEN_PIPE
    return int(code)


def _without_hidden(error: click.ClickException) -> click.ClickException:
    """Return an error that suggests no hidden options."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    hidden = {name for it in error.ctx.command.params if getattr(it, "hidden", False) for name in it.opts}
    shown = [it for it in error.possibilities or () if it not in hidden]
    return click.NoSuchOption(error.option_name, possibilities=shown, ctx=error.ctx)


def _invoked(arguments: list[str], output: Output) -> int:
    try:
        result = cli.main(arguments, prog_name="malflow", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        _show(_without_hidden(error), output)
        return error.exit_code
    except click.Abort:
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - told as text, with its exit code
        return _told(error, output)
    return result if isinstance(result, int) else Exit.DONE


def _show(error: click.ClickException, output: Output) -> None:
    """Write that a command was not understood."""
    context = getattr(error, "ctx", None)
    if output.json:
        output.document("error", {"error": _usage(error)}, err=True)
        return
    if context is None or not error.format_message() or isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    output.warn(f"{context.get_usage()}\n{context.command_path} --help explains it.\n")
    output.warn(f"error: {error.format_message()}", "red")
    if isinstance(error, click.NoSuchOption) and _has_arguments(context.command):
        output.warn('   arguments of the script follow "--"')


def _has_arguments(command: click.Command) -> bool:
    """Whether a command passes arguments on to a script."""
    return any(it.name == "arguments" for it in command.params)


def _usage(error: click.ClickException) -> dict[str, object]:
    return {
        "kind": type(error).__name__,
        "message": error.format_message(),
        "operator": None,
        "key": None,
        "location": None,
    }


def _told(error: Exception, output: Output) -> int:
    from malflow.cli.output.error_report import report  # noqa: PLC0415 - `malflow --help` needs none
    from malflow.cli.output.exits import Leave  # noqa: PLC0415 - as there

    if not isinstance(error, Leave):
        report(error, output)
    return exit_code(error)
