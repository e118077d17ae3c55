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
        "an object of Redis is read by two commands",
        "an empty answer is looked into",
        "connectors/redis/store.py",
        "        found = self._run(_GET, [self._object(key)], [limit])\n",
        "        place = [self._object(key)]\n"
        "        found = self._run(\"return redis.call('GETRANGE', KEYS[1], 0, ARGV[1])\", place, [limit])\n"
        "        found = found if self._run(\"return redis.call('EXISTS', KEYS[1])\", place, []) else None\n",
        ("tests/connectors/redis/test_store.py::test_an_operation_is_one_command",),
    ),
    Bug(
        "an object is written to Redis before its name",
        "both are one script",
        "connectors/redis/store.py",
        "redis.call('ZADD', KEYS[2], 0, ARGV[1])\nredis.call('SET', KEYS[1], ARGV[2])\n",
        "redis.call('SET', KEYS[1], ARGV[2])\nredis.call('ZADD', KEYS[2], 0, ARGV[1])\n",
        ("tests/connectors/redis/test_store.py::test_an_index_that_is_none_leaves_nothing_behind",),
    ),
    Bug(
        "data files of a store have 32 MiB whatever it says",
        "a limit is a limit",
        "snapshot/protocol/commit.py",
        '        return getattr(self.store, "file_limit", FILE_LIMIT)\n',
        "        return FILE_LIMIT\n",
        ("tests/connectors/redis/test_store.py::test_large_states_lie_in_files_of_4_mib",),
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
