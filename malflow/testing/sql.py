"""Running SQL on lists: a text is tested as a function of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from malflow.errors import GraphError
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.streams.stream import StreamProvider
from malflow.testing.scripted import ScriptedSource
from malflow.words import did_you_mean

__all__ = ["run_sql", "sql_dataflow"]


def run_sql(
    text: str | Path, tables: Mapping[str, Sequence[Any]], *, parallelism: int = 1
) -> dict[str, list[dict[str, Any]]]:
    """Run statements of SQL with lists in place of what their tables read, and return the rows that they insert.

    Watermarks come from the text. At the end of the lists all windows close.

    Args:
        text: the statements, or the path of a file of them.
        tables: the rows of each table that is read, as mappings, or tuples in the order of the columns. A `PAUSE` among
            them ends a tick.
        parallelism: the number of workers.

    Returns:
        For each table with a URL that INSERTs fill, its rows as dicts, in the order in which they were written.

    Raises:
        SqlError: with all faults of the text.
        GraphError: if a table is read that has no rows in `tables`, or `tables` has one that is not read.
        OperatorError: if a row fails.

    >>> run_sql(
    ...     "CREATE TABLE bids (id INT, price INT) WITH ('url' = 'kafka://broker/bids');"
    ...     "CREATE TABLE dear (id INT) WITH ('url' = 'kafka://broker/dear');"
    ...     "INSERT INTO dear SELECT id FROM bids WHERE price > 10",
    ...     {"bids": [(1, 5), (2, 20)]},
    ... )
    {'dear': [{'id': 2}]}
    """
    sinks: dict[str, VecSink[Any, Any, Any]] = {}
    read: set[str] = set()

    def build(provider: StreamProvider) -> None:
        inserted = provider.sql("sql", connect=connected).run(text)
        sinks.update((name, VecSink[Any, Any, Any]()) for name in inserted)

    def connected(name: str, _url: str, _options: dict[str, str]) -> Any:
        if name in sinks:
            return sinks[name]
        if name not in tables:
            raise GraphError(f"table {name!r} is read, and has no rows{did_you_mean(name, tables)}")
        read.add(name)
        return ScriptedSource(tables[name])

    SingleThreadRuntime(build, parallelism=parallelism).execute()
    unread = [name for name in tables if name not in read]
    if unread:
        raise GraphError(f"nothing reads table {unread[0]!r}{did_you_mean(unread[0], read)}")
    return {name: sink.values for name, sink in sinks.items()}


def sql_dataflow(text: str | Path, name: str | None = None) -> Callable[[StreamProvider], None]:
    """Return the build function of statements of SQL, for `assert_exactly_once`.

    The source of a table is named by the catalogue and the table, such as ``shop.bids``. Nothing is connected to.

    Args:
        text: the statements, or the path of a file of them.
        name: the name of the catalogue; by default that of the file, or ``sql``.

    >>> from malflow.testing import assert_exactly_once
    >>> text = (
    ...     "CREATE TABLE bids (id INT, price INT) WITH ('url' = 'kafka://broker/bids');"
    ...     "CREATE TABLE dear (id INT) WITH ('url' = 'kafka://broker/dear');"
    ...     "INSERT INTO dear SELECT id FROM bids WHERE price > 10"
    ... )
    >>> assert_exactly_once(sql_dataflow(text), {"sql.bids": [(1, 5), (2, 20)]}, max_examples=3)
    """
    from malflow.sql.api import catalog_name  # noqa: PLC0415 - tests without SQL don't load it

    catalog = catalog_name(name or (text.stem if isinstance(text, Path) else "sql"))

    def build(provider: StreamProvider) -> None:
        inserted = provider.sql(catalog, connect=connected).run(text)
        written.update(inserted)

    written: set[str] = set()

    def connected(table: str, _url: str, _options: dict[str, str]) -> Any:
        return VecSink() if table in written else SingleIteratorSource([])

    return build
