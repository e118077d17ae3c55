"""``malflow new``: make a folder with a dataflow, its test, and the files to deploy it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from malflow.cli.exits import CommandError, Exit
from malflow.cli.options import output_options
from malflow.cli.output import Output
from malflow.cli.project import TEMPLATES, checked_name, project_files

__all__ = ["new"]


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
    output.say(f"made {name}: flow.py, its test, its settings, and what runs it elsewhere; README.md lists them")
    output.say(f"run it: {place}malflow run flow.py")


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
