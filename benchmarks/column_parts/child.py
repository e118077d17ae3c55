"""One run of one peer: prints its processor time, in nanoseconds a record; null if it has no such program."""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIZE, BOUND, STEP = 10_000_000, 1_000_000, 1_000_000
"""Windows of ten seconds, a bound and steps of epochs of one second, in microseconds."""

GROUP = 1 << 20
"""The rows of a row group."""

PARTS = 4
"""The parts of a source in memory."""

_FEW = 10_000
"""The rows of a run before the one that is measured."""


def main() -> None:
    (program, peer, folder), (records, keys, each) = sys.argv[1:4], map(int, sys.argv[4:])
    if program == "write":
        for name, count in (("trades", records), ("few", _FEW)):
            _write(trades(count, keys, each), f"{folder}/{name}.parquet")
        table = trades(GROUP, keys, each)
        for part in range(PARTS):
            _write(table.take(np.arange(part, GROUP, PARTS)), f"{folder}/{part}.parquet")
        print("null")
        return
    if program in ("parts", "sent"):
        print(json.dumps(_of_parts(program, folder, records) if peer == "columns" else None))
        return
    module = importlib.import_module(_MODULES[peer])
    took = None
    for name in ("few", "trades"):  # the first run imports what the second one needs
        path = f"{folder}/{name}.parquet"
        from_file = program in ("read", "parquet")
        table = None if from_file else pq.read_table(path, read_dictionary=["symbol"]).combine_chunks()
        run = module.program(program, peer, path, table)
        if run is None:
            break
        began = time.process_time()
        run()
        share = getattr(module, "SHARE", 1)  # a peer that gets one in so many records
        took = 1e9 * (time.process_time() - began) * share / records
    print(json.dumps(took))


def _write(table: pa.Table, path: str) -> None:
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP)


def _of_parts(program: str, folder: str, records: int) -> float:
    """Return the processor time of all processes, without that of their start."""
    module = importlib.import_module("column_parts.parts")
    took = []
    for count in (_FEW, _FEW, records):  # the first run imports what the others need
        began = _spent()
        module.program(program, folder, count)()
        took.append(_spent() - began)
    return 1e9 * (took[2] - took[1]) / records


def _spent() -> float:
    used = [resource.getrusage(it) for it in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


def trades(records: int, keys: int, each: int) -> pa.Table:
    """Return trades: a symbol, a time that is a little out of order, an integer and two floats."""
    random = np.random.default_rng(7)
    names = pa.array([f"symbol {number}" for number in range(keys)])
    codes = pa.array(random.integers(0, keys, records).astype(np.int32))
    window = max(1, each * keys)
    stamps = np.arange(records) * (SIZE // window) + random.integers(-BOUND // 2, BOUND // 2, records)
    return pa.table(
        {
            "symbol": pa.DictionaryArray.from_arrays(codes, names),
            "ts": np.maximum(stamps, 0),
            "qty": random.integers(1, 1000, records),
            "price": random.random(records) * 100,
        }
    )


_MODULES: dict[str, Any] = {
    "columns": "column_parts.dataflows",
    "functions": "column_parts.dataflows",
    "fields": "column_parts.dataflows",
    "polars": "column_parts.peers",
    "duckdb": "column_parts.peers",
    "loop": "column_parts.peers",
    "bytewax": "column_parts.in_bytewax",
}

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
