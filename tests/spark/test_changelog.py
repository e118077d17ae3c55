"""The changelog: a read returns what this generation of this run wrote, or raises."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from malflow.errors import RunFailed, StoreError
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder, StoredOutput
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, PackedEntry, pack_entry
from malflow.states.keyed import Delta
from tests.kit.faulty_s3 import FaultyS3

PLACE = ScratchFolder("", {}, "ab" * 8, b"a key for tests")


def change(tick: int, value: int, before: int = NEVER) -> PackedEntry:
    return pack_entry(ChangelogEntry(tick, before, {"sum": Delta({"key": value}, appended=1)}))


@pytest.fixture
def place(tmp_path: Path) -> ScratchFolder:
    return replace(PLACE, url=str(tmp_path))


@pytest.mark.fault("I5")
def test_the_first_change_that_is_written_counts(place: ScratchFolder) -> None:
    scratch = Changelog(place, 1)
    assert scratch.write(0, 2, change(5, 50), StoredOutput(["fifty"], ["a piece"]))
    assert not scratch.write(0, 2, change(5, 51), StoredOutput(["fifty-one"]))
    assert scratch.read(0, 2, 5).deltas["sum"].changed == {"key": 50}
    assert scratch.output(0, 2, 5) == StoredOutput(["fifty"], ["a piece"])
    assert scratch.output(0, 2, 6) is None


def test_pieces_of_an_output_have_names_of_their_own(place: ScratchFolder) -> None:
    scratch = Changelog(place, 1)
    names = [scratch.write_piece(0, 2, 5, [b"a", number]) for number in (b"0", b"1")]
    assert [scratch.read_piece(name) for name in names] == [b"a0", b"a1"]
    scratch.discard((), names[:1])
    with pytest.raises(RunFailed, match="is missing from the scratch folder"):
        scratch.read_piece(names[0])
    assert scratch.read_piece(names[1]) == b"a1"


def test_discarded_entries_and_pieces_are_gone_at_once_from_a_local_folder(place: ScratchFolder) -> None:
    scratch = Changelog(place, 1)
    for tick in (5, 6, 7):
        scratch.write(0, 2, change(tick, tick, before=NEVER))
    pieces = [scratch.write_piece(0, 2, 7, [b"sent"]), scratch.write_sink_pieces(0, 2, 7, b"written")]
    scratch.discard([(0, 2, 5), (0, 2, 4), (0, 2, 6)], pieces)
    assert [scratch.find(0, 2, tick) is None for tick in (5, 6, 7)] == [True, True, False]
    assert [path.name for path in Path(place.url).rglob("*") if path.is_file()] == [f"{7:012d}-0-2"]


@pytest.mark.parametrize("held", [NEVER, 4, 5])
def test_of_a_whole_change_only_those_behind_read_all(place: ScratchFolder, held: int) -> None:
    """Whoever has the change before it needs what is recent, and no more."""
    scratch = Changelog(place, 1)
    scratch.write(0, 2, change(5, 50, before=4))
    recent, everything = {"sum": Delta({"key": 60})}, {"sum": Delta({"old": 1, "key": 60}, whole=True)}
    scratch.write(0, 2, pack_entry(ChangelogEntry(6, 5, everything, whole=True, recent=recent)))
    (found,) = scratch.since(0, 2, 6, held)
    assert (found.tick, found.whole, found.deltas) == ((6, False, recent) if held == 5 else (6, True, everything))
    assert scratch.read(0, 2, 6).deltas == everything


@pytest.mark.fault("I5")
@pytest.mark.parametrize("run", ["ab", "cd"])
def test_changes_of_a_late_task_are_never_read(place: ScratchFolder, run: str) -> None:
    late, scratch = Changelog(replace(place, run=8 * run), 1), Changelog(place, 2)
    assert late.write(0, 2, change(5, 13))
    assert scratch.find(0, 2, 5) is None
    assert scratch.write(0, 2, change(5, 50))
    assert late.write(0, 2, change(6, 13))
    assert [it.deltas["sum"].changed for it in scratch.since(0, 2, 5, NEVER)] == [{"key": 50}]
    with pytest.raises(RunFailed, match="is missing from the scratch folder"):
        scratch.read(0, 2, 6)


@pytest.mark.slow
def test_any_bit_that_flips_and_any_end_that_lacks_is_found(place: ScratchFolder, tmp_path: Path) -> None:
    scratch = Changelog(place, 1)
    scratch.write(0, 2, change(5, 50))
    (file,) = [it for it in tmp_path.rglob("*") if it.is_file()]
    whole = file.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    flips = product(range(len(whole)), (0, 7))
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at, bit in flips]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(RunFailed, match="is damaged: its content is not what this run wrote"):
            scratch.read(0, 2, 5)


@pytest.mark.fault("I3")
def test_leftovers_of_a_killed_process_are_never_read(place: ScratchFolder, tmp_path: Path) -> None:
    other, scratch = Changelog(place, 1), Changelog(place, 2)
    assert other.write(0, 2, change(5, 50))
    assert scratch.write(0, 2, change(5, 50))
    for file in [it for it in tmp_path.rglob("*") if it.is_file()]:
        file.with_name(f".tmp-000000000006-0-2-{8 * 'ab'}").write_bytes(file.read_bytes()[:20])
    assert scratch.find(0, 2, 6) is None
    scratch.clear()
    assert {it.parent.name for it in tmp_path.rglob("*") if it.is_file()} == {"1"}
    other.clear()
    assert [it for it in tmp_path.rglob("*") if it.is_file()] == []


@pytest.fixture
def server() -> Iterator[FaultyS3]:
    with FaultyS3() as started:
        yield started


@pytest.mark.slow
def test_remote_changes_are_signed_and_passing_failures_retried(
    server: FaultyS3, caplog: pytest.LogCaptureFixture
) -> None:
    place = ScratchFolder(f"s3://{server.bucket}/scratch", server.options, *(PLACE.run, PLACE.key))
    scratch = Changelog(place, 1)
    server.inject("throttled", "PUT")
    assert scratch.write(0, 2, change(5, 50))
    server.inject("error_after", "PUT")
    assert not scratch.write(0, 2, change(6, 51, before=5)), "whose it is, is not known: the output is read"
    server.inject("throttled", "GET")
    assert [it.tick for it in scratch.since(0, 2, 6, NEVER)] == [5, 6]
    assert server.fired == 3
    (name,) = [it for it in server.filesystem().find(place.url) if it.endswith("000005-0-2")]
    data = server.filesystem().cat_file(name)
    other = Changelog(replace(place, key=b"another key"), 1)
    with pytest.raises(RunFailed, match="is damaged: its content is not what this run wrote"):
        other.read(0, 2, 5)
    server.filesystem().pipe_file(name.replace("000005", "000007"), data)
    with pytest.raises(RunFailed, match="is damaged: its content is not what this run wrote"):
        scratch.read(0, 2, 7)
    server.inject("403", "PUT", times=5)
    with pytest.raises(StoreError) as refused:
        scratch.write(0, 2, change(8, 50))
    told = f"{refused.value!r} {place!r} {caplog.text}"
    assert "a-secret-key" not in told
    assert "an-access-key" not in told
    caplog.set_level(logging.DEBUG)
    server.inject("late", "DELETE", times=9)
    scratch.discard([(0, 2, 5), (0, 2, 6)])  # it is not waited for
    assert len([*scratch.since(0, 2, 6, NEVER)]) == 2
    server.release()
    scratch.close()
    scratch.clear()
    assert server.filesystem().find(place.url) == []
