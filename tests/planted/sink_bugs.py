"""The planted bugs of distributed sinks: pieces, shares, orphans and commits."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["SINK_BUGS"]

_SINKS = "tests/spark/test_distributed_sinks.py"
_LAWS = "tests/connectors/parquet/test_laws.py"
_TABLES = "tests/connectors/test_tables_on_workers.py"
_POSTGRES = "tests/connectors/postgres/test_on_workers.py"
_PIECES = "runtime/spark/sinks.py"
_STAGING = "connectors/staging/sink.py"
_REFUSALS = ("tests/testing/test_refusals.py::test_a_refused_record_is_one_letter_whatever_crashes",)

SINK_BUGS = [
    Bug(
        "the letters of a refused transaction wait for the next snapshot",
        "they are states as all others",
        "engine/sinks.py",
        "        letters = [delta for it in self._letters.values() for delta in it.amendments()]\n",
        "        letters: list[StateDelta] = []\n",
        _REFUSALS,
    ),
    Bug(
        "the rest of a refused transaction is committed before its letters are durable",
        "the rest is known, so all is well",
        "runtime/coordination/snapshots.py",
        "            if is_done:\n                return\n",
        "            if is_done or self._sinks.commit(self._sinks._prepared):\n                return\n",
        _REFUSALS,
    ),
    Bug(
        "shares are committed before the manifest",
        "the job is over, so all is written",
        "runtime/spark/snapshots.py",
        "            files = [\n                write_file(writer, it, codec, compression",
        "            for cut in cuts:\n"
        "                self._sinks._transactions[cut.sink]._impl.commit([cut.handle])\n"
        "            files = [\n                write_file(writer, it, codec, compression",
        (f"{_SINKS}::test_a_run_that_is_killed_at_any_point_goes_on",),
    ),
    Bug(
        "a task that was repeated sends the pieces of its own",
        "each attempt stores its own",
        "runtime/spark/tasks/stage_output.py",
        "        return False\n",
        "        return True\n",
        (f"{_SINKS}::test_of_two_attempts_at_once_the_pieces_of_the_first_count",),
    ),
    Bug(
        "pieces that find no room are lost",
        "a scratch folder is only for a while",
        "runtime/spark/tasks/stage_output.py",
        "        self.sinks.append((sink, self._changelog.write_sink_pieces(*self._name, data), len(data)))\n",
        "        try:\n"
        "            self.sinks.append((sink, self._changelog.write_sink_pieces(*self._name, data), len(data)))\n"
        "        except Exception:\n"
        "            pass\n",
        ("tests/spark/test_full_scratch.py::test_a_scratch_folder_that_pieces_fill",),
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
        "runtime/spark/changelog/changelog.py",
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
        "is_due and key not in keep and",
        "is_due and",
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
    Bug(
        "rows of a table are divided into shares by worker",
        "a row's key is that of its stream",
        "connectors/segments.py",
        "ONE_SHARE: Final = 1 << 60",
        "ONE_SHARE: Final = 1",
        (f"{_TABLES}::test_of_the_rows_with_a_key_the_last_is_there",),
    ),
    Bug(
        "a transaction whose rows are dropped is read again",
        "the ledger skips it",
        "connectors/tables/ledger_sink.py",
        "            if transaction > self._committed:\n",
        "            if transaction:\n",
        (f"{_TABLES}::test_a_run_that_is_killed_at_any_point_continues",),
    ),
    Bug(
        "a sealed transaction is not checked",
        "the server checks it at the commit",
        "runtime/spark/snapshots.py",
        "            self._sinks.check(cuts)\n",
        "",
        (f"{_TABLES}::test_a_row_that_the_table_rejects_ends_the_run_before_its_snapshot",),
    ),
    Bug(
        "only sinks with tasks get the store",
        "others have nothing in it",
        "engine/sink_transactions.py",
        'if store is not None and offers(self._impl, "use_store"):',
        'if store is not None and self._pieces is not None and offers(self._impl, "use_store"):',
        (f"{_TABLES}::test_one_thread_continues_what_workers_have_sealed",),
    ),
    Bug(
        "the staged rows of Postgres are not counted",
        "the table is there, so its rows are",
        "connectors/postgres/staged_rows.py",
        "            if count is None or count[0] != size:\n",
        "            if count is None:\n",
        (f"{_POSTGRES}::test_a_server_that_crashes_between_copy_and_merge_loses_nothing",),
    ),
    Bug(
        "the check of a transaction does not know those before it",
        "each is checked by itself",
        "engine/sink_transactions.py",
        "[*(handle for _, handle in pending), cut.handle]",
        "[cut.handle]",
        (f"{_TABLES}::test_a_row_is_checked_after_those_that_are_not_committed",),
    ),
    Bug(
        "staged tables of later runs are dropped",
        "they belong to the sink",
        "connectors/postgres/staged_rows.py",
        " and int(claim) <= self._claim and name not in keep",
        " and name not in keep",
        (f"{_POSTGRES}::test_a_run_that_is_replaced_leaves_the_rows_of_the_next",),
    ),
    Bug(
        "rows before a truncation are appended",
        "the table is emptied first",
        "connectors/postgres/writing.py",
        "self._cleared, self._texts = True, []",
        "self._cleared = True",
        (f"{_POSTGRES}::test_appended_rows_stay_in_order_and_may_empty_the_table",),
    ),
]
