"""Find new files while a run reads: whole ones only, and none that was read under another name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from malflow.connectors.files.paths import SPAN, digest, local_size
from malflow.connectors.files.renamed import head_of
from malflow.store.filesystem import is_local
from malflow.store.redaction import shown_path

__all__ = ["Watch"]

_LOG = logging.getLogger("malflow")


class _Head(NamedTuple):
    """What is known of a file: the length and digest of its start, and its size if it is local."""

    length: int
    digest: str
    size: int | None

    def begins(self, head: bytes) -> bool:
        """Whether a file with this start begins with the known one's."""
        return 0 < self.length <= len(head) and digest(head[: self.length]) == self.digest


@dataclass
class Watch:
    """The files of a source that were found so far in a run.

    A new local file counts once it has content and its size was the same in two listings, since it may still be
    written. A file that begins as a known one which is gone, or has other content now, is that one under a new name: it
    is set aside, with a warning, until the next start. That start knows how far it was read. If the known one is still
    there, the new file waits for one more listing: log rotation by copying truncates the old file after the copy.

    Args:
        storage_options: options for the file system.
    """

    storage_options: Mapping[str, Any] = field(repr=False)
    _known: dict[str, _Head] = field(default_factory=dict)
    _sizes: dict[str, int | None] = field(default_factory=dict)
    _copies: set[str] = field(default_factory=set)
    _aside: set[str] = field(default_factory=set)

    def begin(self, files: Iterable[str]) -> None:
        """Note the files with which a run begins."""
        self._known = {file: self._look(file) for file in files}
        self._sizes, self._copies, self._aside = {}, set(), set()

    def parts(self, files: Sequence[str]) -> list[str]:
        """Return the current files that are parts of the source."""
        self._note_growth(files)
        here = set(files)
        self._aside &= here
        return [file for file in files if file in self._known or self._is_part(file, here)]

    def _look(self, file: str, head: bytes | None = None) -> _Head:
        size = local_size(file)
        start = head_of(file, self.storage_options) if head is None else head
        return _Head(len(start), digest(start), size)

    def _note_growth(self, files: Iterable[str]) -> None:
        """Note more of the start of known local files that were shorter than it."""
        for file in files:
            known = self._known.get(file)
            if known is None or known.length >= SPAN or (size := local_size(file)) in (None, known.size):
                continue
            head = head_of(file, self.storage_options)
            if known.begins(head) or not known.length:
                self._known[file] = _Head(len(head), digest(head), size)

    def _is_part(self, file: str, here: set[str]) -> bool:
        if file in self._aside or not self._is_whole(file):
            return False
        head = head_of(file, self.storage_options)
        begun = [known for known, it in self._known.items() if it.begins(head)]
        old = next((known for known in begun if self._has_moved(known, here)), None)
        if old is not None:
            self._set_aside(file, old)
            return False
        if file not in self._copies and any(self._known[known].length == SPAN for known in begun):
            self._copies.add(file)
            return False
        self._known[file] = self._look(file, head)
        self._copies.discard(file)
        return True

    def _is_whole(self, file: str) -> bool:
        """Whether a file is no longer written, judging by its size; an object appears as a whole."""
        if not is_local(file):
            return True
        size = local_size(file)
        if not size or size != self._sizes.get(file):  # one that is empty may just have been opened for writing
            self._sizes[file] = size
            return False
        return True

    def _has_moved(self, known: str, here: set[str]) -> bool:
        """Whether a known file is gone, or no longer begins as it did."""
        return known not in here or not self._known[known].begins(head_of(known, self.storage_options))

    def _set_aside(self, file: str, old: str) -> None:
        self._aside.add(file)
        _LOG.warning(
            "source file '%s' begins as '%s' did, which is gone or has other content: it counts as renamed, and what "
            "was not read of it is read when the job starts again",
            shown_path(file),
            shown_path(old),
        )
