"""The planted bugs of exchanges: where keys belong, which part of a record is sent, and how fast workers read."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["EXCHANGE_BUGS"]

_FIELDS = "tests/engine/test_fields_sent.py"
_PLACEMENT = "tests/engine/test_placement.py"
_PARTITIONERS = "tests/test_partitioners.py"
_PACING = "tests/engine/test_poll_pacing.py"
_JSON = "tests/connectors/test_json_values.py"
_TYPES = "tests/connectors/files/test_types.py"
_FEWER = "tests/engine/test_fewer_epochs.py"
_SAME_PANES = f"{_FEWER}::test_fewer_epochs_close_the_same_panes_after_the_same_records"

EXCHANGE_BUGS = [
    Bug(
        "a function that passes its message on is taken for one that reads only the value",
        "only attributes are looked at",
        "callables.py",
        '        if read and (not instruction.opname.startswith("LOAD_ATTR") or instruction.argval != attribute):\n',
        '        if read and instruction.opname.startswith("LOAD_ATTR") and instruction.argval != attribute:\n',
        ("tests/streams/test_reads_of_values.py",),
    ),
    Bug(
        "the epoch that closes a pane is dropped for a later one",
        "only the distance counts",
        "operators/epochs/fewer.py",
        "                if epochs[following][1] >= horizons[index]:\n",
        "                if index:\n",
        (_SAME_PANES, f"{_FEWER}::test_results_are_as_with_all_epochs"),
    ),
    Bug(
        "an epoch closes a pane at the start of the next one",
        "the last instant is forgotten",
        "event_time/panes.py",
        "    return panes.last(number + 1 if panes.last(number) <= epoch else number)\n",
        "    return panes.start(number + 1)\n",
        (_SAME_PANES,),
    ),
    Bug(
        "the last epoch before the end is dropped",
        "the end is the last one",
        "operators/epochs/fewer.py",
        "            last -= 1\n",
        "            pass\n",
        (_SAME_PANES,),
    ),
    Bug(
        "only the first operator after an exchange tells epochs apart",
        "one stage too few",
        "engine/compiler.py",
        "            telling[port.vertex] = None if both is None else tuple(both.values())\n",
        "            telling[port.vertex] = telling[index] if isinstance(vertex.node, StatefulNode) else before\n",
        (f"{_FEWER}::test_each_program_gets_the_epochs_that_it_tells_apart",),
    ),
    Bug(
        "fields of accumulators are sent",
        "an accumulator is a value, too",
        "operators/routing.py",
        " and not (self._is_fixed is not None and self._is_fixed(batch.values)):",
        ":",
        (f"{_FIELDS}::test_accumulators_are_sent_whole",),
    ),
    Bug(
        "a function is called with its own result",
        "only columns have results",
        "aggregators/fuse.py",
        "        if self.gets_fields and SomeFields in set(map(type, values)):\n",
        "        if False:\n",
        (f"{_FIELDS}::test_some_fields_beside_whole_values_and_after_a_look_at_them",),
    ),
    Bug(
        "functions of two readers share a column",
        "names are enough",
        "engine/compiler.py",
        "    if len(readers) > 1 and not all(isinstance(field, str | int) for field in fields.values()):\n",
        "    if not readers:\n",
        (f"{_FIELDS}::test_whole_values_are_sent_if_one_reader_needs_them",),
    ),
    Bug(
        "what msgspec refuses is no JSON",
        "one parser is enough",
        "connectors/json_values.py",
        "    except Exception:  # noqa: BLE001 - its errors have no base in Python\n        return None\n",
        "    except Exception as error:\n        raise ValueError(str(error)) from error\n",
        (f"{_JSON}::test_each_text_has_the_value_that_it_has_alone",),
    ),
    Bug(
        "fields of a class are passed by their places",
        "a dataclass takes its fields in order",
        "connectors/files/typed.py",
        "        self._is_positional = self._made is not None and _has_parameters(self._made, self.names)\n",
        "        self._is_positional = True\n",
        (f"{_TYPES}::test_records_of_a_batch_are_as_one_by_one",),
    ),
    Bug(
        "true is an integer in a batch",
        "a bool is an int",
        "connectors/files/typed.py",
        "        if as_given is not None and as_given.issuperset(map(type, values)):\n",
        "        if as_given is not None and all(isinstance(it, tuple(as_given)) for it in values):\n",
        (f"{_TYPES}::test_records_of_a_batch_are_as_one_by_one",),
    ),
    Bug(
        "dicts with fields in another order are sent in the order of the first",
        "equal fields are enough",
        "records/rows.py",
        "        if found != [*names] * len(block) or set(map(type, found)) != {str}:",
        "        if set(found) != set(names) or set(map(type, found)) != {str}:",
        ("tests/records/test_rows.py::test_dicts_with_the_same_fields_are_sent_as_rows",),
    ),
    Bug(
        "names of fields lose their type",
        "equal is the same",
        "records/rows.py",
        "        if found != [*names] * len(block) or set(map(type, found)) != {str}:",
        "        if found != [*names] * len(block):",
        ("tests/records/test_rows.py::test_dicts_with_the_same_fields_are_sent_as_rows",),
    ),
    Bug(
        "the slots of a new worker come from one other",
        "a shortcut in the table",
        "partitioners.py",
        "            givers.rotate(-1)\n",
        "",
        (f"{_PARTITIONERS}::test_every_worker_has_its_share_of_slots",),
    ),
    Bug(
        "workers that stay exchange slots",
        "a table made anew for each number of workers",
        "partitioners.py",
        "            owners[slot] = worker\n",
        "            owners[slot] = (worker + workers) % workers if workers % 2 else workers - 1 - worker\n",
        (f"{_PARTITIONERS}::test_one_worker_more_takes_its_share_of_slots_and_no_other_moves",),
    ),
    Bug(
        "keys of an older version have the epochs of their new workers",
        "records become on time by an upgrade",
        "operators/epochs/frontiers.py",
        "_select(placed, self._placement)(key, range(workers))",
        "self._placement(key, range(workers))",
        (_PLACEMENT,),
    ),
    Bug(
        "keys of an older version stay where they were",
        "the number of workers is the same",
        "engine/states/rescale.py",
        "known and not former",
        "known",
        (_PLACEMENT,),
    ),
    Bug(
        "late records lose fields",
        "only the results were thought of",
        "streams/operators/windows.py",
        "reads=_fields_read(kernel, windows) if late is None else None,",
        "reads=_fields_read(kernel, windows),",
        (_FIELDS,),
    ),
    Bug(
        "a second reader lacks its fields",
        "the last one counts",
        "engine/compiler.py",
        "        fields |= node.reads\n",
        "        fields = {**node.reads}\n",
        (_FIELDS,),
    ),
    Bug(
        "an operator that needs whole values gets some fields",
        "readers of another kind are skipped",
        "engine/compiler.py",
        "            return None\n        fields |=",
        "            continue\n        fields |=",
        (_FIELDS,),
    ),
    Bug(
        "columns of two kinds are joined to one",
        "the same names are the same thing",
        "records/columnar.py",
        "len({(type(part), part.is_whole, *columns) for",
        "len({(part.is_whole, *columns) for",
        ("tests/records/test_rows.py",),
    ),
    Bug(
        "joined columns forget that there were other fields",
        "a flag that is not passed on",
        "records/rows.py",
        "return Rows(columns, length, self.is_whole)",
        "return Rows(columns, length)",
        (_FIELDS, "tests/records/test_rows.py"),
    ),
    Bug(
        "a worker reads less than the others",
        "a limit for each worker",
        "operators/hosting/source.py",
        "self._now, self.limits.limit = tick.now, tick.limit",
        "self._now, self.limits.limit = tick.now, tick.limit >> self.context.worker_id",
        (_PACING,),
    ),
    Bug(
        "parts with records wait while others have fewer than their share",
        "each part has its limit",
        "operators/hosting/poll_limits.py",
        "        while full and (share := rest // len(full)) >= _SMALLEST_POLL:\n",
        "        while full and (share := rest // len(full)) > BATCH_SIZE:\n",
        ("tests/operators/hosting/test_shared_polls.py",),
    ),
    Bug(
        "the error of a damaged file comes before the lines ahead of it",
        "lines are read ahead",
        "connectors/files/lines.py",
        "            self._damage = damage\n",
        "            raise damage\n",
        ("tests/connectors/files/test_source.py::test_lines_before_damage_are_read_before_its_error",),
    ),
    Bug(
        "texts that are not JSON are, with their neighbours",
        "joined by a comma",
        "connectors/json_values.py",
        "    return found[::2] if is_separated and end == len(text) else None\n",
        "    return found[::2] if end == len(text) else None\n",
        (_JSON,),
    ),
]
