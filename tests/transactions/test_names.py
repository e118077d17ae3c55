"""A sink's numbered unit of output is called transaction; epoch is a mark of time, and its former name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import SinkOwner, StatelessSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.ledger import LedgerSink, transactions_of

ROOT = Path(__file__).parents[2]

PLACES = (
    "malflow/sinks/*.py",
    "malflow/connectors/**/*.py",
    "malflow/engine/sinks.py",
    "malflow/engine/sink_transactions.py",
    "malflow/testing/sink_laws.py",
    *(f"docs/{page}.md" for page in ("connectors", "databases", "http", "kafka", "parquet", "postgres", "redis", "s3")),
)
"""Where a sink's transaction is spoken of."""

EPOCH = re.compile("epoch", re.IGNORECASE)

OF_TIME = re.compile(
    r"epoch \(watermark\)|the stream's epoch|generate_epochs"
    r"|\b_EPOCH(_US)?\b"  # from which a server counts its time
    r"|leader_epoch|LEADER_EPOCH|epoch of the leader|brokers compare the epoch|broker whose epochs|mark\.epoch"  # Kafka
)

KEPT = {
    "malflow/sinks/transactional.py": r"`epoch`, its former name|epoch: int \| None|`epoch` is the former|epoch is None"
    r"|else epoch|def epoch",
    "malflow/connectors/kafka/buffer.py": "epoch",  # of the leader of a partition
    "malflow/connectors/kafka/transactions.py": r'"malflow epoch ',
    "malflow/connectors/postgres/ledger.py": r'\bepoch (bigint|= %s)|, epoch, claim\)|select epoch, claim|"epoch"[,:]',
    "malflow/connectors/redis/table.py": r"KEYS\[1\], 'epoch'",
    "malflow/connectors/sql/ledger.py": r'"epoch"[,:]|\(epoch=|\.c\.epoch\b',
    "docs/kafka.md": "`malflow epoch 7",
    "docs/postgres.md": r"column `epoch`|\bepoch bigint",
    "docs/redis.md": "field `epoch`",
}
"""What has the former name for good: it is in databases, topics and programs."""


def offences(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    allowed = re.compile("|".join([OF_TIME.pattern, *([KEPT[name]] if name in KEPT else [])]))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if EPOCH.search(allowed.sub("", line)):
            yield f"{name}:{number}: {line.strip()}"


def test_epoch_is_no_word_for_a_transaction_of_a_sink() -> None:
    paths = [path for place in PLACES for path in ROOT.glob(place)]
    assert len(paths) > 50
    assert not [found for path in paths for found in offences(path)]


def test_the_words_that_are_allowed_are_there() -> None:
    assert not [name for name, kept in KEPT.items() if not re.search(kept, (ROOT / name).read_text())]


def test_the_former_name_in_the_owner_of_a_sink() -> None:
    owner: Any = SinkOwner("job", "out", 2, epoch=7)
    assert owner == SinkOwner("job", "out", 2, 7) == SinkOwner("job", "out", 2, transaction=7)
    assert owner.transaction == owner.epoch == 7
    assert replace(owner, epoch=8) == replace(owner, transaction=8) == SinkOwner("job", "out", 2, 8)


class FormerSink(LedgerSink):
    """Written when a transaction was an epoch."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.known: list[int] = []

    def fence(self, owner: SinkOwner) -> int:
        self.known.append(owner.epoch)
        return super().fence(owner)

    def prepare(self, epoch: int) -> Any:
        return super().prepare(epoch)


def test_a_sink_with_the_former_names_delivers_exactly_once(tmp_path: Path) -> None:
    known = []
    for numbers in ([1, 2], [1, 2, 3]):
        sink, script = FormerSink(tmp_path / "outside.db"), [item for number in numbers for item in (number, PAUSE)]

        def build(provider: StreamProvider, script: list[Any] = script, sink: FormerSink = sink) -> None:
            provider.new_stream().source("numbers", ScriptedSource({"part": script})).sink("out", StatelessSink(sink))

        SingleThreadRuntime(build, at_once(tmp_path / "state", job="numbers")).execute()
        known += sink.known
    assert transactions_of(tmp_path / "outside.db") == {1: [1, 2], 2: [3]}
    assert known == [0, 1]
