"""How the states of a snapshot are compressed: by lz4, zstd, not at all, or by two functions of the user's.

A data file names its compression. A reader knows malflow's own, and the one of its backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from malflow.checks import check_function
from malflow.errors import GraphError, MissingDependency, SnapshotError
from malflow.names import thing_at
from malflow.words import error_line, listed, plural, short_repr

__all__ = ["NONE", "Compression", "compression_of", "is_compression", "known_as"]

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}")
"""Names are written to data files, and appear in errors."""

_SAMPLES = (b"", b"malflow", bytes(range(256)) * 256)
"""Each is compressed and decompressed before a run: no bytes, a few, and more than the blocks of most codecs."""

_LZ4_RATIO = 256
"""lz4 compresses at most 255 to 1: a frame that claims more is damaged, and would take memory in vain."""

_ZSTD_LEVEL = 1
"""States are compressed while the run continues. Level 3 took 1.2 to 1.4 times as long, and saved 2 % of the bytes."""


@dataclass(frozen=True, eq=False)
class Compression:
    """A compression of one's own: a name, and two functions from bytes to bytes.

    They are called in any thread and any process. Bytes are decompressed only after their digest was compared with the
    one in the snapshot. A function that makes very much of a few bytes is not stopped.

    Attributes:
        name: the name in data files: up to 32 small letters, digits, dots and hyphens; malflow's own names are taken.
        compress: returns the compressed form of some bytes.
        decompress: returns the bytes of a compressed form.

    Raises:
        GraphError: if the name is not valid or taken, or bytes are not the same after both functions.

    >>> import zlib
    >>> Compression("zlib-9", lambda raw: zlib.compress(raw, 9), zlib.decompress).name
    'zlib-9'
    """

    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]

    def __post_init__(self) -> None:
        """Check the name, and try both functions."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            form = "up to 32 small letters, digits, dots and hyphens, and not a dot or hyphen first"
            raise GraphError(f"the name of a compression has {form}; got {short_repr(self.name)}")
        if self.name in _OWN:
            raise GraphError(f"{self.name!r} is malflow's own compression; give yours another name")
        check_function("Compression", "compress", self.compress)
        check_function("Compression", "decompress", self.decompress)
        for sample in _SAMPLES:
            found = self._tried(sample)
            if type(found) is not bytes or found != sample:
                cure = "decompress(compress(x)) must be x, as bytes"
                got = f"{plural(len(found), 'byte')}" if isinstance(found, bytes) else short_repr(found)
                raise GraphError(
                    f"compression {self.name!r} does not return {plural(len(sample), 'byte')} as they were, but {got}; "
                    f"{cure}"
                )

    def _tried(self, sample: bytes) -> Any:
        try:
            return self.decompress(self.compress(sample))
        except Exception as error:
            raise GraphError(
                f"compression {self.name!r} fails for {plural(len(sample), 'byte')}: {error_line(error)}"
            ) from error

    def packed(self, raw: bytes) -> bytes:
        """Return bytes as a frame.

        Raises:
            SnapshotError: if the function fails, or returns something else than bytes.
        """
        try:
            frame = self.compress(raw)
        except Exception as error:
            raise SnapshotError(f"compression {self.name!r} failed: {error_line(error)}") from error
        if type(frame) is not bytes:
            raise SnapshotError(f"compression {self.name!r} returned {short_repr(frame)} instead of bytes")
        return frame

    def unpacked(self, frame: bytes, size: int) -> bytes | None:
        """Return the bytes of a frame; None if they are not so many.

        Raises:
            SnapshotError: if the function fails.
        """
        try:
            raw: Any = self.decompress(frame)
        except Exception as error:
            cure = "pass the functions that compressed it"
            raise SnapshotError(f"compression {self.name!r} can't decompress: {error_line(error)}; {cure}") from error
        return raw if type(raw) is bytes and len(raw) == size else None

    def __repr__(self) -> str:
        return f"Compression({self.name!r})"


class _Own(Compression):
    """A compression of malflow's."""

    def __init__(self) -> None:
        """Take the name of the class; the functions are its methods."""

    def __reduce__(self) -> tuple[Any, ...]:
        return compression_of, (self.name,)


class _None(_Own):
    """Bytes as they are."""

    name = "none"

    def packed(self, raw: bytes) -> bytes:
        """Return the bytes."""
        return raw

    def unpacked(self, frame: bytes, size: int) -> bytes | None:
        """Return the bytes; None if they are not so many."""
        return frame if len(frame) == size else None


class _Lz4(_Own):
    """A frame of lz4 with its size and a checksum."""

    name = "lz4"

    def packed(self, raw: bytes) -> bytes:
        """Return a frame."""
        import lz4.frame  # noqa: PLC0415 - most programs take no snapshots

        frame: bytes = lz4.frame.compress(raw, content_checksum=True, store_size=True)
        return frame

    def unpacked(self, frame: bytes, size: int) -> bytes | None:
        """Return the bytes of one frame of this size; None if it is invalid."""
        import lz4.frame  # noqa: PLC0415 - most programs take no snapshots

        if size > _LZ4_RATIO * len(frame):
            return None
        try:
            facts = lz4.frame.get_frame_info(frame)
            if facts["content_size"] != size or not facts["content_checksum"]:
                return None
            decompressor = lz4.frame.LZ4FrameDecompressor()
            raw: bytes = decompressor.decompress(frame, max_length=size + 1)
        except RuntimeError:
            return None
        return raw if decompressor.eof and not decompressor.unused_data else None


class _Zstd(_Own):
    """A frame of Zstandard with its size and a checksum."""

    name = "zstd"

    def packed(self, raw: bytes) -> bytes:
        """Return a frame."""
        zstd = _zstd()
        options = {
            zstd.CompressionParameter.compression_level: _ZSTD_LEVEL,
            zstd.CompressionParameter.content_size_flag: True,
            zstd.CompressionParameter.checksum_flag: True,
        }
        frame: bytes = zstd.compress(raw, options=options)
        return frame

    def unpacked(self, frame: bytes, size: int) -> bytes | None:
        """Return the bytes of one frame of this size; None if it is invalid."""
        zstd = _zstd()
        try:
            if zstd.get_frame_info(frame).decompressed_size != size:
                return None
            decompressor = zstd.ZstdDecompressor()
            raw: bytes = decompressor.decompress(frame, max_length=size + 1)
        except zstd.ZstdError:
            return None
        return raw if decompressor.eof and not decompressor.unused_data and len(raw) == size else None


def _zstd() -> Any:
    """Return the module of Zstandard: of Python from 3.14 on, else its backport.

    Raises:
        MissingDependency: if neither is there.
    """
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise MissingDependency("compression 'zstd' needs backports.zstd; pip install 'malflow[zstd]'")


NONE = _None()
_OWN: dict[str, Compression] = {it.name: it for it in (_Lz4(), NONE, _Zstd())}


def compression_of(given: object) -> Compression:
    """Return a compression by its name, or one of the user's: itself, or ``module:name``.

    Raises:
        GraphError: if it is neither.
        MissingDependency: if its library is not installed.
    """
    if isinstance(given, str) and ":" in given:
        try:
            given = thing_at(given)
        except Exception as error:
            raise GraphError(f"compression {given!r} can't be loaded: {error_line(error)}") from error
    if isinstance(given, Compression):
        return given
    if not isinstance(given, str) or given not in _OWN:
        names = listed(_OWN)
        raise GraphError(f"compression must be {names}, or a Compression; got {short_repr(given)}")
    if given == "zstd":
        _zstd()
    return _OWN[given]


def is_compression(name: object, *, own: bool) -> bool:
    """Whether a data file may name a compression: one that every malflow has (`own`), or another."""
    every = name in {"lz4", "none"}
    return every if own else isinstance(name, str) and not every and bool(_NAME.fullmatch(name))


def known_as(file: str, name: str, given: Compression) -> Compression:
    """Return the compression of a file by its name: malflow's own, or the given one.

    Raises:
        SnapshotError: if it is neither, with what to pass.
    """
    if name == given.name:
        return given
    if name not in _OWN:
        cure = f"pass compression=Compression({name!r}, ...) to the backend, with the functions that wrote it"
        raise SnapshotError(f"'{file}' was written with compression '{name}'; {cure}")
    return compression_of(name)
