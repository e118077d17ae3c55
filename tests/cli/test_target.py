"""Flows that can't be found, or are no scripts: one paragraph, and never a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Malflow, Script

BAD = {
    "missing.py": "there is no file 'missing.py'",
    "fow.py": "there is no file 'fow.py'; did you mean 'flow.py'?",
    "nowhere/flow.py": "there is no file 'nowhere/flow.py', and no folder 'nowhere'",
    "folder": "'folder' is a folder; name a script in it such as folder/inner.py, or a module",
    "notes.ipynb": "'notes.ipynb' is a notebook; write `jupyter nbconvert --to script notes.ipynb`",
    "text.txt": "'text.txt' is not a Python script: invalid syntax [text.txt:1]",
    "latin.py": "'latin.py' is not a Python script: ",
    "zeros.py": "'zeros.py' is not a Python script: ",
    "picture.png": "'picture.png' is not a Python script: ",
    "fow": "there is no file 'fow' and no module 'fow'; did you mean 'flow.py'?",
    "no.such": "there is no file 'no.such' and no module 'no.such'",
    "json.no": "there is no file 'json.no' and no module 'json.no'",
    "flow.py:buld_dataflow": "'flow.py' has no 'buld_dataflow'; did you mean 'build_dataflow'?",
    "flow.py:": "after the colon, write the name of a function or a runtime",
    "flow.py:1": "after the colon, write the name of a function or a runtime",
    "flow.py:NUMBER": "'flow.py:NUMBER' is neither a function nor a runtime; got int",
    "flow.py:nothing": "it returned NoneType",
    "empty.py": "empty.py calls neither execute() nor start(), and has no function that builds a dataflow",
    "several.py": "name one: several.py:first, several.py:second",
    "": "there is no file ''",
    "a b": "there is no file 'a b'",
    "\x1b[31m": r"there is no file '\x1b[31m'",
}


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("flow", BAD)
def test_flow_that_is_none(command: str, flow: str, script: Script, malflow: Malflow) -> None:
    Path("folder").mkdir(exist_ok=True)
    script("NUMBER = 1\ndef nothing(): pass")
    script("", "folder/inner.py")
    script("", "empty.py", "")
    script(
        "def first(provider: StreamProvider): ...\ndef second(provider: 'StreamProvider'): ...",
        "several.py",
        "from malflow import StreamProvider\n",
    )
    script("{}", "notes.ipynb", "")
    script("once upon a time", "text.txt", "")
    Path("latin.py").write_bytes(b"name = '\xe9'\n")
    Path("zeros.py").write_bytes(b"name = 1\0\n")
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    done = malflow(command, flow)
    assert (done.code, done.out) == (3, "")
    assert BAD[flow] in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1
