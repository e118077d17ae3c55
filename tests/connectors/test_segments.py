"""Segments: what workers have encoded is read as it was written, or an error names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from malflow.connectors.segments import Sealed, Segments
from malflow.errors import MalflowError
from malflow.sinks import Share, SinkOwner
from malflow.store.opening import open_store


def segments(folder: Path, claim: int, sink: str = "out") -> Segments:
    return Segments(open_store(str(folder), {}), SinkOwner("job", sink, claim))


def sealed(made: Segments, transaction: int, *pieces: str, number: int = 0, suffix: str = "ab") -> Sealed:
    writer = made.writer(Share(transaction, number, 2, suffix))
    for piece in pieces:
        writer.write(piece)
    return writer.seal()


def files(folder: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in folder.glob("s/*/*"))


def test_pieces_of_shares_are_read_in_their_order(tmp_path: Path) -> None:
    made = segments(tmp_path, 3)
    shares = [sealed(made, 1, "a", "b"), sealed(made, 1, "c", number=1)]
    assert [*segments(tmp_path, 4).read(shares)] == ["a", "b", "c"]
    assert [
        *Segments(None, SinkOwner("job", "out", 3)).read([sealed(Segments(None, SinkOwner("job", "out", 3)), 1, "d")])
    ]


def test_a_segment_that_is_gone_or_changed_is_never_unpickled(tmp_path: Path) -> None:
    made = segments(tmp_path, 3)
    share = sealed(made, 1, "a")
    (file,) = tmp_path.glob("s/*/*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        MalflowError, match=r"is damaged in the store .* records of sink 'out' .*put it back|Put it back"
    ):
        [*made.read([share])]
    file.unlink()
    with pytest.raises(MalflowError, match=r"is gone from the store .* records of sink 'out'"):
        [*made.read([share])]


def test_sweep_leaves_kept_and_foreign_segments(tmp_path: Path) -> None:
    former, made, later = (segments(tmp_path, claim) for claim in (9, 10, 11))
    sealed(segments(tmp_path, 9, "other"), 1, "of another sink")
    _, kept, _ = sealed(former, 2, "kept")
    sealed(former, 2, "lost", suffix="cd")
    sealed(later, 1, "later")
    sealed(made, 3, "mine")
    made.sweep({kept})
    assert files(tmp_path) == ["1-11-0-ab", "1-9-0-ab", "2-9-0-ab"]
    sealed(made, 3, "mine")
    sealed(made, 4, "next")
    made.sweep((), until=3)
    assert files(tmp_path) == ["1-11-0-ab", "1-9-0-ab", "4-10-0-ab"]
