"""The error of a file that a sink writes."""

from __future__ import annotations

from malflow.errors import MalflowError
from malflow.store.redaction import shown_path

__all__ = ["SinkFileError"]


class SinkFileError(MalflowError, OSError):
    """The file of a sink can't be written, or differs from what was written.

    Attributes:
        path: the file.
        problem: the cause.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"sink file '{shown_path(path)}' {problem}")
        self.path = path
        self.problem = problem
