"""Fever: a temperature above 38 degrees that rises three times in a row."""

from collections.abc import Iterable

from malflow import SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.patterns import SoFar, step
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Reading = tuple[str, int, float]
"""A patient, the minute, and the temperature."""

FEVER = 38.0
READINGS: list[Reading] = [
    ("ann", 0, 37.2),
    ("bob", 1, 38.1),
    ("ann", 10, 38.2),
    ("bob", 11, 38.4),
    ("ann", 20, 38.6),
    ("bob", 21, 38.3),  # falls: bob's curve starts over
    ("bob", 41, 38.7),
    ("ann", 30, 39.1),  # out of order
    ("bob", 51, 39.0),
]


def is_higher(reading: Reading, so_far: SoFar[Reading]) -> bool:
    """Whether a reading is higher than the one before it."""
    last = so_far.last("higher")
    return last is None or reading[2] > last[2]


higher = step("higher", where=lambda reading: reading[2] > FEVER, given=is_higher)
fever = higher.times(3, by="next")


def build_dataflow(provider: StreamProvider, readings: Iterable[Reading] = READINGS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("readings", SingleIteratorSource(readings))
        .assign_timestamps("minute", lambda msg: msg.value[1])
        .generate_epochs("epochs", limit_out_of_orderness(15))
    )
    found = on_time.key_distribute("patient", lambda msg: msg.value[0]).match("fever", fever)
    curves = found.matches.map("curve", lambda match: [reading[2] for reading in match["higher"]])
    curves.sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
