"""The planted bugs of distributed sinks: pieces, shares, orphans and commits."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SINK_BUGS"]

_SINKS = "tests/spark/test_distributed_sinks.py"
_LAWS = "tests/connectors/parquet/test_laws.py"
_PIECES = "runtime/spark/sink_pieces.py"
_STAGING = "connectors/staging/sink.py"

SINK_BUGS = [
    Bug(
        "shares are committed before the manifest",
        "the job is over, so all is written",
        "runtime/spark/snapshots.py",
        "            files = [write_file(writer, it, codec, compression",
        "            for cut in cuts:\n"
        "                self._sinks._transactions[cut.sink]._impl.commit([cut.handle])\n"
        "            files = [write_file(writer, it, codec, compression",
        (f"{_SINKS}::test_a_run_that_is_killed_at_any_point_goes_on",),
    ),
    Bug(
        "a task that was repeated sends the pieces of its own",
        "each attempt stores its own",
        "runtime/spark/stage_output.py",
        "        return False\n",
        "        return True\n",
        (f"{_SINKS}::test_of_two_attempts_at_once_the_pieces_of_the_first_count",),
    ),
    Bug(
        "a share that is sealed again has the name of the first",
        "a share is named by its number",
        _STAGING,
        "{number}-{share.token}{self._suffix}",
        "{number}-0{self._suffix}",
        (f"{_SINKS}::test_each_record_is_visible_once",),
    ),
    Bug(
        "only the last share of a transaction counts",
        "a sink has one handle",
        _PIECES,
        "found.setdefault(share.sink, []).extend([] if result is None else [result])",
        "found[share.sink] = [] if result is None else [result]",
        (f"{_SINKS}::test_each_record_is_visible_once",),
    ),
    Bug(
        "shares of later generations come first",
        "their order does not matter",
        _PIECES,
        "for generation in sorted({it.generation for it in stored}):",
        "for generation in sorted({it.generation for it in stored}, reverse=True):",
        (f"{_SINKS}::test_the_records_of_a_key_stay_in_order_over_a_rescale",),
    ),
    Bug(
        "a sweep drops files that it is to keep",
        "what is not committed is an orphan",
        _STAGING,
        "sweep(output.owned, _files_of(keep), output.is_obsolete(None))",
        "sweep(output.owned, (), output.is_obsolete(None))",
        (_LAWS,),
    ),
    Bug(
        "a rescale drops what is not sealed",
        "pieces belong to a generation",
        "runtime/spark/changelog.py",
        'name = f"{RUNS}{self._place.run}/sinks/{place}"',
        'name = f"{self._folder()}{place}"',
        (f"{_SINKS}::test_the_records_of_a_key_stay_in_order_over_a_rescale",),
    ),
    Bug(
        "the pieces of a snapshot that failed are dropped",
        "the snapshot is over",
        "runtime/spark/host.py",
        "            self._sink_pieces.forget(tick)\n",
        "        self._sink_pieces.forget(tick)\n",
        (f"{_SINKS}::test_each_record_is_visible_once",),
    ),
    Bug(
        "records that a failed attempt left are encoded again",
        "the sink is new in each tick",
        "runtime/transport/sink_proxies.py",
        "pieces, self._pieces, self._batches, self._waiting, self.bytes = self._pieces, [], [], 0, 0.0",
        "pieces, self._pieces, self.bytes = self._pieces, [], 0.0",
        (f"{_SINKS}::test_records_that_a_failed_attempt_left_are_dropped",),
    ),
    Bug(
        "a sweep drops segments that a snapshot has",
        "what is not committed is an orphan",
        "connectors/segments.py",
        "key.startswith(prefix) and key not in keep and",
        "key.startswith(prefix) and",
        ("tests/connectors/test_segments.py",),
    ),
    Bug(
        "a segment is unpickled whatever it has",
        "the store is trusted",
        "connectors/segments.py",
        "if data is None or sha256(data).digest() != digest:",
        "if data is None:",
        ("tests/connectors/test_segments.py",),
    ),
    Bug(
        "the data file of a transaction may be gone when it is added",
        "the log names files, and does not look at them",
        "connectors/delta/table.py",
        "        if gone is not None:\n",
        "        if gone is not None and False:\n",
        ("tests/connectors/delta/test_sink.py::test_a_data_file_that_is_gone_is_an_error_and_never_in_the_log",),
    ),
]
