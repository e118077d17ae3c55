"""The pages about SQL: each block of SQL, Python or shell runs in its order, and gives what the page shows.

A block of SQL sees the CREATE statements of the blocks before it. A query prints its rows, an INSERT writes them, and a
text with a fault gives its error.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sql.parser.statements import parse
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Source, SqlError
from tests.test_readme import BLOCK, OF_SQL, ROOT

DOCS = ROOT / "docs"


def blocks(page: str) -> list[tuple[str, str, str | None]]:
    """Return the blocks that run, with their language, and the text that the page shows right after one."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = [*BLOCK.finditer(text)]
    shown = []
    for at, block in enumerate(found):
        following = found[at + 1] if at + 1 < len(found) else None
        is_shown = following and following[1] == "text" and not text[block.end() : following.start()].strip()
        if block[1] in {"sql", "python", "sh"}:
            shown.append((block[1], block[2], following[2] if following and is_shown else None))
    return shown


@pytest.mark.parametrize("page", OF_SQL)
def test_blocks_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = tmp_path / "bin" / "malflow"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m malflow "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, Any] = {"__name__": page}
    known: list[str] = []
    for language, text, shown in blocks(page):
        if language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)  # noqa: S102 - our own text
            for name in [name for name in names if name.startswith("test_")]:
                names.pop(name)()
            printed = capsys.readouterr().out
        elif language == "sh":
            done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, check=False)
            printed = done.stderr if done.returncode else done.stdout
            assert done.returncode == 0 or shown, done.stderr
        else:
            printed = answer(text, known)
        assert shown is None or printed == shown, f"{page}.md: {text}"


def answer(text: str, known: list[str]) -> str:
    """Run statements after those that are known; return the rows of a query, or the error of a text that has one."""
    rows: VecSink[Any, Any, Any] = VecSink()
    columns: list[str] = []
    answers: list[str] = []

    def build(provider: StreamProvider) -> None:
        sql = provider.sql("shop")
        sql.run("".join(known))
        file, last = Path("page.sql"), statements[-1]
        is_query = isinstance(last, tree.Query)
        file.write_text(text[: last.span.start] if is_query else text, encoding="utf-8")
        sql.run(file, tell=answers.append)
        if is_query:
            blank = re.sub(r"[^\n]", " ", text[: last.span.start])  # the lines of errors are those of the block
            found = sql.query("query", blank + text[last.span.start : last.span.end])
            columns.extend(it.name for it in found.columns)
            found.rows(tuple).sink("rows", rows)

    try:
        statements = parse(Source(text, "page.sql"))
        SingleThreadRuntime(build).execute()
    except SqlError as error:
        return f"{error}\n"
    known += [f"{text[it.span.start : it.span.end]};\n" for it in statements if is_definition(it)]
    return table([columns, *rows.values]) if columns else "".join(f"{it}\n" for it in answers)


def is_definition(statement: object) -> bool:
    """Whether later blocks need a statement."""
    return isinstance(statement, tree.CreateTable | tree.CreateView | tree.CreateFunction)


def table(rows: list[Any]) -> str:
    """Return rows in columns, the first of them with the names."""
    texts = [["NULL" if it is None else str(it) for it in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ("  ".join(it.ljust(width) for it, width in zip(row, widths, strict=True)).rstrip() for row in texts)
    return "".join(f"{line}\n" for line in lines)


def test_every_page_about_sql_is_here() -> None:
    found = {path.stem for path in DOCS.glob("*.md") if "```sql\nSELECT" in path.read_text(encoding="utf-8")}
    assert found <= {*OF_SQL}
