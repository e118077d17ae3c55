"""The planted bugs of state that outgrows memory: compressions, stores and the tier."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["STATE_BUGS"]

_COMPRESSION = "tests/snapshot/test_compression.py"

STATE_BUGS = [
    Bug(
        "a data file with a compression of one's own says that it is of version 1",
        "its layout is the same",
        "snapshot/files/data_file.py",
        "    version = _PLAIN_FORMAT if is_compression(compression, own=True) else FORMAT\n",
        "    version = _PLAIN_FORMAT\n",
        (f"{_COMPRESSION}::test_a_run_goes_on_with_another_compression",),
    ),
    Bug(
        "increments are merged whatever their compressions are",
        "frames are copied as they are",
        "snapshot/files/sections.py",
        "    if any(file.compression != compression.name for file in decoded):\n        return None\n",
        "",
        (f"{_COMPRESSION}::test_frames_are_merged_with_frames_of_their_compression",),
    ),
    Bug(
        "a frame of zstd may be of another size",
        "the checksum shows damage",
        "snapshot/compression.py",
        "            if zstd.get_frame_info(frame).decompressed_size != size:\n                return None\n",
        "",
        ("tests/snapshot/test_bounds.py::test_a_frame_that_says_that_it_is_huge_makes_nothing_huge",),
    ),
    Bug(
        "the functions of a compression are not tried",
        "they are tried by the first snapshot",
        "snapshot/compression.py",
        "            if type(found) is not bytes or found != sample:\n",
        "            if type(found) is not bytes and found != sample:\n",
        (f"{_COMPRESSION}::test_functions_that_lose_something_are_refused_at_once",),
    ),
]
