"""Find the Parquet files of a source that have other names since they were read.

A renamed file keeps its size and the time of its last write; that is compared for the files without a position, once
one with a position is gone or has other content. Then the footer decides: it has the place, the size and usually the
extremes of each column. In an object store, the ETag decides, if it is a hash of the content.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from malflow.connectors.files.paths import InputFileError
from malflow.connectors.parquet.open_file import FileVersion, open_parquet, written_of
from malflow.store.filesystem import is_local
from malflow.store.redaction import shown_path

__all__ = ["RenamedWatch", "renamed_files"]

_LOG = logging.getLogger("malflow")
_MD5 = re.compile(r"[0-9a-f]{32}(-\d+)?$")
"""An ETag that is a hash of the content. S3 makes such ones without encryption by KMS."""


def renamed_files(
    versions: Mapping[str, FileVersion], listed: Sequence[str], storage_options: Mapping[str, Any]
) -> dict[str, str]:
    """Return the new name of each renamed file, by its old name.

    Args:
        versions: what was read of each file, by its old name.
        listed: the current files.
        storage_options: options for the file system.

    Raises:
        InputFileError: if two files fit one name that was read.
    """
    here = set(listed)
    versions = {file: it for file, it in versions.items() if is_local(file) or _MD5.match(it.written)}
    moved = {file for file in versions if file not in here or not _stands(file, versions[file])}
    free = [file for file in listed if file not in versions or file in moved]
    if not moved or not free:
        return {}
    names: dict[str, str] = {}
    for file in free:
        written = written_of(file, storage_options)
        alike = [old for old in sorted(moved) if old != file and versions[old][:2] == written]
        found = [old for old in alike if _is_of(file, versions[old], storage_options)]
        old = next((it for it in found if it not in names), None)
        if old is not None:
            names[old] = file
        elif found:
            raise InputFileError(
                found[0],
                f"was renamed, and both '{shown_path(names[found[0]])}' and '{shown_path(file)}' are what was read; "
                "remove the copy, or pass on_renamed='restart' to read both from the beginning",
            )
    return names


def _stands(file: str, version: FileVersion) -> bool:
    """Whether a listed file is the one that was read, as far as can be told without a request."""
    return not is_local(file) or written_of(file, {}) in (None, version[:2])


def _is_of(file: str, version: FileVersion, storage_options: Mapping[str, Any]) -> bool:
    try:
        opened = open_parquet(file, storage_options)
    except InputFileError:
        return False  # its reader raises the error
    try:
        return version.is_same(opened.version)
    finally:
        opened.close()


@dataclass
class RenamedWatch:
    """The local files that a run has listed so far, for those that get another name while it reads.

    Such a file is set aside, with a warning: the next start knows how far it was read.
    """

    _known: dict[str, tuple[int, str]] = field(default_factory=dict)
    _aside: set[str] = field(default_factory=set)

    def begin(self, files: Sequence[str]) -> None:
        """Note the files with which a run begins."""
        found = {file: written_of(file, {}) for file in files if is_local(file)}
        self._known = {file: it for file, it in found.items() if it is not None}
        self._aside = set()

    def parts(self, files: Sequence[str]) -> list[str]:
        """Return the current files that are parts of the source."""
        here = set(files)
        self._aside &= here
        return [file for file in files if not is_local(file) or file in self._known or self._is_part(file, here)]

    def _is_part(self, file: str, here: set[str]) -> bool:
        if file in self._aside or (written := written_of(file, {})) is None:
            return False
        alike = (known for known, it in self._known.items() if it == written)
        old = next((known for known in alike if known not in here or written_of(known, {}) != written), None)
        if old is None:
            self._known[file] = written
            return True
        self._aside.add(file)
        _LOG.warning(
            "source file '%s' has the size and the time of '%s', which is gone or has other content: it counts as "
            "renamed, and what was not read of it is read when the job starts again",
            shown_path(file),
            shown_path(old),
        )
        return False
