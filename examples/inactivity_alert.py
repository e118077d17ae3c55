"""Alerts for devices that have been silent for ten minutes, by a timer of event time for each device."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from malflow import DataMessage, Output, SingleThreadRuntime, StatefulLogic, StreamProvider, limit_out_of_orderness
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

Ping = tuple[str, datetime]
Alert = str

SILENCE = timedelta(minutes=10)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PINGS: list[Ping] = [
    ("pump", NOON),
    ("valve", NOON + timedelta(minutes=1)),
    ("pump", NOON + timedelta(minutes=6)),
    ("valve", NOON + timedelta(minutes=14)),
    ("pump", NOON + timedelta(minutes=13, seconds=30)),
    ("valve", NOON + timedelta(minutes=21)),
    ("valve", NOON + timedelta(minutes=30)),
]


class Inactivity(StatefulLogic[str, Ping, datetime, Alert, datetime]):
    """Send an alert when a device has been silent; the state is the time of its last ping."""

    def on_data(
        self, msg: DataMessage[str, Ping, datetime], last: datetime | None, output: Output[str, Alert, datetime]
    ) -> datetime:
        """Set the timer of the device, replacing the previous one."""
        if last is not None and msg.timestamp - last >= SILENCE:  # no epoch was between the two pings
            self.send_alert(msg.key, last, output)
        output.wake(msg.timestamp + SILENCE)
        return msg.timestamp

    def on_timer(self, key: str, at: datetime, last: datetime, output: Output[str, Alert, datetime]) -> None:
        """Alert, and forget the device until its next ping."""
        self.send_alert(key, last, output)

    def send_alert(self, key: str, last: datetime, output: Output[str, Alert, datetime]) -> None:
        """Send an alert with the time at which it was due."""
        output.send(DataMessage(key, f"silent since {last:%H:%M}", last + SILENCE))


def build_dataflow(provider: StreamProvider, pings: Iterable[Ping] = PINGS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("pings", SingleIteratorSource(pings))
        .assign_timestamps("time", lambda msg: msg.value[1])
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(minutes=1)))
    )
    (
        on_time.key_distribute("device", lambda msg: msg.value[0])
        .sort("in order")
        .stateful_op("inactivity", Inactivity())
        .sink("stdout", StdOutSink())
    )


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
