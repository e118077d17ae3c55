"""Monthly balances in event time: the dates of the transactions determine the month, not the clock.

With a month's first transaction, `generate_epochs` promises that the month before is complete; the operator
then emits that month's balance and forgets it. At the end of the stream, `MAX` completes the rest.
"""

from collections.abc import MutableMapping
from datetime import date, timedelta
from typing import Any

from malflow import MAX, DataMessage, SingleThreadRuntime, StatefulLogic, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

TRANSACTIONS = [
    *((1000, date(2025, 1, 1)), (-20, date(2025, 1, 5)), (-150, date(2025, 1, 17)), (-300, date(2025, 2, 4))),
    *((60, date(2025, 2, 16)), (75, date(2025, 2, 25)), (-55, date(2025, 3, 16)), (200, date(2025, 3, 31))),
    *((-10, date(2025, 4, 5)), (-5, date(2025, 4, 19))),
]


def end_of_month_before(msg: DataMessage[Any, Any, date], previous: date | None) -> date | None:
    day = msg.timestamp
    if previous and (previous.year, previous.month) == (day.year, day.month):
        return None
    return day.replace(day=1) - timedelta(days=1)


class MonthlyBalance(StatefulLogic[tuple[int, int], tuple[int, date], date, int, int]):
    """Add up a month's transactions; emit the sum when the month is over."""

    def on_data(self, msg: DataMessage[Any, tuple[int, date], date], balance: int, _output: Any) -> int:
        """Add a transaction to its month's balance."""
        return balance + msg.value[0]

    def on_epoch(self, epoch: Any, balances: MutableMapping[tuple[int, int], int], output: Any) -> None:
        """Emit and forget the months that are over."""
        for month in [month for month in balances if epoch is MAX or month <= (epoch.year, epoch.month)]:
            output.send(DataMessage(month, balances.pop(month), epoch))


def build_dataflow(provider: StreamProvider) -> None:
    source = SingleIteratorSource(TRANSACTIONS)
    transactions = provider.new_stream().source("iter-source", source)
    timed = transactions.assign_timestamps("assign-time", lambda msg: msg.value[1])
    on_time, _late = timed.generate_epochs("end-of-month", end_of_month_before)
    by_month = on_time.key_distribute("year-month", lambda msg: (msg.timestamp.year, msg.timestamp.month))
    balances = by_month.stateful_op("monthly-balance", MonthlyBalance(), default=int)
    balances.sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
