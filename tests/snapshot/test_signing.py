"""Signatures of files, and secrets that no message shows."""

from __future__ import annotations

import copy
import hmac
import logging
import pickle
import time
import traceback
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import GraphError, SnapshotError
from malflow.snapshot.protocol.signing import KEY_VARIABLE, Signer
from malflow.store.redaction import is_secret_name, redacted, secrets_in

CANARY = "canary-7f3a91c4-not-to-be-told"
OLD = "an-older-key-of-enough-bytes"


@pytest.fixture(autouse=True)
def _no_key_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def signer_of(*keys: str | bytes) -> Signer:
    signer = Signer.of(list(keys))
    assert signer is not None
    return signer


@given(data=st.binary(), other=st.binary())
def test_a_signature_holds_for_these_bytes_only(data: bytes, other: bytes) -> None:
    signer = signer_of(CANARY)

    assert signer.verify(data, signer.sign(data))
    assert signer.verify(other, signer.sign(data)) == (data == other)


def test_it_is_hmac_sha256_with_the_id_of_the_key() -> None:
    mac = signer_of("k" * 16).sign(b"data")

    assert mac == "f498c232:6c898773be815eebbc0f8c77b7f6b8123f64e0456dcf52ace61cec5763069970"
    assert mac.endswith(hmac.new(b"k" * 16, b"data", "sha256").hexdigest())


def test_each_changed_character_of_a_signature_is_found() -> None:
    signer = signer_of(CANARY)
    mac = signer.sign(b"data")

    for place, was in enumerate(mac):
        for now in "0f:G":
            assert signer.verify(b"data", mac[:place] + now + mac[place + 1 :]) == (was == now)


@pytest.mark.parametrize("mac", ["", ":", "é" * 73, "0" * 8 + ":" + "0" * 64, "x\n"])
def test_invalid_signature_is_not_accepted(mac: str) -> None:
    assert not signer_of(CANARY).verify(b"data", mac)


def test_a_line_end_or_capitals_are_no_part_of_a_signature() -> None:
    signer = signer_of(CANARY)
    mac = signer.sign(b"data")

    assert not signer.verify(b"data", f"{mac}\n")
    assert not signer.verify(b"data", mac.upper())


def test_the_first_key_signs_and_each_verifies() -> None:
    before, after = signer_of(OLD), signer_of(CANARY, OLD)

    assert after.verify(b"data", before.sign(b"data"))
    assert not before.verify(b"data", after.sign(b"data"))
    assert after.sign(b"data") == signer_of(CANARY).sign(b"data")
    assert after.key_ids == (*signer_of(CANARY).key_ids, *before.key_ids)


def test_text_and_bytes_are_the_same_key() -> None:
    assert signer_of("kéy-of-sixteen-bytes").sign(b"x") == signer_of("kéy-of-sixteen-bytes".encode()).sign(b"x")


def test_keys_come_from_the_environment_where_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Signer.of() is None
    monkeypatch.setenv(KEY_VARIABLE, " , ")
    assert Signer.of() is None
    monkeypatch.setenv(KEY_VARIABLE, f"{CANARY}, {OLD}")

    signer = Signer.of()

    assert signer is not None
    assert signer.key_ids == signer_of(CANARY, OLD).key_ids
    assert signer_of(OLD).key_ids == (signer.key_ids[1],)


@pytest.mark.parametrize("keys", [CANARY[:15], CANARY[:15].encode(), [CANARY, CANARY[:9]], [], [CANARY, 5], 5, ""])
def test_invalid_signing_key_is_refused_without_showing_it(keys: Any) -> None:
    with pytest.raises(GraphError) as refused:
        Signer.of(keys)

    assert "canary" not in "".join(traceback.format_exception(refused.value))


def test_a_short_key_in_the_environment_is_refused_without_telling_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, CANARY[:12])

    with pytest.raises(GraphError, match="signing key 1 has 12 bytes; it needs at least 16") as refused:
        Signer.of()

    assert "canary" not in "".join(traceback.format_exception(refused.value))


def test_a_signer_shows_and_carries_no_key(caplog: pytest.LogCaptureFixture) -> None:
    signer = signer_of(CANARY, OLD)
    logging.getLogger("malflow").warning("%s %r %s", signer, signer, vars(Signer))
    pickles = [pickle.dumps(signer, protocol) for protocol in range(2, 6)]
    told = [repr(signer), str(signer), f"{signer}", caplog.text, signer.sign(b""), *map(repr, pickles)]

    for text in told:
        for key in (CANARY, OLD):
            assert key not in text
            assert key.encode().hex() not in text
    assert not hasattr(signer, "__dict__")


def test_an_unpickled_signer_takes_its_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = signer_of(CANARY, OLD)
    monkeypatch.setenv(KEY_VARIABLE, f"{OLD},{CANARY}")

    travelled = pickle.loads(pickle.dumps(signer))

    assert travelled.sign(b"data") == signer.sign(b"data")
    assert travelled.verify(b"data", signer_of(OLD).sign(b"data"))


@pytest.mark.parametrize("there", ["", OLD])
def test_an_unpickled_signer_without_its_key_says_so_when_it_is_used(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = signer_of(CANARY)
    monkeypatch.setenv(KEY_VARIABLE, there)

    travelled = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(signer))))

    for use in (lambda: travelled.sign(b"data"), lambda: travelled.verify(b"data", signer.sign(b"data"))):
        with pytest.raises(SnapshotError, match=f"{signer.key_ids[0]} is not known to this process"):
            use()
    assert repr(travelled) == repr(signer)


def test_a_copied_signer_keeps_its_keys() -> None:
    signer = signer_of(CANARY)

    for copied in (copy.copy(signer), copy.deepcopy([signer])[0]):
        assert copied.sign(b"data") == signer.sign(b"data")


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "secret",
        "AWS_SECRET_ACCESS_KEY",
        "aws_session_token",
        "sas_token",
        "SAS",
        "password",
        "passwd",
        "account_key",
        "client_secret",
        "credentials",
        "connection_string",
        "Authorization",
        "private-key",
        "X-Amz-Signature",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["anon", "endpoint_url", "region_name", "timeout", "disaster", "protocol", "sasha"])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_found_however_deep() -> None:
    options = {
        "key": "AKIA-CANARY",
        "secret": b"bytes-canary",
        "anon": False,
        "endpoint_url": "http://user:url-canary@localhost:9000",
        "client_kwargs": {
            "aws_session_token": "token-canary",
            "region": "eu",
            "headers": [{"Authorization": "Bearer c"}],
        },
        "token": {"private_key": "pem-canary", "client_email": "all-below-a-secret-name"},
        "password": 123456,
    }

    assert secrets_in(options) == [
        "AKIA-CANARY",
        "bytes-canary",
        "url-canary",
        "token-canary",
        "Bearer c",
        "pem-canary",
        "all-below-a-secret-name",
        "123456",
    ]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://bucket/path", []),
        ("s3://bucket/user@host:x/y", []),
        ("/local/a:b@c", []),
        ("http://localhost:9000/me@x", []),
        ("ftp://me:psst@host/x", ["psst"]),
        ("ftp://me:p%40sst@host/x", ["p%40sst", "p@sst"]),
        ("https://lonelytoken@host/x", ["lonelytoken"]),
        ("s3://AKIAIOSFODNN7EXAMPLE:wJal/rXU@bucket/x", ["wJal/rXU", "AKIAIOSFODNN7EXAMPLE"]),
        ("https://h/x?X-Amz-Signature=ab%2Fc&part=2", ["ab%2Fc", "ab/c"]),
        ("https://h/x?sv=1&sig=abc#f", ["abc"]),
        ("simplecache::ftp://me:psst@host/x", ["psst"]),
        ("", []),
    ],
)
def test_secrets_in_urls_are_found(url: str, found: list[str]) -> None:
    assert secrets_in({}, url) == found


@given(
    hidden=st.text("ABZ/+%=\\'\"é ", min_size=4, max_size=20),
    around=st.text("abz:;\n", max_size=20),
)
def test_a_secret_is_never_told_however_it_is_quoted(hidden: str, around: str) -> None:
    spellings = [hidden, repr(hidden), quote(hidden), quote(hidden, safe=""), quote_plus(hidden)]

    text = redacted(around.join(["", *spellings, ""]), [hidden])

    assert not [spelling for spelling in spellings if spelling in text]


@pytest.mark.parametrize(
    "text",
    [
        "PUT https://me:CANARY@host/x failed",
        "PUT s3://AKIA:CAN/ARY+CANARY@bucket/x failed",
        "GET https://CANARY@host/x",
        "GET https://h/x?X-Amz-Signature=CANARY&b=1",
        "GET https://h/x?b=1&x-amz-security-token=CANARY",
        "GET https://h/x?AWSAccessKeyId=CANARY&Signature=CANARY",
        "GET https://h/x?sv=1&sig=CANARY",
        "{'Authorization': 'AWS4-HMAC-SHA256 Credential=CANARY, SignedHeaders=a;b, Signature=CANARY'}",
        "authorization: Bearer CANARY",
        "headers={'X-Amz-Security-Token': b'CANARY'}",
        "S3FileSystem(key_id=1, secret='CANARY')",
        'config {"aws_secret_access_key": "CANARY"}',
    ],
)
def test_likely_secrets_are_hidden_by_their_form(text: str) -> None:
    assert "CANARY" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "the bucket 'b' does not exist",
        "s3://bucket/d/00000000000000000001.mfs is missing",
        "http://localhost:9000/bucket/me@example.org refused",
        "An error occurred (404) when calling the GetObject operation: Key='d/0001' not found",
        "operator 'keys' has 3 keys",
    ],
)
def test_texts_without_secrets_stay_as_they_are(text: str) -> None:
    assert redacted(text, ["other-secret"]) == text


def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    assert redacted("abc abcd 'abc'", ["abc"]) == "*** abcd '***'"


def test_the_longest_secret_is_hidden_first() -> None:
    assert redacted("user-name and user-name-password", ["user-name", "user-name-password"]) == "*** and ***"


def test_quoted_spellings_are_hidden() -> None:
    assert redacted("a%2Fb%2Bc%3D a/b%2Bc%3D a/b+c=", ["a/b+c="]) == "*** *** ***"


@given(text=st.text())
def test_redacted_text_is_one_printable_line(text: str) -> None:
    safe = redacted(text)

    assert len(safe.splitlines()) <= 1
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in safe)
    safe.encode()


def test_control_characters_are_escaped() -> None:
    assert redacted("a\nb\x1b[31m\u202e\u2028\ud800") == r"a\nb\x1b[31m\u202e\u2028\ud800"


@pytest.mark.parametrize(
    "piece", ["a", "://", "://a:", " x://a:b", "key", "?sig", " secret", "authorization", "'secret':'"]
)
def test_a_long_text_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    redacted(piece * (200_000 // len(piece)), ["needle"])

    assert time.process_time() - started < 5
