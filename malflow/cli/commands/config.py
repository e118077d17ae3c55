"""``malflow config``: show and check the configuration of a flow, without running it; nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click

from malflow.cli.output.exits import Exit, Leave
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import FLOW, FlowCommand, output_options, script_arguments
from malflow.cli.output.output import Output
from malflow.cli.running.adapting import with_defaults
from malflow.cli.running.configuration import Configuration, config_options
from malflow.cli.running.inspection import inspect_script
from malflow.cli.running.script import Target, parsed
from malflow.config import (
    Settings,
    faults_document,
    schema,
    settings_document,
    settings_text,
    shown_settings,
    toml_text,
)
from malflow.errors import ConfigError, ConfigFault
from malflow.graph import Graph
from malflow.runtime.base import Runtime, declared_by
from malflow.streams.stream import StreamProvider
from malflow.words import plural

__all__ = ["config"]

_FLOW = click.argument("flow", type=FLOW, required=False)
_CALL = click.option("--call", type=click.IntRange(1), default=1, metavar="N", help="The script's N-th run.")


@click.group(short_help="Show and check the configuration of a flow.")
def config() -> None:
    """Show and check the configuration of a flow; nothing is written.

    With FLOW, the script runs up to its first execute(), to read the settings of that run; `flow.py:build` avoids
    that. Without FLOW, the settings are from this folder, and nothing runs.
    """


@config.command(cls=FlowCommand, short_help="Show the settings, and where each was written.")
@_FLOW
@script_arguments
@click.option("--toml", is_flag=True, help="Write them as a configuration file, without secrets.")
@click.option("--all", "everything", is_flag=True, help="Show defaults too.")
@_CALL
@config_options
@output_options
def show(
    flow: str | None,
    arguments: tuple[str, ...],
    toml: bool,
    everything: bool,
    call: int,
    output: Output,
    configuration: Configuration,
) -> None:
    """Show the settings that differ from the defaults: the value, where it was written, and the values that it hides.

    Secrets are shown as ***.
    """
    if toml and output.json:
        raise click.UsageError("--toml and --json are two forms; leave one out")

    def shown(settings: Settings) -> int:
        if output.json:
            click.echo(json.dumps(settings_document(settings), ensure_ascii=False))
        else:
            click.echo(toml_text(settings) if toml else settings_text(settings, defaults=everything), nl=False)
        return Exit.DONE

    target = _target(flow)
    write_log(output)
    settings = configuration.settings(target)
    if target is None:
        shown(settings)
    else:
        name = target.job

        def look(runtime: Runtime) -> int:
            return shown(with_defaults(settings, runtime, name).over(runtime))

        inspect_script(target, arguments, look, output, call)


@config.command(cls=FlowCommand, short_help="Find all mistakes in the settings.")
@_FLOW
@script_arguments
@_CALL
@config_options
@output_options
def check(
    flow: str | None, arguments: tuple[str, ...], call: int, output: Output, configuration: Configuration
) -> None:
    """Find all mistakes in the settings; they end the command with exit code 4.

    With FLOW, also settings that the script refuses, and operators that it lacks.
    """
    target = _target(flow)
    write_log(output)
    found = configuration.faults(target)
    if found:
        raise Leave(_told(found, output))
    settings = configuration.settings(target)
    if target is None:
        _say_valid(settings, output)
    else:

        def look(runtime: Runtime) -> int:
            of_flow = _faults_of(settings, runtime)
            if of_flow:
                return _told(of_flow, output)
            return _say_valid(settings, output)

        inspect_script(target, arguments, look, output, call)


@config.command("schema", short_help="Print the JSON schema of the file.")
def print_schema() -> None:
    """Print the JSON schema of malflow.toml, for editors."""
    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))


def _target(flow: str | None) -> Target | None:
    return None if flow is None else parsed(flow)


def _faults_of(settings: Settings, runtime: Runtime) -> list[ConfigFault]:
    """Return the faults of settings for a runtime of a script: of its options, and of its operators."""

    def build() -> None:
        settings.configured(declared_by(runtime).build_dataflow)(StreamProvider(Graph()))

    steps: Sequence[Callable[[], object]] = (lambda: settings.apply_to(runtime), build)
    found: list[ConfigFault] = []
    for step in steps:
        try:
            step()
        except ConfigError as error:
            found += error.faults
    return found


def _told(faults: Sequence[ConfigFault], output: Output) -> int:
    if output.json:
        click.echo(json.dumps(faults_document(faults), ensure_ascii=False))
        return Exit.CONFIGURATION
    raise ConfigError(faults)


def _say_valid(settings: Settings, output: Output) -> int:
    if output.json:
        click.echo(json.dumps(faults_document(()), ensure_ascii=False))
        return Exit.DONE
    place = settings.file or "no file"
    profile = f" with profile '{settings.profile}'" if settings.profile else ""
    output.write(f"{place}{profile}: {plural(len(shown_settings(settings, defaults=False)), 'setting')}, no mistakes")
    return Exit.DONE
