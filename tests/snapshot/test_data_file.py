"""A data file is read back exactly or found damaged, whatever happened to its bytes."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec, PickleCodec
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec
from malflow.snapshot.compression import compression_of
from malflow.snapshot.files import data_file
from malflow.snapshot.files.data_file import (
    DataFile,
    Section,
    apply_chunk,
    decode_file,
    encode_delta,
    encode_file,
    joined,
    pack,
    raw_of,
)
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta, KeyedState

HEAD = struct.Struct(">8sHII")
MAGIC = b"\x8dMFS\r\n\x1a\n"
CODECS: list[Codec] = [PickleCodec(), MsgpackCodec()]
NAME = "d/1.mfs"


def section(raw: bytes = b"some bytes", compression: str = "lz4", **facts: Any) -> Section:
    whole = {"state": "sums", "worker": 1, "version": 2, "what": "changed", "keys": 3, **facts}
    return Section(raw=len(raw), frame=compression_of(compression).packed(raw), **whole)


SECTIONS = [
    Section("sums", 0, 1, "whole", 0, 0, b""),
    section(b"first" * 9),
    section(b"second", state="é\ud800\n", what="appended"),
    section(b"third", worker=2, what="deleted", keys=1),
]
MEMBERS = ["state", "worker", "version", "what", "keys", "raw", "stored", "piece", "pieces"]


def read(data: bytes) -> list[tuple[Section, bytes]]:
    file = decode_file(NAME, data)
    return [(it, raw_of(NAME, it, compression_of(file.compression))) for it in joined(file.sections)]


def sealed(header: bytes, frames: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    """Make a file whose checksum is right, whatever is in it."""
    body = header + frames
    return HEAD.pack(MAGIC, version, zlib.crc32(body), len(header) if length is None else length) + body


def header_of(*entries: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"codec": "pickle", "compression": "lz4", "sections": list(entries), **members}).encode()


def entry_of(it: Section, **changes: Any) -> dict[str, Any]:
    facts = {member: getattr(it, member, None) for member in MEMBERS}
    return {**facts, "stored": len(it.frame), **changes}


texts = st.text(st.characters(exclude_categories=()), max_size=10)
counts = st.integers(1, 2**40)


@st.composite
def any_sections(draw: st.DrawFn) -> tuple[str, list[Section]]:
    compression = draw(st.sampled_from(["lz4", "none"]))
    sections = st.builds(
        section,
        st.binary(max_size=50),
        st.just(compression),
        state=texts,
        worker=st.integers(0, 2**40),
        version=st.integers(0, 2**40),
        what=st.sampled_from(["changed", "appended", "deleted"]),
        keys=counts,
    ) | st.builds(Section, texts, counts, counts, st.just("whole"), st.just(0), st.just(0), st.just(b""))
    return compression, draw(st.lists(sections, max_size=5))


@given(codec=texts, content=any_sections())
@pytest.mark.slow
def test_a_file_comes_back_as_it_was(codec: str, content: tuple[str, list[Section]]) -> None:
    compression, sections = content
    data = encode_file(sections, codec=codec, compression=compression)

    assert decode_file(NAME, data) == DataFile(codec, compression, tuple(sections))


def test_the_layout_is_what_it_says() -> None:
    it = section(b"raw", "none")
    data = encode_file([it], codec="pickle", compression="none")
    magic, version, checksum, length = HEAD.unpack_from(data)
    header = data[HEAD.size : HEAD.size + length]

    assert (magic, version, checksum) == (MAGIC, 1, zlib.crc32(data[HEAD.size :]))
    assert json.loads(header) == {"codec": "pickle", "compression": "none", "sections": [entry_of(it)]}
    assert data[HEAD.size + length :] == b"raw"


@pytest.mark.parametrize("compression", ["lz4", "none", "zstd"])
def test_every_changed_bit_and_byte_is_found(compression: str) -> None:
    sections = [
        replace(it, frame=compression_of(compression).packed(raw)) if it.keys else it for it, raw in read(whole_file())
    ]
    data = encode_file(sections, codec="pickle", compression=compression)

    for place in range(len(data)):
        for change in (*(1 << bit for bit in range(8)), 0xFF, 0x55):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(SnapshotError):
                read(bytes(damaged))


def whole_file() -> bytes:
    return encode_file(SECTIONS, codec="pickle", compression="lz4")


@pytest.mark.fault("A13")
def test_every_shorter_file_is_found() -> None:
    data = whole_file()

    for length in range(len(data)):
        with pytest.raises(SnapshotCorrupt):
            read(data[:length])


@pytest.mark.fault("B8")
@pytest.mark.parametrize("more", [b"\0", b"x", SECTIONS[1].frame, whole_file()])
def test_bytes_after_the_end_are_found_also_with_a_right_checksum(more: bytes) -> None:
    data = whole_file()
    length = HEAD.unpack_from(data)[3]
    body = data[HEAD.size :] + more

    for damaged in (data + more, sealed(body[:length], body[length:])):
        with pytest.raises(SnapshotCorrupt, match=NAME):
            decode_file(NAME, damaged)


def test_foreign_file_is_reported_as_no_data_file() -> None:
    for data in (b"", b"PK\x03\x04" * 10, pickle.dumps({}), whole_file().replace(b"\r\n", b"\n")):
        with pytest.raises(SnapshotCorrupt, match=f"'{NAME}' is not a data file of malflow") as refused:
            decode_file(NAME, data)
        assert refused.value.name == NAME


@pytest.mark.fault("G9")
def test_a_newer_format_is_no_damage_but_needs_a_newer_malflow() -> None:
    with pytest.raises(SnapshotError, match=r"newer malflow \(format 3; this version reads up to 2\)") as refused:
        decode_file(NAME, sealed(b"\xff anything", version=3))

    assert not isinstance(refused.value, SnapshotCorrupt)


GOLDEN = bytes.fromhex(
    "8d4d46530d0a1a0a0001eb70c395000001e87b22636f646563223a227069636b6c65222c22636f6d7072657373696f6e223a226c7a34222c"
    "2273656374696f6e73223a5b7b227374617465223a2273756d73222c2277686174223a2277686f6c65222c2273746f726564223a302c2277"
    "6f726b6572223a302c2276657273696f6e223a312c226b657973223a302c22726177223a302c227069656365223a302c2270696563657322"
    "3a317d2c7b227374617465223a2273756d73222c2277686174223a226368616e676564222c2273746f726564223a34322c22776f726b6572"
    "223a312c2276657273696f6e223a322c226b657973223a332c22726177223a34352c227069656365223a302c22706965636573223a317d2c"
    "7b227374617465223a225c75303065395c75643830305c6e222c2277686174223a22617070656e646564222c2273746f726564223a33332c"
    "22776f726b6572223a312c2276657273696f6e223a322c226b657973223a332c22726177223a362c227069656365223a302c227069656365"
    "73223a317d2c7b227374617465223a2273756d73222c2277686174223a2264656c65746564222c2273746f726564223a33322c22776f726b"
    "6572223a322c2276657273696f6e223a322c226b657973223a312c22726177223a352c227069656365223a302c22706965636573223a317d"
    "5d7d04224d186c402d00000000000000710f0000005f6669727374050010506669727374000000004c0479ab04224d186c40060000000000"
    "000089060000807365636f6e6400000000dd5dd6ef04224d186c4005000000000000002c0500008074686972640000000077c0953b"
)


def test_files_of_the_first_format_are_read_for_ever() -> None:
    assert [(it.what, raw) for it, raw in read(GOLDEN)] == [
        ("whole", b""),
        ("changed", b"first" * 9),
        ("appended", b"second"),
        ("deleted", b"third"),
    ]
    assert decode_file(NAME, GOLDEN) == DataFile("pickle", "lz4", tuple(SECTIONS))


good = entry_of(SECTIONS[1])


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        header_of(good)[:-1],
        header_of(good, more=1),
        header_of(good, codec=1),
        header_of(good, compression="zstd"),
        header_of(good, compression=["lz4"]),
        header_of(good, sections={}),
        header_of(sections=[1]),
        header_of(sections=[[]]),
        header_of({}),
        header_of({**good, "frame": ""}),
        *(header_of({name: fact for name, fact in good.items() if name != member}) for member in MEMBERS),
        *(
            header_of({**good, member: fact})
            for member in MEMBERS
            for fact in (None, True, -1, 1.0, "1", [], {}, 1 << 63)
            if not (member in ("state", "what") and fact == "1" and member == "state")
        ),
        header_of({**good, "what": "gone"}),
        header_of({**good, "keys": 0}),
        header_of({**good, "stored": good["stored"] + 1}),
        header_of({**good, "stored": good["stored"] - 1}),
        header_of({**good, "pieces": 0}),
        header_of({**good, "piece": 1}),
        header_of({**good, "what": "whole"}),
        header_of(good, {**good, "stored": 0, "what": "whole"}),
        header_of(good, {**good, "stored": 0, "raw": 0, "keys": 0, "pieces": 2, "what": "whole"}),
        header_of(good, good),
        header_of(),
        header_of(good).replace(b'"keys": 3', b'"keys": 3, "keys": 3'),
        header_of(good).replace(b'"keys": 3', b'"keys": NaN'),
        header_of(good).replace(b'"keys": 3', b'"keys": Infinity'),
        header_of(good).replace(b'"keys": 3', b'"keys": ' + b"9" * 5000),
        header_of(good).replace(b'"codec"', b'"codec": "a", "codec"'),
    ],
)
def test_a_forged_header_is_refused(header: bytes) -> None:
    with pytest.raises(SnapshotCorrupt) as refused:
        decode_file(NAME, sealed(header, SECTIONS[1].frame))

    assert refused.value.name == NAME
    assert NAME in str(refused.value)


def test_the_header_that_the_forged_ones_are_made_of_is_good() -> None:
    assert read(sealed(header_of(good), SECTIONS[1].frame)) == [(SECTIONS[1], b"first" * 9)]


@pytest.mark.parametrize("length", [0, 5, 1 << 31, (1 << 32) - 1])
def test_a_forged_length_of_the_header_is_refused(length: int) -> None:
    with pytest.raises(SnapshotCorrupt):
        decode_file(NAME, sealed(header_of(good), SECTIONS[1].frame, length=length))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*MEMBERS, "lz4", "none", "whole", "changed"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*MEMBERS, "codec", "sections"]), inner)
    ),
)
forged_entries = st.fixed_dictionaries(
    {
        member: st.one_of(st.just(fact), st.integers(-1, 200), json_values)
        if member != "what"
        else st.just(fact) | json_values
        for member, fact in good.items()
    }
)


@given(
    header=st.one_of(
        st.binary(max_size=40),
        json_values.map(lambda it: json.dumps(it).encode()),
        st.lists(forged_entries, max_size=3).map(lambda entries: header_of(*entries)),
        st.builds(lambda codec, how: header_of(good, codec=codec, compression=how), json_values, json_values),
    ),
    frames=st.just(SECTIONS[1].frame) | st.binary(max_size=60),
)
@pytest.mark.slow
def test_nothing_but_a_snapshot_error_comes_out_of_a_forged_file(header: bytes, frames: bytes) -> None:
    try:
        found = read(sealed(header, frames))
    except SnapshotError:
        return
    assert all(len(raw) == it.raw for it, raw in found)


def test_swapped_frames_are_found() -> None:
    one, two = section(b"aaaa"), section(b"bbbbbbbb")
    data = sealed(header_of(entry_of(one), entry_of(two)), two.frame + one.frame)

    with pytest.raises(SnapshotCorrupt, match=f"'{NAME}' is damaged: a frame of operator 'sums' is not 4 bytes"):
        read(data)


BOMB = compression_of("lz4").packed(bytes(200 << 20))
UNSIZED_BOMB = lz4.frame.compress(bytes(200 << 20), store_size=False, content_checksum=True)


@pytest.mark.parametrize(
    "frame",
    [
        compression_of("lz4").packed(b"some bytes") + b"\0",
        compression_of("lz4").packed(b"some bytes") + compression_of("lz4").packed(b"some bytes"),
        compression_of("lz4").packed(b"some ") + compression_of("lz4").packed(b"bytes"),
        compression_of("lz4").packed(b"some bytes")[:-1],
        compression_of("lz4").packed(b"some bytes")[:-5],
        compression_of("lz4").packed(b"some byte"),
        compression_of("lz4").packed(b"some bytes!"),
        lz4.frame.compress(b"some bytes", store_size=False, content_checksum=True),
        lz4.frame.compress(b"some bytes", store_size=True, content_checksum=False),
        b"",
        b"some bytes",
        b"\x50\x2a\x4d\x18\x0a\0\0\0some bytes",
        BOMB,
        UNSIZED_BOMB,
    ],
)
def test_a_frame_that_is_not_one_frame_of_the_size_told_is_refused(frame: bytes) -> None:
    with pytest.raises(SnapshotCorrupt, match=f"'{NAME}' is damaged: a frame of operator 'sums'"):
        raw_of(NAME, replace(section(), frame=frame), compression_of("lz4"))


@pytest.mark.parametrize("told", [1000, 1 << 40, 1 << 60])
@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.slow
def test_no_more_is_made_of_a_frame_than_it_may_be(told: int, lies: bool) -> None:
    program = f"""
import resource
import lz4.frame
from malflow.errors import SnapshotCorrupt
from malflow.snapshot.compression import compression_of
from malflow.snapshot.files.data_file import Section, raw_of

def sized(frame, size):
    head = frame[:6] + size.to_bytes(8, "little")
    for checksum in range(256):
        lying = head + bytes([checksum]) + frame[15:]
        try:
            lz4.frame.get_frame_info(lying)
            return lying
        except RuntimeError:
            continue

frame = lz4.frame.compress(bytes(201_000_000), content_checksum=True, store_size=True)
if {lies}:
    frame = sized(frame, {told})
    assert lz4.frame.get_frame_info(frame)["content_size"] == {told}
    frame = frame[:1_000] if {told} > 1_000_000_000 else frame
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    raw_of("f", Section("s", 0, 1, "changed", 1, {told}, frame), compression_of("lz4"))
except SnapshotCorrupt:
    print("found", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    found, grown = done.stdout.split()
    assert found == "found"
    assert int(grown) < 20_000  # KiB


@pytest.mark.parametrize("raw", [b"", b"x", bytes(5 << 20), bytes(range(256)) * 5000])
@pytest.mark.parametrize("compression", ["lz4", "none", "zstd"])
def test_bytes_of_any_size_come_back(raw: bytes, compression: str) -> None:
    it = section(raw, compression)

    assert raw_of(NAME, it, compression_of(compression)) == raw


def test_frames_that_are_stored_as_they_are_must_have_the_size_told() -> None:
    with pytest.raises(SnapshotCorrupt):
        raw_of(NAME, replace(section(b"some bytes", "none"), raw=9), compression_of("none"))


@pytest.mark.fault("E15")
@given(sizes=st.lists(st.integers(0, 30), max_size=8), limit=st.integers(1, 20))
def test_files_are_at_most_as_large_as_told_and_pieces_come_together_again(sizes: list[int], limit: int) -> None:
    sections = [section(bytes([size]) * size, "none", state=str(place)) for place, size in enumerate(sizes)]
    groups = list(pack(sections, limit))

    assert all(groups)
    assert all(sum(len(it.frame) for it in group) <= limit for group in groups)
    assert list(joined(chain.from_iterable(groups))) == sections


def test_files_are_filled_as_far_as_they_can_be() -> None:
    sections = [section(b"x" * size, "none") for size in (4, 4, 4, 9, 1)]

    assert [[it.raw for it in group] for group in pack(sections, 10)] == [[4, 4], [4], [9, 1]]


def test_pieces_that_are_written_again_stay_pieces() -> None:
    pieces = [it for group in pack([section(b"x" * 25, "none")], 10) for it in group]

    assert [it for group in pack(pieces, 4) for it in group] == pieces
    assert [len(group) for group in pack(pieces, 20)] == [2, 1]


def test_a_large_frame_goes_through_files_whole() -> None:
    sections = [section(b"small"), section(bytes(range(256)) * 100, "none"), section(b"after")]
    files = [encode_file(group, codec="pickle", compression="lz4") for group in pack(sections, 1000)]

    assert len(files) > 20
    assert list(joined(chain.from_iterable(decode_file(NAME, file).sections for file in files))) == sections


@pytest.mark.parametrize(
    "change",
    [
        lambda pieces: pieces[1:],
        lambda pieces: pieces[:-1],
        lambda pieces: pieces[:1] + pieces[2:],
        lambda pieces: [pieces[1], pieces[0], pieces[2]],
        lambda pieces: [pieces[0], pieces[0], pieces[1], pieces[2]],
        lambda pieces: [pieces[0], section(), pieces[1], pieces[2]],
        *(
            lambda pieces, member=member, fact=fact: [pieces[0], replace(pieces[1], **{member: fact}), pieces[2]]
            for member, fact in (
                ("state", "other"),
                ("worker", 7),
                ("version", 7),
                ("what", "deleted"),
                ("keys", 7),
                ("raw", 7),
                ("pieces", 4),
            )
        ),
    ],
)
def test_a_piece_that_lacks_or_is_another_s_is_found(change: Any) -> None:
    pieces = [it for group in pack([section(b"x" * 25, "none")], 10) for it in group]
    assert len(pieces) == 3

    with pytest.raises(SnapshotCorrupt, match="a section of operator 'sums' is missing"):
        list(joined(change(pieces)))


def restored(chunks: Iterable[tuple[str, int, bytes]], codec: Codec, state: dict[Any, Any]) -> dict[Any, Any]:
    for what, count, raw in chunks:
        value = codec.loads(raw)
        assert len(value) == count > 0
        apply_chunk(state, what, value)
    return state


small_keys = st.integers(0, 12)
operations = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "delta", "again"]), small_keys, st.integers()), max_size=40
)


@pytest.mark.fault("E18")
@pytest.mark.parametrize("codec", CODECS, ids=["pickle", "msgpack"])
@given(operations=operations, first=st.integers(1, 3))
@pytest.mark.slow
def test_deltas_lead_to_the_same_state_in_the_same_order(
    codec: Codec, operations: list[tuple[str, int, int]], first: int
) -> None:
    live = KeyedState(tracked=True)
    kept: dict[Any, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "_FIRST_CHUNK", first)
        for operation, key, value in [*operations, ("delta", 0, 0)]:
            if operation == "delta":
                delta = live.delta()
                if delta.whole:
                    apply_chunk(kept, "whole", None)
                restored(encode_delta(codec, delta), codec, kept)
                assert list(kept.items()) == list(live.items())
                continue
            live.touch((key,))
            if operation != "set":
                live.pop(key, None)
            if operation != "delete":
                live[key] = value


@pytest.mark.parametrize("codec", CODECS, ids=["pickle", "msgpack"])
def test_deltas_list_deletions_then_changes_then_appends(codec: Codec) -> None:
    delta = Delta({"b": 1, "c": 2, "a": 3}, frozenset({"d"}), appended=2)

    told = [(what, count) for what, count, _ in encode_delta(codec, delta)]
    assert told == [("deleted", 1), ("changed", 1), ("appended", 2)]
    state = {"a": 0, "d": 0, "b": 0, "c": 0}
    assert list(restored(encode_delta(codec, delta), codec, state).items()) == [("b", 1), ("c", 2), ("a", 3)]


def test_an_empty_delta_has_no_chunks() -> None:
    assert list(encode_delta(CODECS[0], Delta())) == []


@pytest.mark.fault("E15")
@pytest.mark.parametrize("codec", CODECS, ids=["pickle", "msgpack"])
@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_chunks_have_about_as_many_bytes_as_they_should(codec: Codec, size: int) -> None:
    states = {key: bytes(size) for key in range(20_000 if size < 1000 else 300)}
    chunks = list(encode_delta(codec, Delta(states, whole=True)))

    assert all(len(raw) < 6 << 20 for _, count, raw in chunks[size > 1000 :])
    assert restored(chunks, codec, {}) == states
    if size > 1000:
        assert all(len(raw) > 3 << 20 for _, _, raw in chunks[1:-1])


def test_a_chunk_has_at_least_one_key_however_large() -> None:
    states = {key: bytes(5 << 20) for key in range(3)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "_FIRST_CHUNK", 1)
        assert [count for _, count, _ in encode_delta(CODECS[0], Delta(states))] == [1, 1, 1]


def test_a_live_state_is_written_as_a_plain_dict() -> None:
    live = KeyedState(list, tracked=True)
    live.update({1: [1]})
    for codec in CODECS:
        ((_, _, raw),) = encode_delta(codec, Delta(live, whole=True))
        assert type(codec.loads(raw)) is dict


class Sulky:
    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


class Torn:
    def __getstate__(self) -> Any:
        return self.missing  # type: ignore[attr-defined]


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.fault("E3")
@pytest.mark.parametrize(
    ("codec", "state", "cause"),
    [
        (CODECS[0], Sulky(), RuntimeError),
        (CODECS[0], Torn(), AttributeError),
        (CODECS[0], lambda: 1, pickle.PicklingError),
        (CODECS[0], deep(), RecursionError),
        (CODECS[0], (it for it in ()), TypeError),
        (CODECS[1], Sulky(), TypeError),
        (CODECS[1], deep(), TypeError),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 999, 1000, 2999])
@pytest.mark.parametrize("appended", [0, 1500])
def test_a_state_that_can_not_be_written_is_named_with_the_reason(
    codec: Codec, state: Any, cause: type[Exception], place: int, appended: int
) -> None:
    states: dict[Any, Any] = dict.fromkeys(range(3000), 1)
    states[place] = state
    states[2999] = state if place else 1  # the first is told

    with pytest.raises(StateNotSerializable) as refused:
        list(encode_delta(codec, Delta(states, appended=appended)))

    assert (refused.value.key, refused.value.state is state) == (place, True)
    assert type(refused.value.__cause__) is cause


def test_the_path_inside_the_state_is_told() -> None:
    with pytest.raises(StateNotSerializable) as refused:
        list(encode_delta(CODECS[1], Delta({"k": {"orders": [1, len]}, "l": 2})))

    assert str(refused.value.__cause__) == "['orders'][1]: builtins.builtin_function_or_method can't be written"


class OddKey(str):
    def __reduce__(self) -> Any:
        raise RuntimeError("no key")


@pytest.mark.parametrize("codec", CODECS, ids=["pickle", "msgpack"])
def test_a_key_that_can_not_be_written_is_named(codec: Codec) -> None:
    for delta in (Delta({"a": 1, OddKey("odd"): 2}), Delta({}, frozenset({"a", OddKey("odd")}))):
        with pytest.raises(StateNotSerializable) as refused:
            list(encode_delta(codec, delta))
        assert type(refused.value.key) is OddKey


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("changed", []),
        ("appended", None),
        ("changed", KeyedState()),
        ("deleted", {}),
        ("deleted", (1,)),
        ("deleted", [[1]]),
        ("deleted", "ab"),
    ],
)
def test_a_chunk_that_is_none_is_found(what: str, value: Any) -> None:
    state = {"a": 1}

    with pytest.raises(SnapshotCorrupt, match=f"'{NAME}' is damaged") as refused:
        apply_chunk(state, what, value, name=NAME)

    assert refused.value.name == NAME
    assert state == {"a": 1}


def test_deletion_of_an_absent_key_is_no_error() -> None:
    state = {"a": 1}
    apply_chunk(state, "deleted", ["b", "a"])

    assert state == {}


def test_changes_before_a_whole_state_are_dropped() -> None:
    state = {"a": 1}
    apply_chunk(state, "whole", None)
    apply_chunk(state, "changed", {"b": 2})

    assert state == {"b": 2}
