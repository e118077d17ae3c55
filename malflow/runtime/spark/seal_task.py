"""The Spark task that writes a share of a distributed sink's transaction, as a part of a snapshot's job."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from malflow.diagnostics import operator_error
from malflow.errors import MalflowError
from malflow.runtime.spark.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.stage_output import read_pieces
from malflow.runtime.transport.script_classes import install_classes
from malflow.sinks.distributed import Share, new_token
from malflow.store.failpoint import failpoint

__all__ = ["SealTask", "StoredShare"]


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A share of a transaction with stored pieces.

    Attributes:
        sink: the name of the sink.
        transaction, number, of: as in `malflow.sinks.distributed.Share`.
        objects: the names of the objects with its pieces, in order.
    """

    sink: str
    transaction: int
    number: int
    of: int
    objects: Sequence[str]


@dataclass(frozen=True, slots=True)
class SealTask:
    """Spark task that writes and seals a share.

    Attributes:
        place: the place of the pieces.
        sinks: the sinks by name, pickled.
    """

    place: ScratchFolder
    sinks: bytes = field(repr=False)

    def __call__(self, share: StoredShare) -> Any:
        """Write a share, and return the result of its `seal`.

        Raises:
            RunFailed: if pieces are missing or damaged.
            OperatorError: if the sink fails.
        """
        install_classes(self.place.classes)
        impl = pickle.loads(self.sinks)[share.sink]  # noqa: S301 - the driver wrote it
        changelog = Changelog(self.place, 0)
        writer: Any = None
        try:
            writer = impl.open_writer(Share(share.transaction, share.number, share.of, new_token()))
            for name in share.objects:
                for piece in _read(changelog, name):
                    writer.write(piece)
            sealed = writer.seal()
            failpoint("share-sealed")
        except BaseException as error:
            if writer is not None:
                with suppress(Exception):  # the next run removes what is left
                    writer.discard()
            if isinstance(error, _Unreadable):
                raise error.cause from None
            if not isinstance(error, Exception):
                raise
            raise operator_error(share.sink, error, None, impl, about="snapshot") from error
        return sealed


class _Unreadable(Exception):
    """Pieces can't be read; the sink is not to blame."""

    def __init__(self, cause: MalflowError) -> None:
        super().__init__(cause)
        self.cause = cause


def _read(changelog: Changelog, name: str) -> list[Any]:
    try:
        return read_pieces(changelog, name)
    except MalflowError as error:
        raise _Unreadable(error) from error
