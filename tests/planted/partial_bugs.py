"""The planted bugs of partial aggregation: results that differ in their last bits, or in their order."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PARTIAL_BUGS"]

_LOCAL = "tests/windows/test_local_aggregation.py"
_UNSEEN = f"{_LOCAL}::test_nothing_shows_whether_records_were_aggregated_before"
_LOCAL_COLUMNS = "tests/columns/test_local_columns.py"
_COLUMNS = f"{_LOCAL_COLUMNS}::test_columns_added_up_before_give_what_they_give"
_EXACT = "tests/aggregators/test_exactness.py"
_HOT = "tests/runtime/test_hot_keys.py"

PARTIAL_BUGS = [
    Bug(
        "sums of floats are aggregated before they are sent",
        "they are nearly the same",
        "aggregators/sums.py",
        "    return slot if of is None else replace(",
        "    return replace(slot, exact=Exact(Holds.NUMBERS)) if of is None else replace(",
        (_EXACT, f"{_LOCAL}::test_sums_of_floats_are_never_aggregated_before"),
    ),
    Bug(
        "NaN is a number like others",
        "all floats have a type of their own, and an order",
        "aggregators/exactness.py",
        "return float not in kinds or _is_finite(column)",
        "return True",
        (_EXACT,),
    ),
    Bug(
        "the accumulators of senders are merged in another order",
        "merging looks symmetric",
        "aggregators/exactness.py",
        "merge(states[key], value[0])",
        "merge(value[0], states[key])",
        (_UNSEEN,),
    ),
    Bug(
        "accumulators are sent after the epoch that closes their pane",
        "epochs are sent at once, and accumulators at the end of the tick",
        "operators/windows/local_aggregate.py",
        "base + bisect_left(places, position), epoch",
        "base, epoch",
        (_UNSEEN,),
    ),
    Bug(
        "accumulators have records on both sides of an epoch, although order matters",
        "only epochs that close a pane were thought of",
        "operators/windows/local_aggregate.py",
        "if panes is None or self._loop.ordered or epoch is MAX",
        "if panes is None or epoch is MAX",
        (f"{_LOCAL}::test_records_of_senders_keep_their_order_across_epochs",),
    ),
    Bug(
        "an accumulator goes on after records that were sent as they are",
        "its place is before theirs",
        "operators/windows/local_aggregate.py",
        "        self._open.clear()\n        self._pass(",
        "        self._pass(",
        (f"{_LOCAL}::test_accumulators_end_where_records_are_sent_as_they_are",),
    ),
    Bug(
        "accumulators of columns are sent after the epoch that closes their pane",
        "they are sent at the end of the tick, and all epochs came before",
        "columns/aggregates/local.py",
        "        places = np.searchsorted(first, [position for position, _ in self._epochs]).tolist()\n",
        "        places = [0] * len(self._epochs)\n",
        (_COLUMNS,),
    ),
    Bug(
        "accumulators of columns have records on both sides of an epoch, although order matters",
        "only epochs that close a pane were thought of",
        "columns/aggregates/local.py",
        "    return (numbers - least) + runs * size\n",
        "    return numbers - least\n",
        (f"{_LOCAL_COLUMNS}::test_the_last_of_equal_times_is_that_of_the_highest_epoch",),
    ),
    Bug(
        "a count of an accumulator replaces that of earlier records",
        "the first accumulator of a key is its count",
        "columns/aggregates/slot_kernels.py",
        "        np.add.at(self.fields[0], lot.places, sent[0])\n",
        "        self.fields[0][lot.places] = sent[0]\n",
        (_COLUMNS,),
    ),
    Bug(
        "NaN in columns is added up before it is sent",
        "arrays compare it as the loop does",
        "columns/aggregates/slot_kernels.py",
        "        return self._has_order(read[0])\n",
        "        return True\n",
        (f"{_LOCAL_COLUMNS}::test_records_after_nan_are_not_lost",),
    ),
    Bug(
        "accumulators in arrays go on after records that were sent as they are",
        "arrays are taken at the end of the tick",
        "operators/windows/local_aggregate.py",
        'after all that came before."""\n        self._seal()\n',
        'after all that came before."""\n',
        (f"{_LOCAL_COLUMNS}::test_accumulators_of_columns_end_where_records_are_sent_as_they_are",),
    ),
    Bug(
        "records and accumulators in columns are merged as objects",
        "the edges were joined whole",
        "columns/merging.py",
        "    kinds = [is_accumulated(batch.values) for batch in batches]\n",
        "    kinds = [False for _ in batches]\n",
        (f"{_LOCAL_COLUMNS}::test_records_and_accumulators_of_one_tick_stay_columns",),
    ),
    Bug(
        "accumulators are counted in place of records",
        "a row is a record",
        "engine/worker_reports.py",
        "counts.get(name, 0) + saved",
        "counts.get(name, 0)",
        (_UNSEEN,),
    ),
    Bug(
        "the sender holds accumulators at the end of a tick",
        "a snapshot lacks them",
        "engine/worker.py",
        "        return self._output.drain() if ends else self._output.take()\n",
        "        return self._output.take()\n",
        (_UNSEEN,),
    ),
    Bug(
        "another reader of an exchange gets accumulators",
        "one reader can merge them",
        "engine/compiler.py",
        "    if len(readers) != 1 or ",
        "    if ",
        (f"{_LOCAL}::test_whoever_sees_single_records_gets_them",),
    ),
    Bug(
        "a sample misses records with a period",
        "one in 64 is enough",
        "operators/key_sampling.py",
        "_ONE_IN = 61",
        "_ONE_IN = 64",
        (_HOT,),
    ),
]
