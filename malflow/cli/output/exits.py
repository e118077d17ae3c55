"""The exit codes of the commands, and the errors that commands raise themselves."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from malflow.errors import (
    ConfigError,
    FencedError,
    GraphError,
    MissingDependency,
    OperatorError,
    QueryError,
    RunFailed,
    SnapshotError,
    UnsupportedOperator,
)

__all__ = ["CommandError", "Exit", "Leave", "exit_code"]


class Exit(IntEnum):
    """The exit codes; a code is never given another meaning."""

    DONE = 0
    UNFORESEEN = 1
    USAGE = 2
    FLOW = 3
    CONFIGURATION = 4
    OPERATOR = 5
    SNAPSHOT = 6
    FENCED = 7
    RUN = 8
    MISSING = 9
    FOUND = 10
    NO_RUN = 11
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """What the code tells, for the help and the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.DONE: "done, or stopped by a signal with its state kept",
    Exit.UNFORESEEN: "an error that has no code of its own, such as an exception of the script",
    Exit.USAGE: "the command was not understood",
    Exit.FLOW: "the flow can't be found, or is malformed (GraphError)",
    Exit.CONFIGURATION: "the configuration is wrong",
    Exit.OPERATOR: "a function of the dataflow failed (OperatorError)",
    Exit.SNAPSHOT: "a snapshot can't be read or written (SnapshotError)",
    Exit.FENCED: "another run has taken the job over (FencedError); don't start this one again",
    Exit.RUN: "processes, Spark or the machine failed (RunFailed)",
    Exit.MISSING: "a package is not installed (MissingDependency)",
    Exit.FOUND: "`check` or `snapshots verify` found something, `plan` found that a start would be refused, or `run` "
    "found a live run of the job",
    Exit.NO_RUN: "there is no such run, or it did not answer",
    Exit.INTERRUPTED: "ended at once by a second Ctrl-C, or by one outside a run",
    Exit.BROKEN_PIPE: "the reader of the output has gone (a broken pipe)",
    Exit.TERMINATED: "ended at once by a second SIGTERM, or by one outside a run",
}

_CODES: Sequence[tuple[type[BaseException], Exit]] = (
    (ConfigError, Exit.CONFIGURATION),
    (GraphError, Exit.FLOW),
    (UnsupportedOperator, Exit.FLOW),
    (OperatorError, Exit.OPERATOR),
    (FencedError, Exit.FENCED),
    (SnapshotError, Exit.SNAPSHOT),
    (RunFailed, Exit.RUN),
    (QueryError, Exit.NO_RUN),
    (MissingDependency, Exit.MISSING),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (BrokenPipeError, Exit.BROKEN_PIPE),
)


class CommandError(Exception):
    """A command can't do its work.

    Attributes:
        code: its exit code.
        operator: the operator it is about, or None.
        location: ``file:line`` of the fault, or None.
    """

    def __init__(
        self, message: str, code: Exit = Exit.FLOW, *, operator: str | None = None, location: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.operator = operator
        self.location = location


class Leave(Exception):
    """Ends a command that has said everything.

    Attributes:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends by an error."""
    if isinstance(error, CommandError | Leave):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.UNFORESEEN)
