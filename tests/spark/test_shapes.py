"""States of classes that change between runs on Spark, and between Spark and one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from malflow import SingleThreadRuntime, SnapshotError, SparkRuntime
from malflow.snapshot import FsspecBackend, MsgpackCodec
from tests.kit.backends import kept_states
from tests.kit.evolving import keep, opened
from tests.kit.nights import at_night

pytestmark = [pytest.mark.spark, pytest.mark.damages_snapshots("the classes in them change")]


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Define class Acc as a script does, in ``__main__``, again each time."""

    def define(*fields: str) -> Any:
        kind = NamedTuple("Acc", [(field, int) for field in fields])  # type: ignore[misc] # that is the test
        kind.__module__ = "__main__"
        monkeypatch.setattr(sys.modules["__main__"], "Acc", kind, raising=False)
        return kind

    return define


@pytest.mark.fault("G6")
@pytest.mark.parametrize("codec", at_night(["pickle", "msgpack"], but=["msgpack"]))
def test_a_class_that_changed_is_refused_and_migrated(spark: Any, tmp_path: Path, script: Any, codec: str) -> None:
    def backend(kind: Any) -> FsspecBackend:
        return FsspecBackend(str(tmp_path), codec="pickle" if codec == "pickle" else MsgpackCodec({"acc": kind}))

    def on_spark(*args: Any, **options: Any) -> SparkRuntime:
        return SparkRuntime(*args, spark=spark, **options)

    first = script("n", "total")
    keep(backend(first), {"a": first(5, 6), "b": [first(7, 8)]}, runtime=on_spark, parallelism=2)
    second = script("total", "m")
    for runtime in (on_spark, SingleThreadRuntime):
        with pytest.raises(
            SnapshotError, match=r"operator 'acc': the fields .*has \(n, total\), program has \(total, m\)"
        ):
            opened(backend(second), runtime=runtime, parallelism=2)

    def migrate(old: Any, _version: int) -> Any:
        old = old[0] if isinstance(old, list) else old
        return second(old["total"], old.n)

    opened(backend(second), runtime=on_spark, parallelism=3, version=2, migrate=migrate)
    keep(backend(second), {"c": second(0, 1)}, runtime=on_spark, parallelism=3, version=2)
    keep(backend(second), {"d": second(2, 3)}, parallelism=3, version=2)
    assert kept_states(backend(second), "acc") == {
        "a": second(6, 5),
        "b": second(8, 7),
        "c": second(0, 1),
        "d": second(2, 3),
    }
    third = script("m")
    with pytest.raises(SnapshotError, match=r"snapshot has \(total, m\), program has \(m\)"):
        opened(backend(third), runtime=on_spark, parallelism=3, version=2)
