"""``malflow new``: make a folder with a dataflow, its test, and the files to deploy it."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from malflow.cli.output.exits import CommandError, Exit
from malflow.cli.output.options import output_options
from malflow.cli.output.output import Output
from malflow.version import __version__

__all__ = ["TEMPLATES", "Template", "checked_name", "new", "project_files"]

_ENDING = ".template"
_HIDDEN = ("gitignore", "dockerignore", "env")
"""Files whose names begin with a dot in a project; in the package, git would obey files with such names."""

_NAME = re.compile("[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
_LONGEST = 50
"""The longest name of a project. Kubernetes allows 63 characters for a label; the rest is for ends such as `-state` and
`-orders`."""

_LONGEST_UID = 40
"""The longest id that Grafana accepts for a dashboard, in characters."""

_MARK = re.compile("@([a-z_]+)@")
_CONDITION = re.compile("@(if [a-z ]+|else|end)@")


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of project.

    Attributes:
        folders: the folders of ``scaffold`` with its files.
        extras: the extras of malflow that its image installs, separated by commas.
        headline: what its job does.
        ends: what ends its run.
        flow: the file of its dataflow.
    """

    folders: tuple[str, ...]
    extras: str
    headline: str
    ends: str = "Ctrl-C stops it; the same command resumes"
    flow: str = "flow.py"


TEMPLATES: Mapping[str, Template] = {
    "minimal": Template(
        ("common", "monitoring", "words"),
        "serve",
        "Counts words, forever; needs nothing but malflow.",
    ),
    "files": Template(
        ("common", "files", "orders"),
        "",
        "Sums up orders by town and day: reads the CSV files in `orders/`, writes JSON lines to `totals/`.",
        "reads what is new, and ends",
    ),
    "sql": Template(
        ("common", "sql", "orders"),
        "",
        "Sums up orders by town and day in SQL: reads the CSV files in `orders/`, writes JSON lines to `totals/`.",
        "reads what is new, and ends",
        "shop.sql",
    ),
    "kafka": Template(
        ("common", "monitoring", "kafka"),
        "kafka,serve",
        "Sums up orders by town, from one Kafka topic to another, exactly once.",
    ),
    "spark": Template(
        ("common", "monitoring", "words"),
        "serve,spark",
        "Counts words on Spark, forever; `malflow run flow.py --on single` needs no Java, and has the same state.",
    ),
}
"""The kinds of projects, by name."""


def checked_name(name: str) -> str:
    """Return the name if a job, an image and a Kubernetes object can have it.

    Raises:
        CommandError: if they can't.

    >>> checked_name("word-count")
    'word-count'
    """
    if _NAME.fullmatch(name):
        return name
    likely = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:_LONGEST].rstrip("-")
    hint = f", such as {likely}" if _NAME.fullmatch(likely) else ""
    raise CommandError(
        f"'{name}' can't be the name of a project, its job, its image and its Kubernetes objects: use at most "
        f"{_LONGEST} letters a to z, digits and hyphens, beginning with a letter and not ending with a hyphen{hint}; "
        "--name chooses another name",
        Exit.USAGE,
    )


def project_files(name: str, kind: str) -> dict[str, str]:
    """Return the texts of a project's files, by their paths in it.

    Args:
        name: its name, accepted by `checked_name`.
        kind: the name of its template.
    """
    template = TEMPLATES[kind]
    values = {
        "name": name,
        "uid": f"malflow-{name}"[:_LONGEST_UID],
        "version": __version__.partition("+")[0],
        "extras": template.extras,
        "headline": template.headline,
        "ends": template.ends,
        "flow": template.flow,
        "test": f"test_{Path(template.flow).stem}.py",
        "signing_key": secrets.token_hex(32),
        "token": secrets.token_urlsafe(32),
        "password": secrets.token_urlsafe(12),
    }
    scaffold = files("malflow.cli") / "scaffold"
    found = {
        path: _filled(text, kind, values)
        for folder in template.folders
        for path, text in _texts(scaffold / folder, "monitoring/" if folder == "monitoring" else "")
    }
    return dict(sorted(found.items()))


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the path in a project and the text of each template in a folder."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _texts(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_ENDING):
            name = entry.name.removesuffix(_ENDING)
            yield f"{prefix}{'.' if name in _HIDDEN else ''}{name}", entry.read_text(encoding="utf-8")


def _filled(text: str, kind: str, values: Mapping[str, str]) -> str:
    """Return the text of a template with its values, and only the lines that its conditions choose."""
    lines, chosen = list[str](), [True]
    for line in text.splitlines():
        condition = _CONDITION.fullmatch(line)
        if condition is None:
            if all(chosen):
                lines.append(_MARK.sub(lambda mark: values[mark[1]], line))
        elif condition[1] == "else":
            chosen[-1] = not chosen[-1]
        elif condition[1] == "end":
            chosen.pop()
        else:
            chosen.append(kind in condition[1].split()[1:])
    return "\n".join(lines).rstrip() + "\n"


@click.command(short_help="Make a new project.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--template", "kind", type=click.Choice([*TEMPLATES]), default="minimal", help="The kind of the first dataflow."
)
@click.option("--name", help="The name of the job; by default, the folder's.")
@output_options
def new(folder: Path, kind: str, name: str | None, output: Output) -> None:
    """Make a project in a new or empty folder.

    It has a dataflow that runs and resumes, a test that crashes it forty times, settings, an image that runs as an
    unprivileged user, a compose file, a manifest for Kubernetes, alerts, and a dashboard.
    """
    name = checked_name(name if name is not None else folder.absolute().name)
    texts = project_files(name, kind)
    _write(folder, texts)
    if output.json:
        output.document("project", {"name": name, "folder": str(folder), "template": kind, "files": [*texts]})
        return
    place = "" if folder.absolute() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    flow = TEMPLATES[kind].flow
    output.say(f"made {name}: {flow}, its test, its settings, and what runs it elsewhere; README.md lists them")
    output.say(f"run it: {place}malflow run {flow}")


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files; only their owner can read those with secrets.

    Raises:
        CommandError: if the folder is not empty, or can't be written.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise CommandError(f"'{folder}' is not empty; name an empty folder, or one that does not exist", Exit.USAGE)
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if place.name == ".env" else 0o666
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
                file.write(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"can't make a project in '{folder}': {reason}", Exit.USAGE) from error
