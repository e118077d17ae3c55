"""Files of statements, rows and expected results, after the form of sqllogictest.

A file has blocks with an empty line between them. ``#`` begins a line of comment. A block is one of:

- ``table NAME [time COLUMN]`` and the columns of the table;
- ``rows NAME`` and its rows as arrays of JSON, in order of arrival. ``watermark NAME`` has an instant a line. Blocks
  of several tables follow each other as they arrive; every line is a tick by itself;
- ``statement ok`` and a statement;
- ``statement error LINE:COLUMN WORDS`` and a statement that is refused there, with these words in the message;
- ``query NAME`` and a query, then ``---- TYPES`` with the types of its columns, and its rows in any order. Times and
  DECIMALs are texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from malflow.sinks import StatelessSink, VecSink
from malflow.sources import StatefulSource
from malflow.sql.text import SqlError
from malflow.testing import PAUSE, ScriptedSource
from tests.oracles.sql_cases import table_of

__all__ = ["Script", "scripts"]


@dataclass(frozen=True)
class Query:
    """A query with its types and rows."""

    name: str
    text: str
    types: str
    rows: list[str]


@dataclass
class Script:
    """A file.

    Attributes:
        name: its name.
        items: rows and watermarks, as the source emits them.
        queries: the queries.
    """

    name: str
    items: list[dict[str, Any]] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    _tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    _statements: list[tuple[str, str]] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Read the blocks of a text."""
        lines = "\n".join(it for it in text.splitlines() if not it.startswith("#"))
        for block in filter(None, re.split(r"\n\s*\n", lines.strip())):
            head, _, body = block.partition("\n")
            kind, _, rest = head.partition(" ")
            match kind:
                case "table":
                    name, _, time = rest.partition(" time ")
                    self._tables[name] = {"schema": " ".join(body.split()), **({"time": time} if time else {})}
                case "rows":
                    self.items += ({"table": rest, "row": ["+I", *json.loads(it)]} for it in body.splitlines())
                case "watermark":
                    self.items += ({"table": rest, "watermark": it} for it in body.splitlines())
                case "statement":
                    self._statements.append((rest, body))
                case "query":
                    query, _, answer = body.partition("\n----")
                    types, *rows = answer.split("\n")
                    self.queries.append(Query(rest, query, types.strip(), sorted(rows)))
                case _:
                    raise ValueError(f"{self.name}: no block begins with {head!r}")

    def build(self, sinks: Callable[[str], Any]) -> Callable[[Any], None]:
        """Return the build function of the queries, with a sink for each.

        It checks the types of the queries, and the faults of refused statements.
        """

        def build(provider: Any) -> None:
            sql = provider.sql(self.name)
            stream = provider.new_stream().source("input", StatefulSource(ScriptedSource(self._script())))
            for name, table in self._tables.items():
                on_time, late = table_of(stream, name, table)
                sql.table(name, on_time, table["schema"], time=table.get("time"), late=late)
            for wanted, statement in self._statements:
                _check(sql, wanted, statement)
            for query in self.queries:
                found = sql.query(query.name, query.text)
                types = ", ".join(f"{it.type}{'' if it.nullable else ' NOT NULL'}" for it in found.columns)
                assert types == query.types, f"{query.name}: {types}"
                found.rows(tuple).map(f"{query.name} as text", _text).sink(f"{query.name} results", sinks(query.name))

        return build

    def run(self, runtime: Callable[..., Any]) -> dict[str, list[str]]:
        """Return the rows of each query."""
        found: dict[str, VecSink[Any, Any, Any]] = {it.name: VecSink() for it in self.queries}
        runtime(self.build(lambda name: StatelessSink(found[name]))).execute()
        return {name: sorted(it.values) for name, it in found.items()}

    def _script(self) -> list[Any]:
        return [part for it in self.items for part in (it, PAUSE)]


def _check(sql: Any, wanted: str, statement: str) -> None:
    """Run a statement, or check that it is refused at its place."""
    if wanted == "ok":
        sql.run(statement)
        return
    _, place, words = wanted.split(" ", 2)
    with pytest.raises(SqlError) as refused:
        sql.query("refused", statement) if statement.startswith(("SELECT", "WITH")) else sql.run(statement)
    error = refused.value
    assert (f"{error.line}:{error.column}", words in str(error)) == (place, True), f"{wanted}: {error}"


def _text(row: tuple[Any, ...]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)


def scripts() -> dict[str, Script]:
    """Return the files of this folder by name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.slt")):
        found[path.stem] = Script(path.stem)
        found[path.stem].read(path.read_text())
    return found
