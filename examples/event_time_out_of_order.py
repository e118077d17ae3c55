"""Like `event_time`, but out of order: a month stays open until a transaction 15 days after its end arrives.

Transactions that arrive even later are late. They are not lost: `generate_epochs` emits them on its second stream.
"""

from collections.abc import MutableMapping
from datetime import date, timedelta
from typing import Any

from malflow import DataMessage, SingleThreadRuntime, StatefulLogic, StreamProvider, limit_out_of_orderness
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

TRANSACTIONS = [
    *((1000, date(2025, 1, 1)), (-20, date(2025, 1, 5)), (-300, date(2025, 2, 4)), (-150, date(2025, 1, 17))),
    *((60, date(2025, 2, 16)), (-55, date(2025, 3, 16)), (75, date(2025, 2, 25)), (-10, date(2025, 4, 5))),
    *((200, date(2025, 3, 31)), (-5, date(2025, 4, 19))),
]


def end_of_month(msg: DataMessage[Any, Any, date]) -> date:
    in_next_month = msg.timestamp.replace(day=1) + timedelta(days=31)
    return in_next_month.replace(day=1) - timedelta(days=1)


class MonthlyBalance(StatefulLogic[date, tuple[int, date], date, tuple[str, int], int]):
    """Add up a month's transactions; emit the sum when the month is over. The key is the month's last day."""

    def on_data(self, msg: DataMessage[date, tuple[int, date], date], balance: int, _output: Any) -> int:
        """Add a transaction to its month's balance."""
        return balance + msg.value[0]

    def on_epoch(self, epoch: Any, balances: MutableMapping[date, int], output: Any) -> None:
        """Emit and forget the months that are over."""
        for month_end in [month_end for month_end in balances if month_end <= epoch]:
            output.send(DataMessage(month_end, ("balance", balances.pop(month_end)), month_end))


def build_dataflow(provider: StreamProvider) -> None:
    source = SingleIteratorSource(TRANSACTIONS)
    transactions = provider.new_stream().source("iter-source", source)
    timed = transactions.assign_timestamps("assign-time", lambda msg: msg.value[1])
    on_time, late = timed.generate_epochs("15-days-back", limit_out_of_orderness(timedelta(days=15)))
    by_month = on_time.key_distribute("month", end_of_month)
    balances = by_month.stateful_op("monthly-balance", MonthlyBalance(), default=int)
    balances.sink("balances", StdOutSink())
    late_amounts = late.map("too-late", lambda transaction: ("late", transaction[0]))
    late_amounts.sink("late", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
