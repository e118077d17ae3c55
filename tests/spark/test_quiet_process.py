"""A process of Spark prints nothing when Java closes its socket, and still prints its other errors."""

from __future__ import annotations

import traceback

import pytest

from malflow.runtime.spark.session.java import end_quietly


def raise_it(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "prints"), [(BrokenPipeError(), False), (EOFError(), False), (ValueError("x"), True)]
)
def test_daemon_prints_no_traceback_of_a_closed_socket(
    error: Exception, prints: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = pytest.importorskip("pyspark.daemon")
    monkeypatch.setattr(daemon, "traceback", traceback)
    end_quietly.cache_clear()
    end_quietly()
    try:
        raise_it(error)
    except Exception:  # noqa: BLE001 - as the daemon does
        daemon.traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is prints
    assert daemon.traceback is not traceback
