"""Read the physical lines of one file, decoded block by block, with their byte positions."""

from __future__ import annotations

import codecs
import io
import lzma
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from gzip import BadGzipFile
from itertools import chain
from typing import Any, NamedTuple, Self
from zipfile import BadZipFile, ZipFile

from fsspec.compression import compr
from fsspec.spec import AbstractBufferedFile

from malflow.connectors.files.paths import SPAN, InputFileError, MissingFileError, ReplacedFileError, digest, spans
from malflow.errors import GraphError
from malflow.names import written_as
from malflow.store import s3
from malflow.store.filesystem import compression_of, filesystem_of
from malflow.store.redaction import shown_path
from malflow.words import listed, plural

__all__ = [
    "ByteBuffer",
    "LineBuffer",
    "LinePosition",
    "checked_encoding",
    "is_undecodable",
    "open_lines",
    "split_keeping_ends",
    "split_lines",
]

CHUNK = 1 << 18
"""The size of a block in bytes: a few thousand lines, which stay in the CPU cache while they are split."""

_AHEAD = 4
"""The blocks that a poll may read ahead, so that it need not end with a block. Each open file holds so many, at most:
lines of 128 bytes fill the largest poll."""

REMOTE_BLOCK = 1 << 22
"""The number of bytes per request to an object store; each open file holds one such block in memory."""

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_DAMAGED = (EOFError, BadGzipFile, BadZipFile, lzma.LZMAError, zlib.error)
_SHOWN = 3
"""The most members of an archive to name, to fit the message on a line; the others are counted."""

_OF_MACOS = "__MACOSX/"
"""The folder in an archive in which macOS keeps attributes of the files."""


@written_as("malflow.LinePosition")
class LinePosition(NamedTuple):
    """A position between two lines of a file.

    Attributes:
        offset: the number of bytes before it, in the decompressed file.
        line: the number of physical lines before it.
        open_line: whether the line before it was the file's last and had no line end yet.
        digest: the digest of the start of the file and the bytes before the position; None in older positions.
        head: the digest of the start of the file alone; None in older positions.
        ended: whether the file ended there when it was read; False in older positions.
    """

    offset: int = 0
    line: int = 0
    open_line: bool = False
    digest: str | None = None
    head: str | None = None
    ended: bool = False


class _Block(NamedTuple):
    raw: bytes
    lines: int
    suspect: bool


class LineBuffer:
    r"""The buffered lines of one open file: `lines`, of which those before `next` are consumed.

    Lines are split at ``\n`` only. Bytes that do not decode become surrogates (see `is_undecodable`).
    """

    def __init__(
        self,
        path: str,
        file: Any,
        opened: ExitStack,
        encoding: str,
        split: Callable[[str], list[str]],
        read_head: Callable[[int], bytes] | None = None,
        *,
        stored: Any = None,
    ) -> None:
        self.is_compressed = stored is not None
        self._stored = file if stored is None else stored
        self.lines: list[str] = []
        self.next = 0
        self._buffered = 0  # the number of lines in the blocks
        self._path = path
        self._opened = opened
        self._file = file
        self._encoding = encoding
        self._split = split
        self._read_head = read_head or self._read_first
        self._blocks: deque[_Block] = deque()
        self._is_at_end = False
        self._damage: InputFileError | None = None
        self._start = LinePosition()
        self._tail = b""
        self._head = self._before = b""  # start of the file, and bytes before `_start`, for the digest

    def seek(self, position: LinePosition) -> None:
        """Seek to a position that `position` returned.

        Raises:
            ReplacedFileError: if the file is shorter, or no longer holds the bytes read before.
        """
        self._start = position
        if position.offset == 0:
            return
        head, tail = spans(position.offset)
        with _damage_named(self._path):
            self._head = self._read_head(head)
            self._file.seek(max(0, position.offset - SPAN))
            self._before = bytes(self._file.read(min(SPAN, position.offset)))
        if len(self._before) < min(SPAN, position.offset):
            raise ReplacedFileError(self._path, f"is shorter than the {position.offset} bytes read from it")
        if position.digest is None:
            if (self._before[-1:] == b"\n") is position.open_line:
                raise ReplacedFileError(self._path, f"has changed: byte {position.offset} is no longer a line end")
        elif digest(self._head, self._before[tail - position.offset :] if tail < position.offset else b"") != (
            position.digest
        ):
            raise ReplacedFileError(
                self._path, f"was replaced: its first {position.offset} bytes differ from those read before"
            )

    def holds(self, position: LinePosition) -> bool:
        """Whether the file begins with the bytes read before a position of any file; nothing is read afterwards."""
        try:
            self.seek(position)
        except ReplacedFileError:
            return False
        return True

    def go_on_to(self, position: LinePosition) -> bool:
        """Read ahead to a later position; return whether it exists in this file and was not passed yet."""
        while (lines := position.line - self._start.line - self.next) > 0:
            if not self.has(self.next):
                return False
            self.advance(min(lines, self._buffered - self.next))
        here = self.position
        return position[:3] == here[:3] and position.digest in (here.digest, None)

    def read_head(self) -> bytes:
        """Return the start of the file, of at most `SPAN` bytes; nothing else is read afterwards."""
        with _damage_named(self._path):
            return self._read_head(SPAN)

    def has(self, at: int) -> bool:
        """Whether there is a line `at`; reads as far as necessary."""
        while at >= self._buffered:
            if not self._fill():
                return False
        return True

    def read_ahead(self, count: int) -> None:
        """Buffer `count` lines to consume, unless they are long; `has` raises an error after the lines before it."""
        try:
            while self._buffered - self.next < count and len(self._blocks) < _AHEAD and not self._is_at_end:
                self._is_at_end = not self._fill()
        except InputFileError as damage:
            self._damage = damage

    @property
    def is_used_up(self) -> bool:
        """Whether `read_ahead` has reached the end of the file, and all lines are consumed."""
        return self._is_at_end and self.next >= self._buffered

    def ahead(self, at: int) -> Iterator[str]:
        """Iterate over the lines from `at` to the end of the file, without consuming them."""
        return chain.from_iterable(self._runs(at))

    def advance(self, count: int) -> None:
        """Consume `count` buffered lines, and drop the blocks that are used up."""
        self.next += count
        while self._blocks and self.next >= self._blocks[0].lines:
            raw, lines, _ = self._blocks.popleft()
            self._pass(raw, lines)
            self.next -= lines
            self._buffered -= lines
            self._drop(lines)

    def finish_open_line(self) -> bytes:
        """Read to the end of a line that was consumed incomplete; return the bytes appended to it."""
        block = self._read_block()
        cut = block.find(b"\n") + 1 or len(block)
        rest, self._tail = block[:cut], block[cut:] + self._tail
        if rest:
            self._note_head(rest)
            self._pass(rest, 0)
        return rest.removesuffix(b"\n").removesuffix(b"\r")

    def number(self, at: int) -> int:
        """Return the number of the line `at`, counted from 1 as in editors."""
        return self._start.line + at + 1

    @property
    def position(self) -> LinePosition:
        """The position before the next line to consume. Computed by counting: use it once per batch."""
        start, before = self._start, self._before
        if self.next:
            raw = self._blocks[0].raw
            end = len(raw) - len(raw.split(b"\n", self.next)[-1])
            start = LinePosition(start.offset + end, start.line + self.next)
            before += raw[max(0, end - SPAN) : end]
        if start.offset == 0:
            return start
        head, tail = spans(start.offset)
        return start._replace(
            digest=digest(self._head[:head], before[len(before) - (start.offset - tail) :]),
            head=digest(self._head[:head]),
            ended=False,
        )

    @property
    def share(self) -> tuple[int, int] | None:
        """The number of stored bytes read, and the stored size of the file; None if the size is unknown."""
        whole = getattr(self._stored, "size", None)
        if whole is None:
            return None
        if self.is_compressed:
            return int(self._stored.tell()), int(whole)
        first = self._blocks[0] if self._blocks else None
        begun = 0 if first is None else len(first.raw) * self.next // max(1, first.lines)
        return self._start.offset + begun, int(whole)

    @property
    def suspect(self) -> bool:
        """Whether a buffered line has bytes that do not decode, or a NUL."""
        return any(block.suspect for block in self._blocks)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _runs(self, at: int) -> Iterator[Iterator[str]]:
        while self.has(at):
            end = self._buffered
            yield map(self.lines.__getitem__, range(at, end))
            at = end

    def _fill(self) -> bool:
        if self._damage is not None:
            raise self._damage
        raw = self._read_block()
        if not raw:
            return False
        block = self._block_of(raw, is_first=self._start.offset == 0 and not self._blocks)
        self._note_head(raw)
        self._blocks.append(block)
        self._buffered += block.lines
        return True

    def _block_of(self, raw: bytes, *, is_first: bool) -> _Block:
        """Return a block of bytes; its lines are appended to `lines`."""
        lines, suspect = self._split_block(raw, is_first=is_first)
        self.lines.extend(lines)
        return _Block(raw, len(lines), suspect)

    def _split_block(self, raw: bytes, *, is_first: bool) -> tuple[list[str], bool]:
        text, suspect = self._decode(raw)
        return self._split(text.removeprefix(_BOM) if is_first else text), suspect

    def _drop(self, lines: int) -> None:
        del self.lines[:lines]

    def _pass(self, raw: bytes, lines: int) -> None:
        """Move the start position past consumed lines."""
        self._start = LinePosition(self._start.offset + len(raw), self._start.line + lines, not raw.endswith(b"\n"))
        self._before = raw[-SPAN:] if len(raw) >= SPAN else (self._before + raw)[-SPAN:]

    def _note_head(self, raw: bytes) -> None:
        if len(self._head) < SPAN:
            self._head += raw[: SPAN - len(self._head)]

    def _read_first(self, size: int) -> bytes:
        self._file.seek(0)
        return bytes(self._file.read(size))

    def _read_block(self) -> bytes:
        """Read a block that ends at a line end, or at the end of the file."""
        pieces = [self._tail]
        self._tail = b""
        while data := self._read():
            cut = data.rfind(b"\n") + 1
            if cut:
                self._tail = data[cut:]
                pieces.append(data[:cut])
                break
            pieces.append(data)
        return b"".join(pieces)

    def _read(self) -> bytes:
        with _damage_named(self._path):
            return bytes(self._file.read(CHUNK))

    def _decode(self, raw: bytes) -> tuple[str, bool]:
        try:
            return raw.decode(self._encoding), b"\0" in raw
        except UnicodeDecodeError:
            lines = raw.split(b"\n")
            return "\n".join(line.decode(self._encoding, "surrogateescape") for line in lines), True


class ByteBuffer(LineBuffer):
    """The buffered lines of one open file as bytes. They are decoded and split only if `lines` is read."""

    _texts: list[str] | None = None

    @property
    def buffered(self) -> int:
        """The number of lines that are buffered and not consumed."""
        return self._buffered - self.next

    def take(self, limit: int) -> tuple[bytes, int]:
        """Return up to `limit` lines to consume, as one text in UTF-8, and their number; they are not consumed.

        A block that is too large is left, unless it is the first: to cut it costs more than a poll of fewer lines.

        Raises:
            UnicodeDecodeError: if the encoding is another one, and a line does not decode.
        """
        pieces: list[bytes] = []
        taken, begin = 0, self.next
        for raw, lines, _ in self._blocks:
            count = min(lines - begin, limit - taken)
            if taken and count < lines - begin:
                break
            start = _end_of_line(raw, begin)
            pieces.append(raw[start:] if count == lines - begin else raw[start : _end_of_line(raw, begin + count)])
            taken, begin = taken + count, 0
            if taken == limit:
                break
        data = b"".join(pieces)
        if self._encoding not in _AS_UTF_8:
            data = data.decode(self._encoding).encode()
        is_first = self._start.offset == 0 and not self.next
        return data.removeprefix(_BOM.encode()) if is_first else data, taken

    @property
    def lines(self) -> list[str]:
        """The lines as texts."""
        if self._texts is None:
            first = self._start.offset == 0
            parts = [self._split_block(it.raw, is_first=first and not at) for at, it in enumerate(self._blocks)]
            self._texts = [line for lines, _ in parts for line in lines]
        return self._texts

    @lines.setter
    def lines(self, lines: list[str]) -> None:
        del lines
        self._texts = None

    def _block_of(self, raw: bytes, *, is_first: bool) -> _Block:
        del is_first
        self._texts = None
        return _Block(raw, raw.count(b"\n") + (not raw.endswith(b"\n")), suspect=False)

    def _drop(self, lines: int) -> None:
        del lines
        self._texts = None


_AS_UTF_8 = ("utf-8", "ascii")
"""Encodings of which all texts are UTF-8 as they are."""


def _end_of_line(raw: bytes, line: int) -> int:
    """Return the place after the first lines of a block."""
    return len(raw) - len(raw.split(b"\n", line)[-1]) if line else 0


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as damage:
        raise InputFileError(path, f"cannot be decompressed: {damage}") from damage


def open_lines(
    path: str,
    storage_options: Mapping[str, Any],
    encoding: str,
    split: Callable[[str], list[str]],
    kind: type[LineBuffer] = LineBuffer,
) -> LineBuffer:
    """Open a file, decompressing it according to its suffix.

    Raises:
        MissingFileError: if it no longer exists.
        InputFileError: if it cannot be read.
    """
    filesystem, inner = filesystem_of(path, storage_options)
    with ExitStack() as opening:
        try:
            raw = opening.enter_context(filesystem.open(inner, "rb", block_size=REMOTE_BLOCK))
        except FileNotFoundError as missing:
            raise MissingFileError(path, "no longer exists") from missing
        except OSError as error:
            raise InputFileError(path, s3.with_hint(f"cannot be read: {error.strerror or error}", error)) from error
        compression = compression_of(inner)
        file = opening.enter_context(_decompressed(path, raw, compression)) if compression else raw
        read_head = None
        if file is raw and isinstance(raw, AbstractBufferedFile):  # it would fetch a whole block
            read_head = partial(_cat_head, filesystem, inner)
        opened = opening.pop_all()
        return kind(path, file, opened, encoding, split, read_head, stored=raw if compression else None)


def _decompressed(path: str, raw: Any, compression: str) -> Any:
    """Return a compressed file, opened for reading.

    Raises:
        InputFileError: if it is a damaged archive, or one that does not hold exactly one file.
    """
    if compression != "zip":
        return compr[compression](raw, mode="rb")
    try:
        archive = ZipFile(raw)
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith(_OF_MACOS)]
        if len(names) == 1:
            return archive.open(names[0])
    except (BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputFileError(path, f"cannot be decompressed: {error}") from error
    if not names:
        raise InputFileError(path, "is a zip archive without a file in it")
    shown = listed(names, _SHOWN)
    raise InputFileError(
        path,
        f"is a zip archive of {plural(len(names), 'file')}, {shown}; write each as "
        f"'zip://{names[0]}::{shown_path(path)}', or unpack it",
    )


def _cat_head(filesystem: Any, inner: str, size: int) -> bytes:
    data: bytes = filesystem.cat_file(inner, start=0, end=size)
    return data


def split_lines(text: str) -> list[str]:
    r"""Split text at ``\n`` and ``\r\n`` only; line ends are dropped."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def split_keeping_ends(text: str) -> list[str]:
    r"""Split text after each ``\n`` only; line ends are kept."""
    return io.StringIO(text, newline="\n").readlines()


def is_undecodable(text: str) -> bool:
    """Whether text contains surrogates for bytes that do not decode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def checked_encoding(encoding: str, asked_by: str) -> str:
    """Return the normalised name of an encoding in which line ends can be found bytewise, as in supersets of ASCII."""
    sample = bytes(range(128)) + rb"\n\u000a"
    try:
        name = codecs.lookup(encoding).name.replace("utf-8-sig", "utf-8")
        text = sample.decode(name)
        told_by_bytes = len(text) == len(sample) and text.index("\n") == text.rindex("\n") == sample.index(b"\n")
    except (UnicodeError, DeprecationWarning):
        told_by_bytes = False
    except (LookupError, TypeError) as unknown:
        raise GraphError(f"{asked_by} needs a text encoding; got {encoding!r}") from unknown
    if not told_by_bytes:
        raise GraphError(f"{asked_by} cannot find line ends in encoding {encoding!r}; convert the file to UTF-8")
    return name
