"""Find the files of a source that have other names since they were read, as log rotation gives them.

A position has digests of what was read before it. A file that no longer holds that under its old name is looked for
among the files that have no valid position: it is the one that begins with the same bytes, decompressed. A digest of
the first 4 KiB tells which files may be the one; the bytes before the position decide.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from malflow.connectors.files.lines import LinePosition, open_lines, split_lines
from malflow.connectors.files.paths import SPAN, InputFileError, MissingFileError, ReplacedFileError, digest
from malflow.store.filesystem import is_local
from malflow.store.redaction import shown_path

__all__ = ["OnRenamed", "Renames", "head_of", "is_set_aside", "names_of_unread"]

OnRenamed: TypeAlias = Literal["continue", "fail", "restart"]

_LOG = logging.getLogger("malflow")


class Renames:
    """The files of a source that were renamed since they were read.

    Args:
        positions: the position in each file that was read, by its old name.
        listed: the current files.
        storage_options: options for the file system.
    """

    def __init__(
        self, positions: Mapping[str, LinePosition], listed: Sequence[str], storage_options: Mapping[str, Any]
    ) -> None:
        self._storage_options = storage_options
        self._known = {file: at for file, at in positions.items() if at.offset and at.digest is not None}
        here = set(listed)
        self._names_changed = here != set(positions)
        self._gone = set(positions) - here
        self._moved = {file for file in self._known if file not in here or not self._is_in_place(file)}
        self._free = [file for file in listed if file not in positions or file in self._moved]

    def check_replaced(self, found: Iterable[str]) -> None:
        """Reject files that have other content under the same name.

        Args:
            found: the files that have another name now.

        Raises:
            ReplacedFileError: naming one.
        """
        for file in sorted(self._moved.difference(found, self._gone)):
            with open_lines(file, self._storage_options, "utf-8", split_lines) as lines:
                lines.seek(self._known[file])

    def found(self) -> dict[str, str]:
        """Return the new name of each renamed file, by its old name.

        Raises:
            InputFileError: if two files begin with what was read from one.
        """
        if not self._free or not self._known:
            return {}
        begun = self._begun_by_free_files()
        names: dict[str, str] = {}
        taken: set[str] = set()
        for old in sorted(begun, key=lambda file: (-self._known[file].offset, file)):
            if old not in self._moved:
                self._warn_of_copies(old, begun[old])
                continue
            files = [file for file in begun[old] if file not in taken]
            alike = [it for it in begun if it in self._moved and it not in names and self._is_alike(it, old)]
            if len(files) > len(alike):
                raise InputFileError(
                    old,
                    f"was renamed, and both '{shown_path(files[0])}' and '{shown_path(files[1])}' begin with what "
                    "was read from it; remove the copy, or pass on_renamed='restart' to read both from the beginning",
                )
            if files:
                names[old] = files[0]
                taken.add(files[0])
        return names

    def _begun_by_free_files(self) -> dict[str, list[str]]:
        """Return the files without a valid position that begin with what was read from a known one, by the known."""
        begun: dict[str, list[str]] = defaultdict(list)
        by_head = self._by_head()
        for file in self._free:
            head = head_of(file, self._storage_options)
            for length in {length for length, _ in by_head if 0 < length <= len(head)}:
                for old in (*by_head.get((length, digest(head[:length])), ()), *by_head.get((length, None), ())):
                    if old != file and self._begins_with(file, self._known[old]):
                        begun[old].append(file)
        return begun

    def _by_head(self) -> dict[tuple[int, str | None], list[str]]:
        """Return the known files by the length and digest of their start; those in place only if it is whole."""
        by_head: dict[tuple[int, str | None], list[str]] = defaultdict(list)
        for file, at in self._known.items():
            if file in self._moved or (at.offset >= SPAN and at.head is not None):
                by_head[min(SPAN, at.offset), at.head].append(file)
        return by_head

    def _is_in_place(self, file: str) -> bool:
        """Whether a listed file still holds what was read from it, as far as few and short reads can tell."""
        position = self._known[file]
        if not is_local(file) and not self._names_changed:
            return True
        try:
            with open_lines(file, self._storage_options, "utf-8", split_lines) as lines:
                if not lines.is_compressed:
                    return lines.holds(position)
                head = lines.read_head()[: position.offset]
        except InputFileError:
            return True  # its reader raises the error
        return position.head in (None, digest(head))

    def _begins_with(self, file: str, position: LinePosition) -> bool:
        try:
            with open_lines(file, self._storage_options, "utf-8", split_lines) as lines:
                return lines.holds(position)
        except InputFileError:
            return False

    def _is_alike(self, one: str, other: str) -> bool:
        return self._known[one][:4] == self._known[other][:4]

    def _warn_of_copies(self, old: str, files: Iterable[str]) -> None:
        for file in files:
            _LOG.warning(
                "source file '%s' begins with what was read from '%s', which is still there; it is read from its "
                "beginning; if it is a copy, leave it out of the path",
                shown_path(file),
                shown_path(old),
            )


def names_of_unread(unread: Iterable[str], listed: Sequence[str], known: Iterable[str]) -> dict[str, str]:
    """Return a new name for each file that is gone before anything was read of it: that of any new file.

    Args:
        unread: the files of which nothing was read.
        listed: the current files.
        known: the files that have a position under this name or another one.
    """
    taken = set(known)
    return dict(zip(sorted(set(unread).difference(listed)), (it for it in listed if it not in taken), strict=False))


def is_set_aside(error: InputFileError) -> bool:
    """Whether a running job that watches its files can leave one for its next start, given the error of its opening.

    Between its listing and its opening a file may be renamed, and a new one may take its name. The next start looks for
    what was read of it, and raises the error if it finds nothing. An object on a store is not compared again at each
    start, so its replacement is an error at once.
    """
    known = isinstance(error, MissingFileError) or (isinstance(error, ReplacedFileError) and is_local(error.path))
    if known:
        _LOG.warning(
            "source file '%s' %s: it may have been renamed after it was listed; what was not read of it is read under "
            "its new name, at the latest when the job starts again",
            shown_path(error.path),
            error.problem,
        )
    return known


def head_of(file: str, storage_options: Mapping[str, Any]) -> bytes:
    """Return the start of a file, decompressed; b"" if it cannot be read."""
    try:
        with open_lines(file, storage_options, "utf-8", split_lines) as lines:
            return lines.read_head()
    except InputFileError:
        return b""
