"""``python -m tests.bad_records.programs.taken FOLDER SINK ADDRESS NAME``: write dead letters to another system, once.

SINK is ``kafka``, a topic, or ``postgres``, a table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from malflow import DeadLetter, StreamProvider
from malflow.connectors.kafka import KafkaSink
from malflow.connectors.postgres import PostgresSink
from tests.bad_records.programs.replaying import OPERATORS, Options, build
from tests.kit.backends import at_once
from tests.kit.running import run_job

SIZE = 40


def row(letter: DeadLetter) -> dict[str, Any]:
    """Return the letter as a row."""
    return {"id": letter.id, "operator": letter.operator, "number": letter.value, "message": letter.message}


def main(folder: Path, sink: str, address: str, name: str) -> None:
    """Run the job to its end."""
    made: Any = (
        PostgresSink(address, name, key=())
        if sink == "postgres"
        else KafkaSink(name, servers=address, encode="json", delivery="exactly-once")
    )

    def with_letters(provider: StreamProvider) -> None:
        provider.on_dead_letters(lambda letters: letters.map("row", row).sink("letters", made), OPERATORS)
        build(folder, Options(SIZE), provider)

    run_job(with_letters, at_once(folder / "state", job="replaying"), parallelism=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
