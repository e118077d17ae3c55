"""The pages about SQL: each block of SQL, Python or shell runs in its order, and gives what the page shows.

A block of SQL sees the CREATE statements of the blocks before it. A query prints its rows, an INSERT writes them, and a
text with a fault gives its error.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sql.parser.statements import parse
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Source, SqlError
from tests.cli.conftest import Malflow
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
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, malflow: Malflow, capfd: pytest.CaptureFixture[str]
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
            printed = capfd.readouterr().out
        elif language == "sh":
            done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, check=False)
            printed = done.stderr if done.returncode else done.stdout
            assert done.returncode == 0 or shown, done.stderr
        else:
            printed = answer(text, known, lambda file: malflow("sql", file).out)
        assert shown is None or printed == shown, f"{page}.md: {text}"


def answer(text: str, known: list[str], shown: Callable[[Path], str]) -> str:
    """Run statements after those that are known; return the rows of queries, or the error of a text that has one.

    Args:
        text: the statements.
        known: definitions of former blocks; this one's are added.
        shown: what `malflow sql` prints for a file.
    """
    file = Path("page.sql")

    def build(provider: StreamProvider) -> None:
        sql = provider.sql("shop")
        sql.run("".join(known))
        file.write_text(text, encoding="utf-8")
        sql.run(file)

    try:
        statements = parse(Source(text, file.name))
        is_written = any(isinstance(it, tree.Insert | tree.StatementSet) for it in statements)
        if is_written:
            SingleThreadRuntime(build).execute()
    except SqlError as error:
        return f"{error}\n"
    if not is_written:
        file.write_text("".join(known) + text, encoding="utf-8")
    found = "" if is_written else shown(file)
    known += [f"{text[it.span.start : it.span.end]};\n" for it in statements if is_definition(it)]
    return found


def is_definition(statement: object) -> bool:
    """Whether later blocks need a statement."""
    return isinstance(statement, tree.CreateTable | tree.CreateView | tree.CreateFunction)


def test_every_page_about_sql_is_here() -> None:
    found = {path.stem for path in DOCS.glob("*.md") if "```sql\nSELECT" in path.read_text(encoding="utf-8")}
    assert found <= {*OF_SQL}
