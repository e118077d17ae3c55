"""The planted bugs of sinks that take columns, and of JSON and CSV that are read as columns."""

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

_JSON = "connectors/codecs/json_columns.py"
_LINES = "connectors/files/lines.py"
_JSON_TESTS = "tests/columns/test_json.py"
_EACH = f"{_JSON_TESTS}::test_a_parse_of_many_is_that_of_each"
_CSV = "columns/csv_rows.py"
_CSV_TESTS = "tests/columns/test_csv.py"
_SINGLY = f"{_JSON_TESTS}::test_lines_are_read_as_one_by_one"

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
        "class SinkProxy(KeepingSinkImpl[Any, Any, Any]):",
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
    Bug(
        "an object begins in one message and ends in the next",
        "a line end is no more than white space",
        "columns/texts.py",
        '    if not ((text[ends - 1] == ord("}")).all() and (text[ends + 1] == ord("{")).all()):\n',
        '    if not (text[ends - 1] == ord("}")).all():\n',
        (_EACH,),
    ),
    Bug(
        "the number of objects is not that of messages",
        "each message is an object",
        _JSON,
        "        if len(table) != count:\n",
        "        if len(table) < count:\n",
        (f"{_JSON_TESTS}::test_bad_records",),
    ),
    Bug(
        "a line end within a text becomes a space",
        "a line end is white space",
        _JSON,
        '_TABS = bytes.maketrans(b"\\n\\r", b"\\t\\t")\n',
        '_TABS = bytes.maketrans(b"\\n\\r", b"  ")\n',
        (f"{_JSON_TESTS}::test_bad_records",),
    ),
    Bug(
        "bytes that are no text are a record if nobody reads their field",
        "Arrow has looked at them",
        _JSON,
        "    if not text.isascii():\n        text.decode()\n",
        "",
        (f"{_JSON_TESTS}::test_bad_records",),
    ),
    Bug(
        "the first line of a block is read again after a cut",
        "a poll begins with a block",
        _LINES,
        "            start = _end_of_line(raw, begin)\n",
        "            start = 0\n",
        (_SINGLY,),
    ),
    Bug(
        "the byte order mark is dropped from every poll",
        "it is no text",
        _LINES,
        "        is_first = self._start.offset == 0 and not self.next\n",
        "        is_first = True\n",
        (_SINGLY,),
    ),
    Bug(
        "a bad line takes its neighbours with it to the slow path",
        "a poll is parsed as a whole",
        "connectors/files/parser.py",
        "                most = min(most, lines.buffered) // 2\n",
        "                most = 0\n",
        (f"{_JSON_TESTS}::test_columns_around_a_bad_line",),
    ),
    Bug(
        "quotes are split as other text is",
        "a delimiter within quotes is rare",
        "connectors/files/csv_source.py",
        "        if quote is None or quote.encode() not in data:\n",
        "        if quote is None or data:\n",
        (f"{_CSV_TESTS}::test_rows_that_were_written_are_read",),
    ),
    Bug(
        "a byte order mark within a file of rows is dropped",
        "Arrow knows where a file begins",
        _CSV,
        "        if data.startswith(_BOM):",
        '        if data.startswith(b"no"):',
        (f"{_CSV_TESTS}::test_rows_are_read_as_one_by_one",),
    ),
    Bug(
        "a number in a row that is too large is infinite",
        "Arrow refuses it",
        _CSV,
        "            if too_large is not None:\n",
        "            if too_large == name:\n",
        (f"{_CSV_TESTS}::test_bad_rows",),
    ),
    Bug(
        "a carriage return ends a row",
        "a text has either line end",
        _CSV,
        '            data = data.replace(b"\\r\\n", b"\\n")\n',
        '            data = data.replace(b"\\r\\n", b"\\n").replace(b"\\r", b"\\n")\n',
        (f"{_CSV_TESTS}::test_rows_are_read_as_one_by_one",),
    ),
]
