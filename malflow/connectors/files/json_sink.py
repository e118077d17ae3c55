"""A sink that writes JSON lines."""

from __future__ import annotations

import json
from typing import Any

from malflow.connectors.files.sink import LineSink, UnwritableValue
from malflow.connectors.json_names import check_names
from malflow.type_parameters import K, T, V

__all__ = ["JsonLinesSink"]

_encoded = json.JSONEncoder(allow_nan=False).encode


class JsonLinesSink(LineSink[K, V, T]):
    r"""Write the value of each message as a line of JSON, as `json.dumps` does.

    JSON has no NaN or infinities. They are an error, and so are two names that are one as text, 1 and ``"1"``. Folders,
    visibility, failed runs and resumed runs are as in `TextFileSink`.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created. A path that ends
            with a slash is a folder.
        append: whether to append to an existing file (local files only). By default a run without a persistence
            replaces it, with a warning; a run that resumes continues it.
        formatter: returns the object to write as JSON for a message; by default its value.
        suffix: for a folder, the suffix of the files' names, such as ``".jsonl.gz"``; ``".jsonl"`` by default.
        delivery: for a folder, ``"exactly-once"`` by default, or ``"at-least-once"``: a file becomes visible at each
            snapshot and at the end of the run, and a run that resumes writes the records since the snapshot again.
        storage_options: options for the file system, such as credentials.
        retry_for: for a folder, how long the run waits for an unreachable object store; a minute by default.
        on_data_loss: for a folder, ``"fail"`` (the default) or ``"continue"`` if the ledger lacks a committed
            transaction, for example since the folder was restored from a backup or deleted.
        on_workers: for a folder, whether the workers write the files, on Spark; all machines must then reach it; True
            by default. If False, the driver does.

    Raises:
        GraphError: if an argument is invalid.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from malflow import DataMessage
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sink = JsonLinesSink(f"{directory}/out.jsonl", formatter=lambda msg: [msg.key, msg.value])
    ...     sink.sink(DataMessage("Ulm", 12, 0))
    ...     sink.close()
    ...     Path(directory, "out.jsonl").read_text()
    '["Ulm", 12]\n'
    """

    _suffix = ".jsonl"

    def _line(self, value: Any) -> bytes:
        try:
            line = f"{_encoded(value)}\n".encode("ascii")
            check_names((value,))
        except (TypeError, ValueError, RecursionError) as error:
            raise UnwritableValue(self._path, value, f"it is not JSON ({error})") from error
        return line
