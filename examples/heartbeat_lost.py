"""Heartbeats that stop: the absence of an event matches as time passes, without a record of the device."""

from collections.abc import Iterable

from malflow import SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.patterns import step
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Beat = tuple[str, int]
"""A device, and the second of its heartbeat."""

SILENCE = 30
BEATS: list[Beat] = [
    ("pump", 0),
    ("valve", 5),
    ("pump", 20),
    ("valve", 25),
    ("pump", 40),
    ("valve", 55),  # 30 seconds later: in time
    ("pump", 60),
    ("pump", 80),
    ("pump", 100),
    ("valve", 120),
]

beat = step("beat", where=lambda beat: True)
lost = beat.then_not(beat, during=SILENCE)


def build_dataflow(provider: StreamProvider, beats: Iterable[Beat] = BEATS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("beats", SingleIteratorSource(beats))
        .assign_timestamps("second", lambda msg: msg.value[1])
        .generate_epochs("epochs", limit_out_of_orderness(2))
    )
    found = on_time.key_distribute("device", lambda msg: msg.value[0]).match("lost", lost)
    found.matches.map("since", lambda match: f"silent since {match.start}").sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
