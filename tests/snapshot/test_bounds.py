"""Reading arbitrary bytes takes time and memory only in proportion to their size."""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntFlag
from fractions import Fraction
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import SnapshotError
from malflow.snapshot import fsck
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec
from malflow.snapshot.compression import compression_of
from malflow.snapshot.files.data_file import Section, decode_file, encode_file, joined, raw_of
from malflow.snapshot.protocol.manifest import Manifest, encode_signed
from tests.kit.jobs import Job, StoreBackend, manifest_key, manifests
from tests.kit.memory_store import HookedStore

msgpack = pytest.importorskip("msgpack")

SECONDS = 5.0
"""What a machine that is busy may take for what should take some milliseconds."""

MEMORY = 8 << 20


class Rights(IntFlag):
    READ = 1
    WRITE = 2


CODEC = MsgpackCodec({"rights": Rights})
HEAD = Struct(">8sHII")


@contextmanager
def bounded(size: int) -> Iterator[None]:
    """Check that something takes no time, and no more memory than so many bytes explain."""
    tracemalloc.start()
    start = time.thread_time()
    try:
        yield
    finally:
        seconds, (_, peak) = time.thread_time() - start, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert seconds < SECONDS
    assert peak < MEMORY + 300 * size


def read(data: bytes) -> Any:
    """Read what may be anything."""
    with bounded(len(data)), suppress(ValueError, TypeError):
        return CODEC.loads(data)
    return None


def extension(code: int, plain: Any) -> Any:
    return msgpack.ExtType(code, msgpack.packb(plain))


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from(
        ["1e10000000", "1e999999999", "nan", "-Infinity", "1/3", "0" * 500, "list", "rights", "Europe/Berlin"]
    ),
    st.builds(lambda size: extension(5, b"\x7f" * size), st.integers(0, 5_000)),
)
anything = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 9)), inner, max_size=3),
        st.builds(extension, st.sampled_from([*range(1, 21), 32, 99]), inner),
        st.builds(lambda *facts: extension(32, ["rights", *facts]), inner, inner),
    ),
    max_leaves=12,
)


@pytest.mark.fault("B14")
@given(anything)
def test_any_description_of_a_type_is_read_in_bounds_or_refused(value: Any) -> None:
    read(msgpack.packb(value))


@pytest.mark.fault("B14")
@given(st.data(), anything)
def test_changed_bytes_are_read_in_bounds_or_refused(data: st.DataObject, value: Any) -> None:
    raw = bytearray(msgpack.packb(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=5))
    read(bytes(raw))


HUGE = (1 << 1_000_000) - 1
BOMBS = {
    "a fraction in words": (12, ["1e10000000"]),
    "a fraction of texts": (12, ["1", "3"]),
    "a fraction of floats": (12, [1e300, 3.0]),
    "a fraction by nothing": (12, [1, 0]),
    "three terms": (12, [1, 2, 3]),
    "a complex number in words": (6, ["1e308"]),
    "a complex number of integers": (6, [1, 2]),
    "a span of years": (10, [0, 0, 0, 0, 0, 0, 1 << 62]),
    "a span of floats": (10, [0.5, 0.5, 0.5]),
    "a deque of a text": (14, ["abc", None]),
    "a deque of less than nothing": (14, [[], -1]),
    "a default of pairs": (16, ["list", [["a", 1]]]),
    "an order of texts": (17, ["abc", "abc"]),
    "a date that is none": (8, 1 << 62),
    "flags without end": (32, ["rights", extension(5, HUGE.to_bytes(125_001, "big"))]),
    "flags in words": (32, ["rights", "READ"]),
    "more than flags": (32, ["rights", 1, 2]),
}


@pytest.mark.fault("B14")
@pytest.mark.parametrize("bomb", BOMBS)
def test_malformed_type_is_refused_at_once(bomb: str) -> None:
    code, facts = BOMBS[bomb]
    data = msgpack.packb(extension(code, facts))
    with bounded(len(data)), pytest.raises((ValueError, TypeError)):
        CODEC.loads(data)


def test_long_fractions_come_back_without_being_reduced() -> None:
    long = Fraction(3**200_000, 2**300_000)
    data = CODEC.dumps([long] * 20)
    with bounded(len(data)):
        assert CODEC.loads(data) == [long] * 20
    assert CODEC.loads(CODEC.dumps(Fraction(-3, 7))) == Fraction(-3, 7)


@pytest.mark.parametrize("count", [1 << 16, 1 << 31])
def test_lists_in_lists_that_promise_much_are_refused(count: int) -> None:
    data = b"\xdd" + count.to_bytes(4, "big")
    with bounded(5 * 500), pytest.raises(ValueError, match="not written by MsgpackCodec"):
        CODEC.loads(data * 500)
    with bounded(5 * 500_000), pytest.raises(ValueError, match="not written by MsgpackCodec"):
        CODEC.loads(data * 500_000)


def _file(change: Callable[[dict[str, Any]], object], *, compression: str = "lz4") -> bytes:
    """Write a data file with a header that was changed, and a checksum that fits."""
    raw = PickleCodec().dumps({"a": 1})
    section = Section("sum", 0, 1, "changed", 1, len(raw), compression_of(compression).packed(raw))
    data = encode_file([section], codec="pickle", compression=compression)
    magic, version, _, length = HEAD.unpack_from(data)
    header, frames = json.loads(data[HEAD.size : HEAD.size + length]), data[HEAD.size + length :]
    change(header)
    changed = json.dumps(header).encode()
    return HEAD.pack(magic, version, zlib.crc32(changed + frames), len(changed)) + changed + frames


numbers = st.one_of(st.integers(-3, 3), st.integers(), st.integers().map(lambda bit: 1 << (abs(bit) % 5_000)))


@pytest.mark.fault("B14")
@given(st.dictionaries(st.sampled_from(["worker", "version", "keys", "raw", "piece", "pieces", "stored"]), numbers))
@pytest.mark.parametrize("compression", ["lz4", "none", "zstd"])
def test_sizes_in_a_header_are_never_believed(compression: str, changed: dict[str, int]) -> None:
    try:
        data = _file(lambda header: header["sections"][0].update(changed), compression=compression)
    except ValueError:
        return  # it can't be written either
    with bounded(len(data)), suppress(SnapshotError):
        file = decode_file("d/x", data)
        for section in joined(file.sections):
            raw_of("d/x", section, compression_of(file.compression))


@pytest.mark.fault("B14")
@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_a_frame_that_says_that_it_is_huge_makes_nothing_huge(name: str) -> None:
    bomb = compression_of(name).packed(bytes(50 << 20))
    for raw in (1, 50 << 10, len(bomb) * 255, (50 << 20) - 1, (50 << 20) + 1, 1 << 60):
        section = Section("sum", 0, 1, "changed", 1, raw, bomb)
        with bounded(len(bomb)), pytest.raises(SnapshotError, match="is damaged: a frame"):
            raw_of("d/x", section, compression_of(name))


class _Open:
    """An authenticator without a key."""

    def sign(self, data: bytes) -> None:
        return None

    def verify(self, data: bytes, mac: str | None) -> None:
        return None


MEMBERS = ["seq", "epoch", "snapshot", "tick", "parallelism"]


@pytest.mark.fault("B14")
@given(st.dictionaries(st.sampled_from([*MEMBERS, "bytes", "raw", "keys", "version"]), numbers, min_size=1))
@pytest.mark.slow
def test_numbers_in_a_manifest_are_never_believed(changed: dict[str, int]) -> None:
    store = HookedStore()
    Job(StoreBackend(store)).save({"a": 1}).result()
    (*_, newest) = manifests(store, StoreBackend(store))
    body = json.loads(store.objects[manifest_key(newest.seq)])
    for member in ("mac", "sha256", "format"):
        del body[member]
    for member, number in changed.items():
        for record in (body, body["files"][0], body["operators"][0]):
            if member in record:
                record[member] = number
    try:
        data = encode_signed(body, _Open())
    except ValueError:
        return  # it can't be written either
    store.objects[manifest_key(newest.seq)] = data
    with bounded(len(data)), suppress(SnapshotError):
        Manifest.from_bytes(manifest_key(newest.seq), data, _Open())
    with bounded(len(data)):
        fsck(StoreBackend(store))
    with bounded(len(data)), suppress(SnapshotError):
        Job(StoreBackend(store), recovery="previous")
