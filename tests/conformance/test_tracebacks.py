"""The traceback of an error of user code has the user's own frames: those of malflow are left out on every runtime."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import malflow
from malflow import OperatorError, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

OWN = str(Path(malflow.__file__).parent)


def halved(number: int) -> float:
    return number / 0


def build(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([1]))
    numbers.map("half", halved).sink("out", VecSink())


def links(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def failed(runtime: Any) -> OperatorError:
    with pytest.raises(OperatorError, match="operator 'half' failed") as failure:
        runtime(build).execute()
    return failure.value


def test_no_frame_is_of_malflow(runtime: Any) -> None:
    frames = [it.filename for link in links(failed(runtime)) for it in traceback.extract_tb(link.__traceback__)]
    assert frames
    assert [it for it in frames if it.startswith(OWN)] == []


def test_the_text_has_the_line_of_the_function(runtime: Any) -> None:
    error = failed(runtime)
    text = "".join(traceback.format_exception(error))
    assert f'test_tracebacks.py", line {halved.__code__.co_firstlineno + 1}, in halved' in text
    assert "return number / 0" in text
    assert f"test_tracebacks.py:{halved.__code__.co_firstlineno}" in str(error)


def test_all_frames_are_kept_on_demand(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALFLOW_TRACEBACK", "full")
    frames = [it.filename for link in links(failed(runtime)) for it in traceback.extract_tb(link.__traceback__)]
    assert any(it.startswith(OWN) for it in frames)
