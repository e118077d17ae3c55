"""The newest Python of a machine is found by its name, on the PATH or in pyenv's folder, if it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.newest_python import newest_python


def program(path: Path, code: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_newest_python_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert newest_python(than=11) is None
    older = program(tmp_path / "bin" / "python3.12")
    program(tmp_path / "bin" / "python3.13", code=127)  # a command of pyenv's that is not switched on
    assert newest_python(than=11) == older
    newer = program(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin" / "python3.13")
    assert newest_python(than=11) == newer
    assert newest_python(than=12) == newer
    assert newest_python(than=13) is None
