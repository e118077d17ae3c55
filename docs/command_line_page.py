"""Write docs/command_line.md from the commands themselves, their exit codes and the keys of their documents.

`make reference` runs it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent

import click

from malflow.cli import cli
from malflow.cli.output.documents import KEYS
from malflow.cli.output.exits import Exit
from malflow.cli.output.options import NUMBER

PAGE = Path(__file__).parent / "command_line.md"
COMMON = ("quiet", "verbose", "as_json", "traceback", "color")
"""The options that all commands have; the page lists them once."""
SHARED = 3
"""The number of commands from which on an option with one text is explained in the page's head.

Of two commands, the second one refers to the first from as many equal options on.
"""
REPEATED = 5
"""The number of keys from which on a kind refers to another one; fewer are as short to repeat."""
EXPLAINED = (
    "FLOW is a script",
    "JOB is a job's name",
    "JOB is the job of a run",
    "PATH-OR-URL is",
    "If there is no such folder",
    "A script runs as under",
    "A script runs up to",
    "The script runs up to",
    "Ctrl-C stops the run",
)
"""The beginnings of sentences that the head of the page says for all commands."""
SENTENCE = re.compile(r"(?<=[.)]) (?=[A-Z])")

HEAD = """# Command line

`malflow` (or `python -m malflow`) runs dataflows, inspects them, and manages their state. `malflow COMMAND --help`
shows the same as this page.

```sh
malflow new hello                                # a project: a dataflow, its test, settings, an image
malflow run flow.py                              # as python flow.py
malflow run flow.py -- --day monday              # with arguments of its own
malflow run flow.py --persistence state --snapshots 10s       # keeps its state, and resumes from there
malflow run flow.py --on processes               # on all cores
malflow check flow.py                            # its mistakes; nothing runs
malflow graph flow.py                            # a drawing; nothing runs
malflow snapshots ls state                       # the stored snapshots
malflow state get count once state               # the state of a key
eval "$(malflow completion bash)"                # completes commands, options and files
```

## Arguments

FLOW is a script (`flow.py`), a module (`package.module`), or a function or runtime in one
(`flow.py:build_dataflow`). A script runs unchanged, as `__main__`, with its own folder first on `sys.path`. The
command acts inside the script's `execute()` or `start()`:

- `run` replaces options of the script's runtime. A second `execute()` gets the same options; `--call 2` leaves out
  the first one.
- `check`, `plan`, `graph` and `config` run the script up to its first call; `flow.py:build_dataflow` avoids that.
- A script without such a call runs by its function `build_dataflow`, or its only function with a `StreamProvider` as
  argument.

With `--on`, the dataflow runs on another runtime; options that it lacks are an error. `stop()`, `snapshot()`,
`rescale()` and `progress` of the script's own runtime belong to the run.

JOB is a run on this machine: a job's name, a pid, or the beginning of a run's id; `top` takes the only run by default.
PATH-OR-URL is the persistence of a job, such as `.malflow` or `s3://bucket/state`. For `errors ls` and `errors show`,
it may be a JOB.

The first Ctrl-C or SIGTERM stops a run after the current tick, with a last snapshot where state is kept; a second one
ends it at once. An error shows the lines of your own code that lead to it. Under plain `python flow.py`, set
`MALFLOW_TRACEBACK=full` for malflow's frames too.

## Options of all commands

"""

HEAD_OF_SHARED = """
## Options of several commands

"""

TAIL_OF_CODES = """
A script that exits by itself has its own exit code. Codes are never given another meaning.
"""

DOCUMENTS = """
## JSON

With `--json` a command writes documents, one on a line: results on standard output, events, log and errors on
standard error. Each has `malflow` (the version of the documents, 1) and `kind`. Within a major version, keys are
added but never renamed. Times are ISO 8601 in UTC with microseconds, sizes bytes, durations seconds. Keys and values
of records are their `repr`, shortened. An `error` has `kind`, `message`, `operator`, `key`, `location`. The kinds and
their keys:

"""

PLUGINS = """
## Commands of other packages

A package adds a click command by an entry point of the group `malflow.commands`. It is imported only when it is
called, and can't replace a command above. `malflow plugins` lists the installed ones. """


def page() -> str:
    """Return the text of the page."""
    context = click.Context(cli, info_name="malflow")
    shared = shared_options(cli, context)
    parts = ["\n".join([HEAD + listed(common_options()), HEAD_OF_SHARED + listed(shared.values()), ""])]
    shown = dict.fromkeys(shared, "")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None and command.callback is not None:
            parts.append("\n".join(described(command, click.Context(command, context, info_name=name), 2, shown)))
    codes = "\n".join(f"- `{int(code)}`: {code.meaning}" for code in Exit)
    kinds = "\n".join(f"- `{kind}`: {keys_of(kind)}" for kind in KEYS)
    parts.append(f"## Exit codes\n\n{codes}\n{TAIL_OF_CODES}{DOCUMENTS}{kinds}\n{PLUGINS}")
    return "\n".join(parts)


def described(command: click.Command, context: click.Context, level: int, shown: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a command, and of those in it; an option that the page has shown is only named.

    `shown` has the command that shows an option, by the option's line, and "" for the head of the page.
    """
    path = context.command_path
    yield f"{'#' * level} {path}\n"
    yield from paragraphs(command.help or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from described(inner, click.Context(inner, context, info_name=name), level + 1, shown)
        return
    if arguments := [it for it in command.collect_usage_pieces(context) if it != "[OPTIONS]"]:
        yield f"Arguments: `{' '.join(arguments)}`.\n"
    own = own_options(command)
    places = Counter(shown.get(line(it)) for it in own)
    named: dict[str, list[str]] = {}
    new = []
    for option in own:
        place = shown.setdefault(line(option), path)
        if place == path or (place and places[place] < SHARED):
            new.append(option)
        else:
            named.setdefault(place, []).append(f"`{max(option.opts, key=len)}`")
    if new:
        yield listed(new) + "\n"
    for place, names in named.items():
        head = f"As for `{place}`:" if place else "Also" if new else "Options:"
        yield f"{head} {', '.join(names)}.\n"


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text, without those about arguments that the page's head explains.

    One that click leaves as it is becomes a block.
    """
    for part in text.strip().split("\n\n"):
        if part.startswith("\b\n"):
            yield f"```text\n{dedent(part.removeprefix(chr(8))).strip()}\n```\n"
        elif kept := " ".join(it for it in SENTENCE.split(" ".join(part.split())) if not it.startswith(EXPLAINED)):
            yield kept + "\n"


def listed(options: Iterable[click.Option]) -> str:
    """Return the list of options."""
    return "\n".join(map(line, options))


def line(option: click.Option) -> str:
    """Return an option's line."""
    spelling = ", ".join(sorted(option.opts, key=len))
    value = "" if option.is_flag else f" {value_of(option)}{'...' if option.multiple else ''}"
    default = f" By default `{option.default}`." if option.show_default and option.default is not None else ""
    return f"- `{spelling}{value}`: {option.help or ''}{default}"


def value_of(option: click.Option) -> str:
    """Return the name of an option's value."""
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or ("N" if option.type is NUMBER else option.type.name)


def keys_of(kind: str) -> str:
    """Return the keys of a kind of document; those of an earlier kind that it begins with are not repeated."""
    keys = KEYS[kind]
    for other, begin in KEYS.items():
        if other != kind and len(begin) > REPEATED and keys[: len(begin)] == begin:
            return f"as `{other}`, and {quoted(keys[len(begin) :])}"
    return quoted(keys)


def quoted(keys: Iterable[str]) -> str:
    """Return names with commas between."""
    return ", ".join(f"`{key}`" for key in keys)


def common_options() -> list[click.Option]:
    """Return the options that all commands have."""
    run = cli.get_command(click.Context(cli), "run")
    params = [] if run is None else run.params
    return [it for it in params if isinstance(it, click.Option) and it.name in COMMON]


def own_options(command: click.Command) -> list[click.Option]:
    """Return the options of a command that not all have."""
    options = [it for it in command.params if isinstance(it, click.Option) and not it.hidden]
    return [it for it in options if it.name not in COMMON]


def shared_options(group: click.Group, context: click.Context) -> dict[str, click.Option]:
    """Return the options with the same line in several commands, by their line."""
    options = [it for command in leaves(group, context) for it in own_options(command)]
    counts = Counter(map(line, options))
    return {line(it): it for it in options if counts[line(it)] >= SHARED}


def leaves(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    """Yield the commands of the page that are no groups."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, context)
        elif command is not None:
            yield command


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
