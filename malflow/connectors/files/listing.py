"""The base of sources with a file as a part: it lists files, finds new ones while a run reads, and renamed ones."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from malflow.checks import check_choice, check_flag, check_mapping, checked_duration
from malflow.connectors.files.partitions import PartitionColumns
from malflow.connectors.files.paths import (
    SPAN,
    InputFileError,
    Path,
    digest,
    listed_files,
    local_size,
    one_name,
    path_list,
)
from malflow.connectors.files.renamed import OnRenamed, head_of, names_of_unread
from malflow.durations import Duration
from malflow.sources.contract import StatefulSourceImpl
from malflow.store.filesystem import is_local
from malflow.store.redaction import shown_path

__all__ = ["ListedFiles", "OnReplaced", "Watch"]

V = TypeVar("V")
T = TypeVar("T")
S = TypeVar("S")

_LOG = logging.getLogger("malflow")

OnReplaced: TypeAlias = Literal["fail", "restart"]


class _Watches(Protocol):
    """Knows the files of a run, to tell new ones from renamed ones."""

    def begin(self, files: Sequence[str], /) -> None: ...
    def parts(self, files: Sequence[str], /) -> list[str]: ...


class ListedFiles(StatefulSourceImpl[str, V, T, S], ABC):
    """A source that reads files through fsspec: local paths, ``s3://``, ``memory://`` and so on.

    Each file is a part, named by its full path or URL.

    Args:
        path: a path, URL or glob, or several.
        partitions: the columns from the names of folders.
        on_replaced: how to handle a file that has other content when a run resumes.
        on_renamed: how to handle a file that has another name when a run resumes.
        storage_options: options for the file system.
        in_order: whether a worker reads its files one after the other.
        discover_every: how often to look for new files.

    Raises:
        GraphError: if an argument is invalid.
    """

    bounded = True

    def __init__(
        self,
        path: Path | Iterable[Path],
        partitions: PartitionColumns,
        *,
        on_replaced: OnReplaced,
        on_renamed: OnRenamed,
        storage_options: Mapping[str, Any] | None,
        in_order: bool,
        discover_every: Duration | None,
    ) -> None:
        me = type(self).__name__
        check_choice(me, "on_replaced", on_replaced, ("fail", "restart"))
        check_choice(me, "on_renamed", on_renamed, ("continue", "fail", "restart"))
        check_mapping(me, "storage_options", storage_options, "options of the file system")
        check_flag(me, "in_order", in_order)
        self._paths = path_list(path, me)
        self._partitions = partitions
        self._storage_options = dict(storage_options or {})
        self._on_renamed: OnRenamed = on_renamed
        self.in_order = in_order
        if discover_every is not None:  # a class derived from this one may have a default of its own
            self.discover_every = checked_duration(me, "discover_every", discover_every, or_else="None")
        self._watch = self._new_watch()
        self._sizes: dict[str, int] = {}

    def list_parts(self) -> list[str]:
        """Return the files: full paths or URLs, each once; sorted, or path by path if `in_order`.

        Raises:
            InputFileError: if a path does not exist; or a glob matches no file and `discover_every` is None; or the
                folders of a file do not fit `partitions`.
        """
        files = self._files()
        self._partitions.tell(files)
        if self.discover_every is not None:
            self._watch.begin(files)
        return files

    def part_sizes(self, parts: Sequence[str]) -> dict[str, int]:
        """Return the stored bytes of the files that the last listing gave a size for."""
        return {part: self._sizes[part] for part in parts if part in self._sizes}

    def list_again(self) -> list[str]:
        """Return the files while a run reads, without new ones that may still be written, or that were renamed.

        Raises:
            InputFileError: if a path does not exist, or the folders of a file do not fit `partitions`.
        """
        files = self._files()
        return files if self._on_renamed == "restart" else self._watch.parts(files)

    def _files(self) -> list[str]:
        self._sizes = {}
        files = listed_files(
            self._paths,
            self._storage_options,
            in_order=self.in_order,
            may_be_none=self.discover_every is not None,
            in_partitions=self._partitions.are_given,
            sizes=self._sizes,
        )
        self._partitions.check(files)
        return files

    @property
    def follows_renames(self) -> bool:
        """Whether a file that is renamed before it is opened is left for the next start: in a watched folder."""
        return self.discover_every is not None and self._on_renamed == "continue"

    def renamed_parts(self, positions: Mapping[str, S], listed: Sequence[str]) -> Mapping[str, str]:
        """Return the new names of files that were renamed since they were read, by their old ones.

        Raises:
            InputFileError: if there is one and `on_renamed` is ``"fail"``, or two files are what was read.
            ReplacedFileError: if a file of a watched folder has other content, and none has what was read from it.
        """
        found = {} if self._on_renamed == "restart" else self._found_again(positions, listed)
        for old, new in found.items():
            if self._on_renamed == "fail":
                raise InputFileError(
                    old, f"was renamed to '{shown_path(new)}'; pass on_renamed='continue' to read on there"
                )
            _LOG.warning(
                "source file '%s' is now '%s', which %s; if it is another file, pass on_renamed='restart'",
                shown_path(old),
                shown_path(new),
                self._continuation(positions[old]),
            )
        return found | names_of_unread(self._unread(positions), listed, [*positions, *found.values()])

    def present_part(self, part: str) -> str:
        """Return the current name of a part; older versions named a file by its path as given."""
        return one_name(part, self._storage_options) if isinstance(part, str) else part

    @abstractmethod
    def _new_watch(self) -> _Watches:
        """Return a watch that knows no file."""

    @abstractmethod
    def _found_again(self, positions: Mapping[str, S], listed: Sequence[str]) -> dict[str, str]:
        """Return the new name of each file that was read and renamed, by its old name; raises as `renamed_parts`."""

    @abstractmethod
    def _unread(self, positions: Mapping[str, S]) -> list[str]:
        """Return the files that were never read."""

    @abstractmethod
    def _continuation(self, position: S) -> str:
        """Return the reason why a file is the renamed one, and where reading continues, for a warning."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(shown_path(path)) for path in self._paths)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": self._new_watch(), "_sizes": {}}


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
