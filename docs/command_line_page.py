"""Write docs/command_line.md from the commands themselves, their exit codes and the keys of their documents.

`make reference` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from malflow.cli import cli
from malflow.cli.output.documents import KEYS
from malflow.cli.output.exits import Exit
from malflow.cli.output.options import NUMBER

PAGE = Path(__file__).parent / "command_line.md"
COMMON = ("quiet", "verbose", "as_json", "traceback", "color")
"""The options that all commands have; the page lists them once."""

HEAD = """# Command line

`malflow` (or `python -m malflow`) runs dataflows, looks into them, and looks after their state.
`malflow COMMAND --help` shows the same as this page.

```sh
malflow new hello                                # a project: a dataflow that runs, its test, settings, an image
malflow run flow.py                              # as python flow.py, with a word on what begins, resumes and stops
malflow run flow.py -- --day monday              # with arguments of its own
malflow run flow.py --persistence state --snapshots 10s       # keeps its state, and resumes from there the next time
malflow run flow.py --on processes               # on all cores
malflow check flow.py                            # its mistakes; nothing runs
malflow graph flow.py                            # a drawing; nothing runs
malflow snapshots ls state                       # the stored snapshots
malflow state get count once state               # the state of a key
eval "$(malflow completion bash)"                # commands, options and files by the tabulator key
```

## Any script

A flow is a script (`flow.py`), a module (`package.module`), or a function or runtime in one
(`flow.py:build_dataflow`, `package.module:runtime`). A script runs unchanged, as `__main__`, with its own folder
first on `sys.path`. The command acts inside the script's own `execute()` or `start()`:

- `run` lays its options over those of the script's runtime; the script continues after it. A second `execute()`
  gets the same options. `--call 2` leaves out the first one.
- `check` and `graph` build the dataflow, and unwind the script at its first call; `flow.py:build_dataflow` avoids
  running what comes before.
- A script that calls neither runs by its only function that has a `StreamProvider` as its argument, or is named
  `build_dataflow`.

With `--on`, a script's dataflow runs on another runtime; options that this one lacks are an error. `stop()`,
`snapshot()`, `rescale()` and `progress` of the script's own runtime belong to the run.

The first Ctrl-C or SIGTERM stops a run after the current tick, with a last snapshot where state is kept; a second
one ends it at once.

## Errors

An error shows the lines of your own code that lead to it; `--traceback` shows every frame. Under plain
`python flow.py`, set `MALFLOW_TRACEBACK=full` for malflow's frames in an `OperatorError` or `GraphError`.

## Options of all commands

"""

TAIL_OF_CODES = """
A script that exits by itself has its own exit code. Codes are never given another meaning.
"""

DOCUMENTS = """
## JSON

With `--json` a command writes documents, one on a line: results on standard output, and events of a run, its
log and errors on standard error. Each has `malflow` (the version of the documents, 1) and `kind`. Within a
major version, keys are added but never renamed. Times are ISO 8601 in UTC with microseconds
(`2026-03-28T12:00:00.005000Z`), sizes bytes, durations seconds. Keys and values of your records are texts, as
`repr` writes them, shortened. An `error` has `kind`, `message`, `operator`, `key` and `location`.

| kind | keys |
|---|---|
"""

PLUGINS = """
## Commands of other packages

A package adds a command by an entry point of the group `malflow.commands` that names a click command. It is
imported only when it is named; the commands above can't be replaced. `malflow plugins` lists the installed ones,
and whether it loads. """


def page() -> str:
    """Return the text of the page."""
    context = click.Context(cli, info_name="malflow")
    parts = [HEAD + "\n".join(table(common_options())) + "\n"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None and command.callback is not None:
            parts.append("\n".join(described(command, click.Context(command, context, info_name=name), 2)))
    codes = "\n".join(f"| {int(code)} | {code.meaning} |" for code in Exit)
    kinds = "\n".join(f"| `{kind}` | {', '.join(f'`{key}`' for key in keys)} |" for kind, keys in KEYS.items())
    parts.append(
        f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}\n{TAIL_OF_CODES}{DOCUMENTS}{kinds}\n{PLUGINS}"
    )
    return "\n".join(parts)


def described(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yield the lines of a command, and of those in it."""
    path = context.command_path
    yield f"{'#' * level} {path}\n"
    yield from paragraphs(command.help or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from described(inner, click.Context(inner, context, info_name=name), level + 1)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{path} {usage}\n```\n"
    options = [it for it in command.params if isinstance(it, click.Option) and not it.hidden]
    own = [it for it in options if it.name not in COMMON]
    if own:
        yield from table(own)
        yield ""


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one that click leaves as it is becomes a block."""
    for part in text.strip().split("\n\n"):
        if part.startswith("\b\n"):
            yield f"```text\n{part.removeprefix(chr(8)).strip()}\n```\n"
        else:
            yield " ".join(part.split()) + "\n"


def table(options: list[click.Option]) -> Iterator[str]:
    """Yield the table of options."""
    yield "| option | meaning |"
    yield "|---|---|"
    for it in options:
        spelling = ", ".join(sorted(it.opts, key=len))
        value = "" if it.is_flag else f" {value_of(it)}"
        default = f" By default `{it.default}`." if it.show_default and it.default is not None else ""
        repeated = " May be repeated." if it.multiple else ""
        yield f"| `{spelling}{value}` | {(it.help or '')}{repeated}{default} |"


def value_of(option: click.Option) -> str:
    """Return the name of an option's value."""
    if isinstance(option.type, click.Choice):
        return "\\|".join(map(str, option.type.choices))
    return (option.metavar or ("N" if option.type is NUMBER else option.type.name)).replace("|", "\\|")


def common_options() -> list[click.Option]:
    """Return the options that all commands have."""
    run = cli.get_command(click.Context(cli), "run")
    params = [] if run is None else run.params
    return [it for it in params if isinstance(it, click.Option) and it.name in COMMON]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
