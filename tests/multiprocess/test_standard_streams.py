"""The standard streams of worker processes, and programs that have closed theirs or whose readers are gone."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError
from tests.multiprocess.groups import DEADLINE, ROOT
from tests.multiprocess.runs import run_map

pytestmark = pytest.mark.slow


def test_the_stream_of_a_worker_is_a_text_stream_with_a_descriptor() -> None:
    def facts(_value: int) -> list[Any]:
        out: Any = sys.stdout
        out.reconfigure(line_buffering=True)
        return [
            isinstance(out, io.TextIOBase),
            out.fileno(),
            out.buffer.fileno(),
            out.name,
            out.encoding,
            out.errors,
            out.mode,
            out.isatty(),
        ]

    assert run_map(facts) == [[True, 1, 1, "<stdout>", "utf-8", "strict", "w", False]]


@contextmanager
def redirected(target: int) -> Iterator[None]:
    """Write the standard output of this process elsewhere."""
    before = os.dup(1)
    os.dup2(target, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


def test_a_program_may_write_to_the_stream_of_a_worker(tmp_path: Path) -> None:
    def write(_value: int) -> bytes:
        with (tmp_path / "told").open("w+b", buffering=0) as file, redirected(file.fileno()):
            subprocess.run([sys.executable, "-S", "-c", "print('told')"], stdout=sys.stdout, check=True)
            file.seek(0)
            return file.read()

    assert run_map(write) == [b"told\n"]


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt()", "Odd()"])
def test_any_exception_in_a_worker_names_its_record(error: str) -> None:
    class Odd(BaseException):
        """An exception that is not an Exception."""

    def fail(_value: int) -> int:
        raise eval(error, {"Odd": Odd})  # noqa: S307 - of the test

    with pytest.raises(OperatorError, match=r"^operator 'map' failed at key NoKey, value 7, timestamp 0: ") as raised:
        run_map(fail, [7])
    assert raised.value.value == 7


# Streams of the program


def print_all(number: int) -> int:
    """Print a line, and return the number."""
    print("é", "x" * 1_000)
    return number


def test_the_end_of_the_reader_of_printed_text_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        with pytest.raises(SystemExit) as raised:
            run_map(print_all, range(10_000))
        assert raised.value.code == 141


def test_text_that_the_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.BytesIO() as written, io.TextIOWrapper(written, encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        run_map(print_all)
        assert b"\\xe9 xxx" in written.getvalue()


JOB = """
import sys
from tests.multiprocess.runs import run_map
from tests.multiprocess.test_standard_streams import print_all

assert run_map(print_all, start_method=sys.argv[1]) == [0]
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "closed"), [("spawn", [0]), ("forkserver", [0, 1, 2])])
def test_a_program_may_have_closed_its_streams(method: str, closed: list[int]) -> None:
    closes = "".join(f"os.close({number});" for number in closed)
    command = [sys.executable, "-c", f"import os, sys; {closes} os.execv(sys.executable, sys.argv[1:])"]
    done = subprocess.run(
        [*command, sys.executable, "-c", JOB, method],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stderr) == (0, "")
