"""The planted bugs of sinks that take columns."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SINK_COLUMN_BUGS"]

_HOSTING = "operators/hosting/sink.py"
_CONTRACT = "sinks/contract.py"
_PROXIES = "runtime/transport/sink_proxies.py"
_PIECES = "runtime/spark/tasks/stage_output.py"
_CAST = "connectors/parquet/columns.py"
_TESTS = "tests/columns/test_sinks.py"
_CASTS = "tests/connectors/parquet/test_cast_columns.py"

SINK_COLUMN_BUGS = [
    Bug(
        "a sink makes rows of columns",
        "rows are right too",
        _HOSTING,
        '    write = offered(sink, "sink_columns") if getattr(sink, "takes_columns", True) else None\n',
        "    write = None\n",
        (f"{_TESTS}::test_files_of_columns",),
    ),
    Bug(
        "what collects records for the driver makes rows of columns",
        "the driver asks for lists",
        _PROXIES,
        "class SinkProxy(KeepingSink[Any, Any, Any]):",
        "class SinkProxy(StatelessSinkImpl[Any, Any, Any]):",
        (f"{_TESTS}::test_records_for_the_driver_stay_columns",),
    ),
    Bug(
        "a worker makes rows of the columns of a piece",
        "encode takes rows",
        _PROXIES,
        "        if encode is not None and columns is not None:\n",
        "        if encode is None and columns is not None:\n",
        (f"{_TESTS}::test_pieces_of_columns",),
    ),
    Bug(
        "a piece is stored by Arrow's own pickle, with the batch that it is a slice of",
        "a slice is small",
        _PIECES,
        "        return from_compact, (compact(piece),)\n",
        "        return NotImplemented\n",
        (f"{_TESTS}::test_stored_pieces_have_the_size_of_their_rows",),
    ),
    Bug(
        "a packed batch has the dictionary of the batch that it is a slice of",
        "Arrow cuts a slice itself",
        "columns/arrays.py",
        "    if not pa.types.is_dictionary(array.type) or len(array.dictionary) <= len(array):\n",
        "    if len(array):\n",
        (f"{_TESTS}::test_stored_pieces_have_the_size_of_their_rows",),
    ),
    Bug(
        "pieces of different types are joined as rows",
        "records of a tick belong together",
        _PROXIES,
        "        if self._batches and _schema(self._batches[-1].values) != _schema(values):\n",
        "        if not self._batches and self._waiting:\n",
        (f"{_TESTS}::test_pieces_of_columns",),
    ),
    Bug(
        "columns overtake the rows before them",
        "only the first columns know the schema",
        "connectors/parquet/sink.py",
        "        self._convert()  # the schema follows from the records before\n",
        "",
        (f"{_TESTS}::test_columns_after_rows",),
    ),
    Bug(
        "a subclass that writes lists gets columns",
        "sink_columns is the faster one",
        _CONTRACT,
        '    "sink_columns": ("sink_batch", "sink", "encode"),\n',
        '    "sink_columns": (),\n',
        (f"{_TESTS}::test_sinks_of_lists",),
    ),
    Bug(
        "a sink of lists gets keys and timestamps that are columns",
        "a column is a sequence",
        _HOSTING,
        "    batch = batch.listed()\n    write_batch",
        "    write_batch",
        (f"{_TESTS}::test_timestamps_of_lists",),
    ),
    Bug(
        "a column is cast without a check",
        "a type is a type",
        _CAST,
        "        found = array.cast(kind)\n",
        "        found = array.cast(kind, safe=False)\n",
        (_CASTS,),
    ),
    Bug(
        "a number that is too large becomes infinite",
        "a cast between floats is exact enough",
        _CAST,
        "    return None if _overflows(found) else found\n",
        "    return found\n",
        (_CASTS,),
    ),
    Bug(
        "a null in a column that has none is written",
        "the cast has seen it",
        _CAST,
        "        if found.null_count and not field.nullable:\n",
        "        if found.null_count and field.nullable is None:\n",
        (_CASTS,),
    ),
]
