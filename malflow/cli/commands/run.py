"""``malflow run``: run a flow, with other options than its script's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from malflow.cli.output.error_report import code_of_exit, has_lost_reader, report
from malflow.cli.output.exits import CommandError, Exit, Leave, exit_code
from malflow.cli.output.logs import log_as_configured, log_error
from malflow.cli.output.narrator import Limits, LiveRuns, Narrator
from malflow.cli.output.options import FLOW, NUMBER, RENAME, RESTORE, SPAN, output_options, script_arguments
from malflow.cli.output.output import Output
from malflow.cli.running.adapting import (
    Additions,
    adapted,
    default_of,
    folder_of,
    listened,
    with_defaults,
    without_needless_default,
)
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import end_process
from malflow.cli.running.reload import Reloader, given_to
from malflow.cli.running.reloaded import Parent
from malflow.cli.running.script import Calls, Target, parsed, run_flow
from malflow.cli.running.serving import (
    ServingCommand,
    opened_page,
    serve_options,
    show_in_browser,
    telemetry_of,
    with_serve_alone,
)
from malflow.cli.running.signals import signal_shows_progress, signals_stop_runs
from malflow.cli.taking_over import check_rivals
from malflow.config import Settings
from malflow.config.settings import kind_of
from malflow.errors import ConfigError, GraphError, MalflowError
from malflow.monitor import Monitor
from malflow.monitor.monitor import monitored_unless_forbidden
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.hooks import Call
from malflow.words import plural

if TYPE_CHECKING:
    from malflow.serve import Page

__all__ = ["run"]

_WORDS = "malflow.cli.commands.run.words"


class _Run(ServingCommand):
    """The command; it remembers its own words for the command line of a child."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = with_serve_alone(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Run, short_help="Run a flow.", context_settings={"ignore_unknown_options": False})
@click.argument("flow", type=FLOW)
@script_arguments
@click.option("--on", type=click.Choice(["single", "processes", "spark"]), help="Run it on this kind of runtime.")
@click.option("--parallelism", type=NUMBER, help="The number of logical workers.")
@click.option("--persistence", metavar="URL", help="Keep state in this folder or store, such as s3://bucket/state.")
@click.option("--snapshots", type=SPAN, help="Take a snapshot this often; 10s where only a store is named.")
@click.option("--job", help="The name of the job that owns the state.")
@click.option("--restore", type=RESTORE, help="Begin with this snapshot, with the one of a time, or without state.")
@click.option("--recovery", type=click.Choice(["strict", "previous"]), help="What to do about a damaged snapshot.")
@click.option("--rename", type=RENAME, multiple=True, help="An operator with state has another name now.")
@click.option(
    "--drop",
    metavar="NAME",
    multiple=True,
    help="The state of an operator that is gone, or has changed, may be dropped.",
)
@click.option(
    "--sinks",
    type=click.Choice(["exactly_once", "accept_duplicates"]),
    help="What to do if a sink is ahead of the snapshot.",
)
@click.option("--take-over", is_flag=True, help="Take the job over from a run that is alive, without asking.")
@click.option("--debug", is_flag=True, default=None, help="Make checks that are too slow for production.")
@click.option("--count", type=NUMBER, metavar="N", help="Stop when the sources have given N records.")
@click.option("--timeout", type=SPAN, help="Stop after this time.")
@click.option(
    "--tap", multiple=True, metavar="OP", help="Write the records that leave an operator, at most 100 a second."
)
@click.option("--reload", is_flag=True, help="Start it again, with its state, whenever a module beside it changes.")
@click.option("--reloaded", type=int, hidden=True)
@click.option("--live", is_flag=True, help="Show operators, rates and bars below the log.")
@click.option("--replay", multiple=True, metavar="OP", help="First process the dead letters of an operator again.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Write the log as lines of text, or as JSON documents."
)
@click.option("--call", type=NUMBER, default=1, metavar="N", help="Leave out the script's first N-1 runs.")
@click.option("--no-python", is_flag=True, help="Let a file of SQL import no functions: refuse CREATE FUNCTION.")
@serve_options
@config_options
@output_options
def run(flow: str, arguments: tuple[str, ...], output: Output, configuration: Configuration, **options: Any) -> int:
    """Run a flow: a script as it is, or a function of it.

    FLOW is a script (flow.py), a module (package.module), or a function or runtime in one (flow.py:build). A script
    runs as under `python flow.py`; its own arguments follow `--`. Options, and the configuration beside the script,
    override the options of its runtime; others stay.

    Ctrl-C stops the run after the current tick, with a last snapshot where state is kept; a second one ends it at once.
    """
    target = parsed(flow)
    if options["reload"]:
        context = click.get_current_context()
        return Reloader(target, given_to(context, context.meta[_WORDS]), output).run()
    settings, form = log_as_configured(output, options["log_format"], lambda: configuration.settings(target))
    session = _Session(target, output, settings, options, logs_errors=form == "json" and not output.json)
    if options["reloaded"] is None:
        session.open_page()
    python = not options["no_python"]
    calls = Calls(session.on_call, options["call"], output.say, command="malflow run", python=python)
    shows_progress = signal_shows_progress(session.monitors, output)
    around = session.parent.followed(), session.additions.drawing(), _errors_of_threads(session)
    with ExitStack() as stack:
        for within in (*around, signals_stop_runs(session.runs.stop), shows_progress):
            stack.enter_context(within)
        session.run(target, arguments, calls)
    return Exit.DONE


class _Session:
    """The runs of a script under the command.

    Attributes:
        additions: the additions that options make to its runs.
        monitors: the monitors of its runs.
        runs: those that have not ended.
        parent: the process that starts this one again after changes, if there is one.
        code: the exit code of the first error of a thread; None if there was none.
        page: the page that shows them; None without one.
        telemetry: sends their metrics elsewhere; None if they are not sent.
    """

    def __init__(
        self, target: Target, output: Output, settings: Settings, options: dict[str, Any], *, logs_errors: bool
    ) -> None:
        self._target = target
        self._logs_errors = logs_errors
        output = replace(output, quiet=True) if logs_errors else output  # standard error has only documents
        self._output = output
        self._settings = settings
        self._count: int | None = options["count"]
        self._timeout: timedelta | None = options["timeout"]
        self._call: int = options["call"]
        self._takes_over = bool(options["take_over"] or options["reloaded"] is not None)
        self._serves: bool = options["serve"] is not None or options["opens"]
        self._opens: bool = options["opens"]
        self._page_token: int | None = options["page_token"]
        self.additions = Additions(options, settings, output)
        self._narrators: list[Narrator] = []
        self.monitors: list[Monitor] = []
        self._refusal: Exception | None = None
        self.runs = LiveRuns()
        self.parent = Parent(options["reloaded"], self.runs, output, self.additions.let_draw)
        self.code: int | None = None
        self.page: Page | None = None
        self.telemetry = telemetry_of(settings)

    def open_page(self) -> None:
        """Open the page, if there is to be one and it is not open.

        Raises:
            MissingDependency: if its packages are not installed.
            CommandError: if it may not listen at its address, or can't.
        """
        if self._serves and self.page is None:
            self.page = opened_page(self._settings, self._page_token)
            has_token = self._settings.serve.token is not None
            show_in_browser(self.page, self._output, opens=self._opens, has_token=has_token)

    def on_call(self, runtime: Runtime, call: Call) -> Runtime:
        """Return the runtime that runs in place of a script's."""
        self.parent.wait_to_begin()
        if self.parent.is_closed:
            end_process(Exit.DONE)
        if self._refusal is not None:  # the script has caught it, and tries again
            self.tell(self._refusal)
            end_process(exit_code(self._refusal))
        with self._noted():
            self.open_page()  # here, if the run before this one had it at the same address until it ended
            return self._adapted(runtime, call)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note an error of the command's own. A script may catch it."""
        try:
            yield
        except (CommandError, GraphError, ConfigError) as error:
            self._refusal = error
            raise

    def _adapted(self, runtime: Runtime, call: Call) -> Runtime:
        seconds = None if self._timeout is None else self._timeout.total_seconds()
        limits: list[Any] = [] if self._count is None and seconds is None else [Limits(self._count, seconds)]
        settings = with_defaults(self._settings, runtime, self._target.job)
        same = adapted(runtime, settings, self._note, [*self.additions.wanted()])
        options = declared_by(same).options
        check_rivals(options, self._output, may=self._takes_over)
        place = folder_of(options.persistence)
        if place is not None and default_of(without_needless_default(self._settings, runtime)) is not None:
            self._output.say(f"neither the flow nor an option says where to keep state; --reload keeps it in {place}")
        narrator = Narrator(self._target.title, kind_of(options), place, self._output, self.runs)
        narrator.is_apart, narrator.is_live = call == "start", self.additions.area is not None
        self._narrators.append(narrator)
        added = self.additions.take_listeners(kind_of(options))
        own = monitored_unless_forbidden((*options.listeners, narrator, *limits, *added), self.page, self.telemetry)
        self.additions.allow_samples(it for it in own if isinstance(it, Monitor))
        self.monitors += [it for it in own if isinstance(it, Monitor)]
        return listened(same, own)

    def _note(self, error: Exception) -> None:
        self._refusal = error

    def run(self, target: Target, arguments: tuple[str, ...], calls: Calls) -> None:
        """Run the script.

        Raises:
            Leave: with its exit code, if that is not 0.
        """
        try:
            run_flow(target, arguments, calls)
        except SystemExit as leaving:
            if not calls.made and not calls.descendants.calls and calls.descendants.is_here:
                self._output.say(f'{target.title} ended before execute(); its own arguments follow "--"')
            raise Leave(code_of_exit(leaving)) from None
        except (CommandError, Leave):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is told
            if not has_lost_reader(error):
                self.tell(error)
            raise Leave(exit_code(error)) from None
        self._check_end(target, calls)

    def _check_end(self, target: Target, calls: Calls) -> None:
        if not calls.made and calls.descendants.calls:
            self._output.say(
                f"{target.title} ran in a process of its own ({calls.descendants.calls[0].process}), without the "
                "options and the configuration of this command"
            )
        elif calls.made < self._call:
            raise CommandError(
                f"{target.title} called execute() or start() {plural(calls.made, 'time')}; "
                f"there is no call {self._call}"
            )
        if self._refusal is not None:
            raise self._refusal
        if self.runs.are_alive:
            self._output.say(f"{target.title} ended before its run; call await_termination() of what start() returns")
        if self.code is not None:
            raise Leave(self.code)
        if self.additions.reader_is_gone:
            raise Leave(Exit.BROKEN_PIPE)

    def tell(self, error: BaseException) -> None:
        """Write an error of the script."""
        if self._logs_errors:
            log_error(error)
            return
        hints = [it.hint for it in self._narrators if it.hint is not None]
        report(error, self._output, hints[-1] if hints and isinstance(error, MalflowError) else None)


class _errors_of_threads:  # noqa: N801 - used as a function
    """Within the context, an error of malflow that ends a thread of the script is written as others are."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._before: Callable[[Any], object] = threading.excepthook

    def __enter__(self) -> None:
        self._before, threading.excepthook = threading.excepthook, self._on_error

    def __exit__(self, *_error: object) -> None:
        threading.excepthook = self._before

    def _on_error(self, args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if not isinstance(error, MalflowError | CommandError):
            self._before(args)
            return
        self._session.tell(error)
        if self._session.code is None:
            self._session.code = exit_code(error)
        sys.stderr.flush()
