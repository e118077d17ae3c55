"""Manifests: every change to one is detected, and no field is trusted before that check."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot import fsck, snapshots
from malflow.snapshot.codecs.shapes import Shape
from malflow.snapshot.protocol import manifest
from malflow.snapshot.protocol.manifest import FORMAT, FileEntry, Manifest, StateEntry
from malflow.snapshot.protocol.signing import KEY_VARIABLE, Signer
from tests.kit.jobs import KEY, Job, StoreBackend, data_keys, flipped, manifest_key
from tests.kit.memory_store import HookedStore

FILE = FileEntry("d/00000000000000000006-5-0123456789abcdef-0123456789abcdef.mfs", 100, "a" * 64, 200, True)
MANIFEST = Manifest(
    job="c" * 32,
    name="default",
    seq=7,
    epoch=5,
    runner="0123456789abcdef",
    attempt="fedcba9876543210",
    parent="b" * 64,
    snapshot=6,
    tick=12,
    time="2026-01-01T00:00:00+00:00",
    parallelism=2,
    codec="pickle",
    operators=(
        StateEntry("sum", "stateful_map", 1, "malflow.partitioners.rendezvous_select", 3),
        StateEntry("acc", "stateful_map", 2, None, 3, (Shape("job:Acc", "NamedTuple", ("n", "total")),)),
    ),
    files=(FILE, replace(FILE, base=False)),
    writer={"malflow": "0.1.0"},
)


class Authenticator:
    """Signs with a key, or not at all."""

    def __init__(self, key: str | None) -> None:
        self._signer = Signer.of(key) if key else None

    def sign(self, data: bytes) -> str | None:
        return self._signer.sign(data) if self._signer else None

    def verify(self, data: bytes, mac: str | None) -> str | None:
        if self._signer is None:
            return None if mac is None else "no key"
        return None if mac is not None and self._signer.verify(data, mac) else "wrong signature"


AUTHENTICATORS = {"signed": Authenticator(KEY), "unsigned": Authenticator(None)}


@pytest.fixture(params=AUTHENTICATORS)
def authenticator(request: pytest.FixtureRequest) -> Authenticator:
    return AUTHENTICATORS[request.param]


@pytest.fixture
def store() -> HookedStore:
    return HookedStore()


def sealed(body: dict[str, Any]) -> bytes:
    """Write any body as somebody would who knows the format, but no key."""

    def canonical(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    return canonical({**body, "mac": None, "sha256": sha256(canonical(body)).hexdigest()})


def body_of(data: bytes) -> dict[str, Any]:
    """Read what `sealed` seals."""
    body = json.loads(data)
    del body["mac"], body["sha256"]
    return body  # type: ignore[no-any-return]


def read(data: bytes, authenticator: Authenticator) -> Manifest:
    return Manifest.from_bytes("m/7", data, authenticator)


def test_a_manifest_comes_back_as_it_was(authenticator: Authenticator) -> None:
    assert read(MANIFEST.to_bytes(authenticator), authenticator) == MANIFEST


def test_the_same_manifest_is_always_the_same_bytes() -> None:
    assert MANIFEST.to_bytes(Authenticator(None)) == sealed(body_of(MANIFEST.to_bytes(Authenticator(None))))
    assert MANIFEST.to_bytes(Authenticator(KEY)) == MANIFEST.to_bytes(Authenticator(KEY))


@pytest.mark.fault("B2")
def test_a_flip_of_any_byte_is_found(authenticator: Authenticator) -> None:
    data = MANIFEST.to_bytes(authenticator)
    for at in range(len(data)):
        for mask in (0x01, 0x20, 0x80):
            with pytest.raises(SnapshotCorrupt, match=r"m/7"):
                read(flipped(data, at, mask), authenticator)


@pytest.mark.fault("A13")
def test_a_manifest_torn_at_any_length_is_found(authenticator: Authenticator) -> None:
    data = MANIFEST.to_bytes(authenticator)
    for length in range(len(data)):
        with pytest.raises(SnapshotCorrupt, match=r"m/7"):
            read(data[:length], authenticator)


@pytest.mark.fault("B8")
@pytest.mark.parametrize("tail", [b" ", b"\n", b"\0", b"{}", b"x", b'{"a":1}'])
def test_appended_bytes_are_found(authenticator: Authenticator, tail: bytes) -> None:
    data = MANIFEST.to_bytes(authenticator)
    for changed in (data + tail, tail + data, data + data):
        with pytest.raises(SnapshotCorrupt, match=r"m/7"):
            read(changed, authenticator)


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda data: json.dumps(json.loads(data)).encode(),
        lambda data: json.dumps(json.loads(data), separators=(",", ":"), sort_keys=False)[::1].encode("utf-16"),
        lambda data: data.replace(b'"seq":7', b'"seq":7.0'),
        lambda data: data.replace(b'"seq":7', b'"seq":8,"seq":7'),
        lambda data: data.replace(b'"seq":7', b'"seq":07'),
        lambda data: data.replace(b'"sum"', b'"\\u0073um"'),
        lambda data: data.replace(b'"tick":12', b'"tick":NaN'),
    ],
)
def test_another_spelling_of_the_same_is_not_taken(authenticator: Authenticator, rewrite: Any) -> None:
    data = MANIFEST.to_bytes(authenticator)
    changed = rewrite(data)
    assert changed != data
    with pytest.raises(SnapshotCorrupt):
        read(changed, authenticator)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"format":1,"mac":null,"sha256":null}',
        b'{"format":1,"mac":[],"sha256":{}}',
    ],
    ids=range(13),
)
def test_foreign_file_is_reported_as_no_manifest(authenticator: Authenticator, data: bytes) -> None:
    with pytest.raises(SnapshotCorrupt, match=r"m/7"):
        read(data, authenticator)


@pytest.mark.fault("G9")
@pytest.mark.parametrize("key", [None, KEY])
def test_a_newer_format_is_refused_by_the_name_of_what_wrote_it(key: str | None) -> None:
    body = {
        **body_of(MANIFEST.to_bytes(Authenticator(None))),
        "format": FORMAT + 1,
        "writer": {"malflow": "9.9"},
        "new": 1,
    }
    with pytest.raises(SnapshotError, match=rf"written by malflow 9\.9 in format {FORMAT + 1}; this version"):
        read(manifest.encode_signed(body, Authenticator(key)), Authenticator(key))


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None, [1]])
def test_a_format_that_never_was_is_found(version: Any) -> None:
    with pytest.raises(SnapshotCorrupt, match=r"no format version"):
        read(sealed({**body_of(MANIFEST.to_bytes(Authenticator(None))), "format": version}), Authenticator(None))


# Forged ones


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_every_field_of_a_manifest_is_checked() -> None:
    body = body_of(MANIFEST.to_bytes(Authenticator(None)))
    shape = body["operators"][1]["shapes"][0]
    wrong: dict[str, list[Any]] = {
        "operators": [
            *(None, 1, "x", [1], [{}], [{**body["operators"][0], "keys": -1}]),
            *([{**body["operators"][0], "shapes": shapes}] for shapes in (None, 1, [1], [{}], [{**shape, "name": 1}])),
            *(
                [{**body["operators"][0], "shapes": [{**shape, "fields": fields}]}]
                for fields in (None, 1, [1], [["n"]])
            ),
        ],
        "files": [None, 1, "x", {"a": 1}, [1], [{}], [{**body["files"][0], "base": 1}]],
        "writer": [None, 1, [], {"a": 1}],
        "parent": [1, []],
        "time": ["yesterday", "", 1],
        "parallelism": [2**21, -1, True],
        "snapshot": [8, -1],
        "epoch": [8, -1],
    }
    for field in body:
        for value in wrong.get(field, [None, [], {}, True, -1] if isinstance(body[field], int) else [None, [], 1]):
            if field == "format":
                continue
            with pytest.raises(SnapshotCorrupt, match=r"'m/7' is not a manifest"):
                read(sealed({**body, field: value}), Authenticator(None))
        with pytest.raises(SnapshotCorrupt):
            read(sealed({name: value for name, value in body.items() if name != field}), Authenticator(None))
    with pytest.raises(SnapshotCorrupt, match=r"its fields are"):
        read(sealed({**body, "more": 1}), Authenticator(None))


FIELDS = sorted(body_of(MANIFEST.to_bytes(Authenticator(None))))


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3))
def test_a_forged_newest_manifest_is_an_error_of_a_snapshot_or_fits(changes: dict[str, Any]) -> None:
    forge_and_open(lambda body: {**body, **changes})


@given(
    st.sampled_from(["operators", "files"]),
    st.sampled_from(["name", "kind", "version", "placement", "keys", "bytes", "sha256", "raw", "base"]),
    JSON,
)
def test_forged_entry_of_the_newest_manifest(part: str, field: str, value: Any) -> None:
    forge_and_open(lambda body: {**body, part: [{**entry, field: value} for entry in body[part]]})


@given(st.sampled_from(["name", "kind", "fields", "script"]), JSON | st.lists(st.text(max_size=3)))
def test_a_forged_shape_is_an_error_of_a_snapshot_or_fits(field: str, value: Any) -> None:
    shape = {"name": "job:Acc", "kind": "dataclass", "fields": ["n"], "script": "", field: value}
    forge_and_open(lambda body: {**body, "operators": [{**entry, "shapes": [shape]} for entry in body["operators"]]})


def forge_and_open(forge: Any) -> None:
    """Replace the newest manifest, and do all that reads it."""
    store = HookedStore()
    Job(StoreBackend(store)).save({"a": 1}).result()
    key = manifest_key(2)
    store.objects[key] = sealed(forge(body_of(store.objects[key])))
    backend = StoreBackend(store)
    for use in (lambda: fsck(backend), lambda: [*snapshots(backend)], lambda: Job(backend).save({"b": 1}).result()):
        try:
            use()
        except SnapshotError:
            continue
    assert all(key.startswith(("job.json", "m/", "d/", "gc/")) for _, key in store.calls if key)


NAMES = [
    "../x",
    "d/../../x",
    "/etc/passwd",
    "job.json",
    "m/00000000000000000004.json",
    "gc/00000000000000000009",
    "d/x",
    "d/00000000000000000002-1-0123456789abcdef-0123456789abcdef.mfs/../../job.json",
    "d/00000000000000000002-1-0123456789abcdef-0123456789abcdef.mfs\n",
    "d/\u06600000000000000000002-1-0123456789abcdef-0123456789abcdef.mfs",
    "D/00000000000000000002-1-0123456789abcdef-0123456789abcdef.mfs",
    "s3://other/d/00000000000000000002-1-0123456789abcdef-0123456789abcdef.mfs",
    "",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_name_is_refused_before_anything_is_read_or_deleted(store: HookedStore, name: str) -> None:
    job = Job(StoreBackend(store, retain=1))
    for n in range(3):
        job.save({n: n}).result()
    body = body_of(store.objects[manifest_key(4)])
    store.objects[manifest_key(4)] = sealed({**body, "files": [{**body["files"][0], "name": name}]})
    store.clear_calls()
    with pytest.raises(SnapshotCorrupt, match=r"is not a data file"):
        Job(StoreBackend(store, retain=1))
    job.save({9: 9}).result()
    assert ("delete", name) not in store.calls
    assert ("get", name) not in store.calls or name in store.objects
    assert {key.partition("/")[0] for _, key in store.calls} <= {"job.json", "m", "d", "gc"}


def test_a_forged_size_makes_nobody_read_more_than_there_is(store: HookedStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    body = body_of(store.objects[manifest_key(2)])
    store.objects[manifest_key(2)] = sealed({**body, "files": [{**body["files"][0], "bytes": 2**80}]})
    with pytest.raises(SnapshotCorrupt, match=r"is damaged: it has \d+ bytes"):
        Job(StoreBackend(store))


# In its place


@pytest.fixture
def three(store: HookedStore) -> HookedStore:
    job = Job(StoreBackend(store))
    for n in range(2):
        job.save({"a": n}).result()
    return store


@pytest.mark.fault("B5")
def test_a_manifest_under_the_number_of_another_is_found(three: HookedStore) -> None:
    three.objects[manifest_key(4)] = three.objects[manifest_key(3)]
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+4\.json' contains the number 3; expected 4"):
        Job(StoreBackend(three))
    assert any("contains the number 3" in problem for problem in fsck(StoreBackend(three)).problems)


@pytest.mark.fault("B5")
def test_a_manifest_put_back_over_a_later_one_is_found_by_fsck(three: HookedStore) -> None:
    Job(StoreBackend(three)).save({"a": 2}).result()
    other = HookedStore()
    other.objects = {key: data for key, data in three.objects.items() if key < manifest_key(4)}
    Job(StoreBackend(other))
    three.objects[manifest_key(4)] = other.objects[manifest_key(4)]
    assert fsck(StoreBackend(three)).problems == ("manifest 5 does not follow the present manifest 4",)


@pytest.mark.fault("B7")
def test_a_manifest_of_another_job_is_found(three: HookedStore) -> None:
    other = HookedStore()
    Job(StoreBackend(other)).save({"a": 9}).result()
    three.objects[manifest_key(3)] = other.objects[manifest_key(2)]
    with pytest.raises(SnapshotCorrupt, match=r"contains the number 2; expected 3"):
        Job(StoreBackend(three))
    three.objects[manifest_key(2)] = other.objects[manifest_key(2)]
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+2\.json' contains the job [0-9a-f]{32}; expected [0-9a-f]{32}"):
        Job(StoreBackend(three), restore=2)


@pytest.mark.fault("B4")
def test_a_gap_is_told_and_the_newest_snapshot_still_serves(three: HookedStore) -> None:
    del three.objects[manifest_key(2)]
    assert fsck(StoreBackend(three)).problems == ("manifests 2 to 2 are missing",)
    with pytest.raises(SnapshotError, match=r"'m/0+2\.json' is missing, but earlier and later ones exist"):
        [*snapshots(StoreBackend(three))]
    assert Job(StoreBackend(three)).state == {"a": 1}


# Signatures


def test_signed_manifest_is_read_with_its_key_only(store: HookedStore) -> None:
    Job(StoreBackend(store, signing_key=KEY)).save({"a": 1}).result()
    assert Job(StoreBackend(store, signing_key=KEY)).state == {"a": 1}
    with pytest.raises(SnapshotCorrupt, match=r"it is signed, but no signing key is set; pass signing_key="):
        Job(StoreBackend(store))
    with pytest.raises(
        SnapshotCorrupt, match=r"its signature does not match its content under any of the signing keys"
    ):
        Job(StoreBackend(store, signing_key="another key of sixteen bytes"))
    with pytest.raises(SnapshotCorrupt):
        Job(StoreBackend(store, signing_key="another key of sixteen bytes", allow_unsigned_pickle=True))


def test_unsigned_manifest_is_refused_with_a_key(store: HookedStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    before = dict(store.objects)
    with pytest.raises(SnapshotCorrupt, match=r"it is not signed, but a signing key is set; allow_unsigned_pickle"):
        Job(StoreBackend(store, signing_key=KEY))
    assert store.objects == before
    assert Job(StoreBackend(store, signing_key=KEY, allow_unsigned_pickle=True)).state == {"a": 1}
    assert Job(StoreBackend(store, signing_key=KEY)).state == {"a": 1}, "from here on everything is signed"


def test_a_key_is_replaced_and_the_old_one_needed_no_more(store: HookedStore) -> None:
    old, new = "an old key of the tests", "a new key of the tests"
    Job(StoreBackend(store, signing_key=old)).save({"a": 1}).result()
    with pytest.raises(SnapshotCorrupt):
        Job(StoreBackend(store, signing_key=new))
    job = Job(StoreBackend(store, signing_key=[new, old], retain=1))
    assert job.state == {"a": 1}
    for n in range(3):
        job.save({"b": n}).result()
    assert Job(StoreBackend(store, signing_key=new)).state == {"a": 1, "b": 2}
    assert fsck(StoreBackend(store, signing_key=new)).problems == ()


def test_the_key_may_come_from_the_environment(store: HookedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(StoreBackend(store, signing_key=KEY)).save({"a": 1}).result()
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert Job(StoreBackend(store)).state == {"a": 1}


@pytest.mark.parametrize("mac", [None, "", "x", 7, [], "00000000:" + "0" * 64, "\u0661" * 8 + ":" + "0" * 64])
def test_a_wrong_signature_is_found(store: HookedStore, mac: Any) -> None:
    Job(StoreBackend(store, signing_key=KEY)).save({"a": 1}).result()
    changed = {**json.loads(store.objects[manifest_key(2)]), "mac": mac}
    store.objects[manifest_key(2)] = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SnapshotCorrupt, match=r"can't be trusted"):
        Job(StoreBackend(store, signing_key=KEY))


def test_a_signature_of_other_content_is_found(store: HookedStore) -> None:
    job = Job(StoreBackend(store, signing_key=KEY))
    job.save({"a": 1}).result()
    job.save({"a": 2}).result()
    mac = json.loads(store.objects[manifest_key(2)])["mac"]
    forged = {**json.loads(store.objects[manifest_key(3)]), "mac": mac}
    store.objects[manifest_key(3)] = json.dumps(forged, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SnapshotCorrupt, match=r"can't be trusted"):
        Job(StoreBackend(store, signing_key=KEY))


@pytest.mark.fault("B7")
def test_signed_snapshots_of_another_job_with_the_same_key_are_not_taken(store: HookedStore) -> None:
    Job(StoreBackend(store, signing_key=KEY, job="others")).save({"a": 1}).result()
    body = body_of(store.objects["job.json"])
    store.objects["job.json"] = sealed({**body, "name": "mine"})
    with pytest.raises(SnapshotCorrupt, match=r"'m/0+2\.json' contains the name others; expected mine"):
        Job(StoreBackend(store, signing_key=KEY, job="mine"))


def test_nothing_of_a_snapshot_that_can_not_be_trusted_is_even_read(store: HookedStore) -> None:
    Job(StoreBackend(store)).save({"a": 1}).result()
    store.clear_calls()
    with pytest.raises(SnapshotCorrupt):
        Job(StoreBackend(store, signing_key=KEY))
    assert data_keys(store)
    assert [key for operation, key in store.calls if operation == "get" and key.startswith("d/")] == []
