"""A sink that writes JSON lines."""

from __future__ import annotations

import json
from typing import Any

from malflow.connectors.files.sink import FileSink, UnwritableValue
from malflow.type_parameters import K, T, V

__all__ = ["JsonLinesSink"]


class JsonLinesSink(FileSink[K, V, T]):
    r"""Write the value of each message as a line of JSON, as `json.dumps` does.

    Visibility, failed runs and resumed runs are as in `TextFileSink`.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created.
        append: whether to append to an existing file, which only local files support. By default a run
            without a persistence replaces it, with a warning; one that resumes continues it.
        formatter: returns the object to write as JSON for a message; by default its value.
        storage_options: options for the file system, such as credentials.

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

    def _line(self, value: Any) -> bytes:
        try:
            return f"{json.dumps(value)}\n".encode("ascii")
        except (TypeError, ValueError, RecursionError) as error:
            raise UnwritableValue(self._path, value, f"it is not JSON ({error})") from error
