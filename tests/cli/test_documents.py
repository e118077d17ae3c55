"""The keys of the JSON documents, as somebody's scripts know them: none may be renamed or go."""

from __future__ import annotations

from malflow.cli.output.documents import KEYS

PINNED = """
run_started: flow at runtime parallelism persistence snapshot keys restarts
snapshot_committed: flow at snapshot tick
run_finished: flow at tick parallelism records late snapshot restarts stopped failed
reload: flow at event changed message
record: operator tick output key value timestamp
log: level message
error: error
check: flow runtime operators stages findings
config: file profile settings warnings
config_check: faults
worker_parts: worker parts
graph: nodes edges stages width height
plan: flow runtime job persistence snapshot latest at tick keys bytes workers parallelism starts rows refusals unknown
plugin: name type package version loads error
snapshot: job id latest at tick increment keys bytes files parallelism codec writer
snapshot_details: job id latest at tick increment keys bytes files parallelism codec writer states stored
verify: snapshots problems notes unused
difference: operator added removed changed
change: operator key before after
restored: job snapshot
deleted: job snapshots
state: operator type version keys snapshot at
value: operator key value snapshot at
project: name folder template files
letter: operator id key value timestamp error message place attempts is_parked tick worker at
letter_details: operator id key value timestamp error message place attempts is_parked tick worker at trace
pending: sink number released dropped content
released: sink transactions
dropped: sink transactions
run: run job name runtime pid started ended status script page tick parallelism polled_per_second snapshot
progress: run job runtime pid status tick parallelism polled seconds restarts started at polled_per_second snapshot \
snapshot_failure snapshot_interval unfinished parts workers operators sinks running hot
why: run job operator cause text stops_at is_fault facts
done: run job do snapshot parallelism
letters_done: run job operator do done late texts parked
accepted: run job do
stopped: run job status
"""


def test_keys_of_documents() -> None:
    assert "\n" + "".join(f"{kind}: {' '.join(keys)}\n" for kind, keys in KEYS.items()) == PINNED
