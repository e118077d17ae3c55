"""The planted bugs of batches as columns: their order, their rows, their way to other workers, and their time."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["FRAME_BUGS"]

_FRAMES = "tests/columns/test_frames.py"
_ROUTING = "tests/columns/test_routing.py"
_EPOCHS = "tests/columns/test_epochs.py"
_STAY = "tests/columns/test_columns_stay.py"

FRAME_BUGS = [
    Bug(
        "columns of several parts come one part after the other",
        "concatenation is the cheapest join",
        "columns/frame.py",
        "        return self._of(joined.take(pa.array(turns(tuple(map(len, parts))))) if in_turn else joined)\n",
        "        return self._of(joined)\n",
        (f"{_FRAMES}::test_joined_batches_have_the_order_of_lists",),
    ),
    Bug(
        "columns are read after their rows were made",
        "the batch stays, since it costs nothing",
        "columns/frame.py",
        "            self._batch, self._held = None, {}\n",
        "            self._held = {}\n",
        (f"{_FRAMES}::test_readers_of_one_frame_keep_the_columns",),
    ),
    Bug(
        "a slice is sent with the dictionary of its batch",
        "Arrow knows how to pickle its arrays",
        "columns/arrays.py",
        '    return _stream(pa.record_batch(list(map(_without_unused, columns)), names=[""] * len(columns)))\n',
        '    return _stream(pa.record_batch(list(columns), names=[""] * len(columns)))\n',
        (f"{_FRAMES}::test_packed_slices_have_the_size_of_their_rows",),
    ),
    Bug(
        "readers of one stream share its frame",
        "batches are immutable",
        "columns/frame.py",
        "        return self if self._batch is None else self._of(self._batch)\n",
        "        return self\n",
        (f"{_FRAMES}::test_readers_of_one_frame_keep_the_columns", _STAY),
    ),
    Bug(
        "edges of columns are merged without their epochs",
        "only the records are joined",
        "columns/merging.py",
        "        if epoch is not None:\n            epochs.append((0 if part is None else part.count, epoch))\n",
        "",
        (f"{_ROUTING}::test_merged_columns_have_the_order_of_lists",),
    ),
    Bug(
        "edges of columns are merged one after the other",
        "the joined records are in the order of their edges",
        "columns/merging.py",
        "        if (np.diff(order) != 1).any():\n",
        "        if len(order) > len(self._whole):\n",
        (f"{_ROUTING}::test_merged_columns_have_the_order_of_lists",),
    ),
    Bug(
        "an epoch stays at its place in the whole batch when columns are routed",
        "positions are positions",
        "columns/routes.py",
        "            at = np.searchsorted(order[start:end], [position for position, _ in batch.epochs])\n",
        "            at = np.array([min(position, end - start) for position, _ in batch.epochs])\n",
        (f"{_ROUTING}::test_columns_go_to_the_workers_of_lists",),
    ),
    Bug(
        "workers of one dictionary are used for another of the same length",
        "the dictionary of a source does not change",
        "columns/routes.py",
        "        if self._dictionary is None or not self._dictionary.equals(dictionary):\n",
        "        if self._dictionary is None or len(self._dictionary) != len(dictionary):\n",
        (f"{_ROUTING}::test_dictionaries_of_one_length",),
    ),
    Bug(
        "a record at the epoch of its column is on time",
        "late means before",
        "columns/epochs.py",
        "        np.less_equal(numbers, lows, out=late)\n",
        "        np.less(numbers, lows, out=late)\n",
        (f"{_EPOCHS}::test_epochs_of_columns_are_those_of_records",),
    ),
    Bug(
        "a part without an epoch does not hold back the stream of columns",
        "what is unknown does not count",
        "columns/epochs.py",
        "        if stream is None or any(epoch is None for epoch in others):\n",
        "        if stream is None:\n",
        (f"{_EPOCHS}::test_epochs_of_columns_are_those_of_records",),
    ),
    Bug(
        "the epoch of a column goes back where a batch begins",
        "each batch has its own newest record",
        "columns/epochs.py",
        "        if epochs[0] < low:\n            np.maximum(epochs, low, out=epochs)\n",
        "",
        (f"{_EPOCHS}::test_epochs_of_columns_are_those_of_records",),
    ),
    Bug(
        "a column is left out that a later operator reads",
        "the first reader knows",
        "engine/plan.py",
        "    return None if after is None else after | node.passes\n",
        "    return node.passes or after\n",
        (f"{_STAY}::test_columns_that_nobody_reads_are_not_decoded",),
    ),
    Bug(
        "columns of two schemas for the driver become rows",
        "a chunk is cut by its size",
        "runtime/transport/chunks.py",
        "                if self._waiting and schema != self._schema:\n                    self._pack()\n",
        "",
        ("tests/columns/test_sinks.py::test_columns_of_several_schemas_for_the_driver_stay_columns",),
    ),
    Bug(
        "a question writes all keys back first",
        "the state is then up to date",
        "operators/keyed/stateful.py",
        "        found.update(arrays.look(keys, limit))\n",
        "        self.sync_state()\n        found.update(self.state)\n",
        ("tests/columns/test_live_answers.py::test_states_of_keys",),
    ),
    Bug(
        "arrays that begin with a restored state leave its first key out",
        "codes begin at one",
        "columns/aggregates/accumulators.py",
        "                field[places] = items\n",
        "                field[places[1:]] = items[1:]\n",
        ("tests/golden/test_in_columns.py::test_columns_continue_from_golden_files",),
    ),
    Bug(
        "a union with objects is drawn with columns",
        "one of its inputs has some",
        "graph.py",
        "bool(inputs) and columnar.issuperset(inputs)",
        "not columnar.isdisjoint(inputs)",
        ("tests/columns/test_marks.py::test_marks_say_who_makes_rows",),
    ),
    Bug(
        "a demotion is not counted",
        "the log has it",
        "operators/columns.py",
        "            self._operator.demotions += 1\n",
        "            pass\n",
        ("tests/columns/test_aggregate_traps.py::test_a_misfit_loses_no_batch",),
    ),
]
