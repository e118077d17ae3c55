"""The planted bugs of aggregates over columns."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["KERNEL_BUGS"]

_SLOTS = "columns/aggregates/slot_kernels.py"
_CODES = "columns/aggregates/codes.py"
_PANES = "columns/aggregates/panes.py"
_RUNNING = "columns/aggregates/running.py"
_TIMES = "columns/aggregates/pane_times.py"
_OUTCOMES = "columns/aggregates/outcomes.py"
_TRAPS = "tests/columns/test_aggregate_traps.py"
_FLOATS = f"{_TRAPS}::test_floats_are_those_of_the_loop_of_python"
_INTEGERS = f"{_TRAPS}::test_integers_are_exact"
_ORDER = f"{_TRAPS}::test_many_records_of_one_key_are_in_order"
_KEY_ORDER = f"{_TRAPS}::test_keys_are_in_the_order_of_records_not_of_a_dictionary"
_DELTAS = f"{_TRAPS}::test_deltas_have_all_panes_and_what_they_drop"
_MISFITS = f"{_TRAPS}::test_a_misfit_loses_no_batch"

KERNEL_BUGS = [
    Bug(
        "sums of columns are added up by a library",
        "np.add.reduceat adds in another order",
        _SLOTS,
        "        np.add.at(self.fields[0], lot.places, read[0])\n\n    def each",
        "        it = lot.segments\n"
        "        self.fields[0][it.places] += np.add.reduceat(read[0][it.order], it.starts)\n\n    def each",
        (_FLOATS, _ORDER),
    ),
    Bug(
        "sums of floats in columns begin at zero",
        "0.0 + -0.0 is 0.0",
        _SLOTS,
        '[(np.float64, -0.0) if self.kind == "f" else (np.int64, 0)]',
        '[(np.float64, 0.0) if self.kind == "f" else (np.int64, 0)]',
        (_FLOATS,),
    ),
    Bug(
        "NaN wins in extremes of columns",
        "minimum.at propagates it, and a comparison does not",
        _SLOTS,
        "            self._has_negative_zeros = True  # perhaps\n            return False\n",
        "            return True\n",
        (_FLOATS,),
    ),
    Bug(
        "means of large integers in columns are rounded twice",
        "numpy rounds the total before it divides",
        _OUTCOMES,
        "-int(total.min())) > _IN_FLOATS:",
        "-int(total.min())) > _IN_FLOATS << 99:",
        (_INTEGERS,),
    ),
    Bug(
        "sums of columns wrap around",
        "64 bits have an end",
        _SLOTS,
        "            if self._bound + added > most:\n                raise Unfit(",
        "            if self._bound + added > most << 9:\n                raise Unfit(",
        (_INTEGERS, _MISFITS),
    ),
    Bug(
        "a null in a dictionary counts as a true field",
        "null_count of a dictionary array does not count it",
        "columns/aggregates/kernels.py",
        "    if array.null_count:\n        array = array.fill_null",
        "    if column.array.null_count:\n        array = array.fill_null",
        (f"{_TRAPS}::test_a_null_that_hides_in_a_dictionary_is_found",),
    ),
    Bug(
        "keys of columns are in the order of their dictionary",
        "its order is that of a writer, not of the records",
        _CODES,
        '        new = new[np.argsort(first, kind="stable")]\n',
        "",
        ("tests/columns/test_running.py", _KEY_ORDER, _ORDER),
    ),
    Bug(
        "results of a pane of columns are in the order of codes",
        "a key may have come in an earlier pane",
        _PANES,
        "        return codes[np.argsort(seen[codes])]\n",
        "        return codes\n",
        (_KEY_ORDER, _DELTAS, "tests/columns/test_windows.py"),
    ),
    Bug(
        "a batch that does not fit arrays is lost",
        "it was taken for added",
        "operators/columns.py",
        "            self.end(str(misfit))\n            return None\n",
        "            self.end(str(misfit))\n            return batch.values  # type: ignore[return-value]\n",
        (_MISFITS,),
    ),
    Bug(
        "arrays that end are not written to the state",
        "they were ahead of it",
        "operators/columns.py",
        "            self._operator.sync_state()\n            self.held = None\n",
        "            self.held = None\n",
        (_MISFITS,),
    ),
    Bug(
        "a pane is not written to the state",
        "only the newest is",
        _PANES,
        "            if not len(codes):\n                continue\n",
        "            if not len(codes) or number < max(self._rows):\n                continue\n",
        (_DELTAS,),
    ),
    Bug(
        "a delta forgets keys that a pane of columns dropped",
        "they were never written to the state",
        _PANES,
        "            if self._tracked:  # the delta tells",
        "            if self._tracked and not held:  # the delta tells",
        (_DELTAS,),
    ),
    Bug(
        "a record of columns counts after the epoch that closes its window",
        "the whole batch is added at once",
        _TIMES,
        "    _check_part(numbers[done:], least)\n",
        "",
        (f"{_TRAPS}::test_a_record_after_the_epoch_that_closes_its_window_is_refused",),
    ),
    Bug(
        "a question takes a change out of the next delta",
        "it marks what it has read as written",
        _RUNNING,
        "np.arange(min(limit, self._known)) if keys is None else self._codes.find(keys)\n",
        "np.arange(min(limit, self._known)) if keys is None else self._codes.find(keys)\n"
        "        self._dirty[codes] = False\n",
        (f"{_TRAPS}::test_a_question_does_not_count_as_a_delta",),
    ),
    Bug(
        "the mean of one integer is a float in the state of a variance",
        "Welford's first step does not divide",
        _SLOTS,
        '        first = int if self.kind == "i" else float\n',
        "        first = float\n",
        (_INTEGERS,),
    ),
    Bug(
        "of records of columns with one timestamp the last is the first",
        "an assignment with equal indices keeps the last one",
        _SLOTS,
        "            at = at[::-1]  # of several",
        "            at = at[::1]  # of several",
        (_ORDER, "tests/columns/test_windows.py"),
    ),
    Bug(
        "True and 1 are two keys of columns",
        "they are one key of Python",
        _CODES,
        "        if kinds and (kinds != {kind} or kind not in _KINDS):",
        "        if kinds and not kinds <= {*_KINDS, float}:",
        (f"{_TRAPS}::test_equal_keys_of_two_types_are_one",),
    ),
]
