"""``malflow sql``: run a query, and show its rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from malflow.cli.output.exits import CommandError
from malflow.cli.output.logs import write_log
from malflow.cli.output.options import output_options
from malflow.cli.output.output import Output
from malflow.cli.running.script import exists, near_script

__all__ = ["sql"]


_HELP = """Run the statements of FILE or TEXT, and show the rows of each query.

A path or URL in quotes is a table: its columns are guessed from its first rows. '-' is standard input.

\b
  malflow sql -c "SELECT * FROM 'bids.jsonl' WHERE price > 10"
  malflow sql -c "SELECT channel, COUNT(*) FROM 'bids/*.parquet' GROUP BY channel"
  malflow sql -c "SELECT * FROM 'kafka://localhost:9092/bids' LIMIT 10"

ORDER BY, and GROUP BY without a window, need an input that ends. Ctrl-C ends a query. With --json, each row is an
object on a line.
"""


@click.command(help=_HELP, short_help="Run a query, and show its rows.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-c", "--command", "text", metavar="TEXT", help="The statements.")
@click.option("--ddl", is_flag=True, help="Print the CREATE TABLE of each path or URL in quotes, and run nothing.")
@click.option("--explain", is_flag=True, help="Print how each query and INSERT would run, and run nothing.")
@click.option("--csv", "as_csv", is_flag=True, help="Write the rows as CSV.")
@output_options
def sql(file: Path | None, text: str | None, ddl: bool, explain: bool, as_csv: bool, output: Output) -> None:
    """Run the statements of FILE or TEXT, and show the rows of each query."""
    from malflow.cli.sql.texts import Texts  # noqa: PLC0415 - help and usage don't need it
    from malflow.sql.api import read_source  # noqa: PLC0415 - as there
    from malflow.sql.text import Source  # noqa: PLC0415 - as there
    from malflow.store.redaction import safe_lines  # noqa: PLC0415 - as there

    if (file is None) is (text is None):
        raise click.UsageError("name a file, or write statements after -c")
    if as_csv and output.json:
        raise click.UsageError("--csv and --json are two forms; leave one out")
    write_log(output)
    if file is not None and not exists(file):
        raise CommandError(f"there is no file '{file}'{near_script(file)}")
    source = Source(text, "-c") if text is not None else read_source(file or Path())
    name = "sql" if file is None else re.sub(r"\W", "_", file.stem)
    if not sys.flags.safe_path:  # for CREATE FUNCTION, as Python does for a script
        sys.path.insert(0, str((file or Path("-c")).resolve().parent))
    texts = Texts(name, output, "json" if output.json else "csv" if as_csv else "table")
    if ddl and explain:
        raise click.UsageError("--ddl and --explain print two things; leave one out")
    if ddl:
        texts.check(source)
        for statement in texts.prompt.statements.values():
            output.write(safe_lines(f"{statement};"))
    elif explain:
        texts.explain(source)
    else:
        texts.run(source)
