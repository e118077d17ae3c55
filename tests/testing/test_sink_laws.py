"""The suite for sinks: it accepts a good one, and names the law that a bad one breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest

from malflow import GraphError
from malflow.errors import FencedError
from malflow.sinks import Share, SinkOwner, StatelessSink, TransactionalSinkImpl, VecSink
from malflow.testing import assert_sink
from malflow.testing.share_laws import SHARE_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from tests.kit.counted_files import JsonFiles, JsonWriter, read_json_files
from tests.kit.going_back import copied_folder
from tests.kit.ledger import LedgerSink, rows_of


class Table:
    """A table outside, with a ledger."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.owners: dict[str, tuple[int, int]] = {}
        self.open: dict[str, list[Any]] = {}
        self.restored = False

    def copied(self) -> Callable[[], None]:
        rows, owners = list(self.rows), dict(self.owners)

        def back() -> None:
            self.rows[:], self.owners, self.restored = rows, dict(owners), True

        return back


class Good(TransactionalSinkImpl[Any, Any, Any, Any]):
    """Keeps all laws, with the rows in its handles; subclasses break one."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.written: list[Any] = []
        self.known = 0

    def sink(self, msg: Any) -> None:
        self.written.append(msg.value)

    def fence(self, owner: SinkOwner) -> int | None:
        self.owner, self.written = owner, []
        claim, transaction = self.table.owners.get(owner.name, (0, 0))
        self.check(claim)
        self.known = owner.transaction
        self.compare(transaction)
        self.table.owners[owner.name] = owner.claim, transaction
        self.known = transaction
        return transaction

    def check(self, claim: int) -> None:
        if claim > self.owner.claim:
            raise FencedError("another run has the table")

    def prepare(self, transaction: int) -> Any:
        rows, self.written = self.written, []
        return (transaction, rows) if rows else None

    def commit(self, handles: Sequence[Any]) -> None:
        claim, last = self.table.owners.get(self.owner.name, (0, 0))
        self.check(claim)
        self.compare(last)
        for transaction, rows in handles:
            if transaction > last:
                self.table.rows += rows
                self.table.owners[self.owner.name] = self.owner.claim, transaction
            self.known = max(self.known, transaction)

    def compare(self, last: int) -> None:
        if last < self.known:
            raise ValueError(f"transaction {self.known} was committed; there is {last}")

    def abort(self, keep: Sequence[Any]) -> None:
        self.written = []


class Forgetful(Good):
    def compare(self, last: int) -> None:
        """Write on, whatever is there."""


class ForgetfulAmid(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        self.known = 0
        super().commit(handles)


class Suspicious(Good):
    def compare(self, last: int) -> None:
        if self.table.restored:
            raise ValueError("it was restored")


class Fenced(Good):
    def compare(self, last: int) -> None:
        if last < self.known:
            raise FencedError("another run has it")


class Eager(Good):
    def sink(self, msg: Any) -> None:
        self.table.rows.append(msg.value)
        super().sink(msg)


class EagerAtPrepare(Good):
    def prepare(self, transaction: int) -> Any:
        self.table.rows += self.written
        return super().prepare(transaction)


class Lazy(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        """Do nothing."""


class Doubling(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        for _, rows in handles:
            self.table.rows += rows


class DoublingForHeirs(Good):
    def fence(self, owner: SinkOwner) -> int | None:
        super().fence(owner)
        self.table.owners[owner.name] = owner.claim, 0
        return None


class AlwaysHandling(Good):
    def prepare(self, transaction: int) -> Any:
        return super().prepare(transaction) or (transaction, [])


class NeverHandling(Good):
    def prepare(self, transaction: int) -> Any:
        super().prepare(transaction)


class Locked(Good):
    def prepare(self, transaction: int) -> Any:
        return (*super().prepare(transaction), threading.Lock()) if self.written else None


class OneOnly(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        super().commit(handles[-1:])


class Forgetting(Good):
    """Commits only what this object has prepared."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.mine: set[int] = set()

    def prepare(self, transaction: int) -> Any:
        self.mine.add(transaction)
        return super().prepare(transaction)

    def commit(self, handles: Sequence[Any]) -> None:
        super().commit([it for it in handles if it[0] in self.mine])


class Miscounting(Good):
    def fence(self, owner: SinkOwner) -> int | None:
        return (super().fence(owner) or 0) + 1


class Keeping(Good):
    """Stages the rows of transactions outside, and does not drop them."""

    def prepare(self, transaction: int) -> Any:
        self.table.open.setdefault(f"{self.owner.name} {transaction}", []).extend(self.written)
        return super().prepare(transaction) and transaction

    def commit(self, handles: Sequence[Any]) -> None:
        super().commit([(number, self.table.open.get(f"{self.owner.name} {number}", [])) for number in handles])


class NotDropping(Good):
    def abort(self, keep: Sequence[Any]) -> None:
        """Do nothing."""


class Dropping(Good):
    """Drops what it should keep."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.dead = False

    def abort(self, keep: Sequence[Any]) -> None:
        super().abort(keep)
        self.dead = bool(keep)

    def commit(self, handles: Sequence[Any]) -> None:
        super().commit([] if self.dead else handles)


class Unfenced(Good):
    def check(self, claim: int) -> None:
        """Do nothing."""

    def commit(self, handles: Sequence[Any]) -> None:
        for transaction, rows in handles:
            if rows and rows[0] not in self.table.rows:
                self.table.rows += rows
            self.table.owners[self.owner.name] = self.owner.claim, transaction


class Usurping(Good):
    """The last that comes has the table, whatever its claim."""

    def fence(self, owner: SinkOwner) -> int | None:
        _, transaction = self.table.owners.get(owner.name, (0, 0))
        self.owner, self.written = owner, []
        self.table.owners[owner.name] = owner.claim, transaction
        return transaction


class Partial(Good):
    """Writes the rows of a transaction and its ledger one after the other, and dies in between, once."""

    died: ClassVar[list[int]] = []

    def commit(self, handles: Sequence[Any]) -> None:
        if self.owner.job.startswith("crash") and not self.died:
            self.died.append(1)
            self.table.rows += handles[0][1][:1]
        super().commit(handles)


class Staging(Good):
    """Keeps all laws, with the rows of transactions outside; subclasses break one."""

    def name(self, transaction: int) -> str:
        return f"{self.owner.name} {transaction} {len(self.table.open)} {self.owner.claim}"

    def prepare(self, transaction: int) -> Any:
        handle, name = super().prepare(transaction), self.name(transaction)
        if handle is None:
            return None
        self.table.open[name] = handle[1]
        return transaction, name

    def commit(self, handles: Sequence[Any]) -> None:
        claim, last = self.table.owners[self.owner.name]
        self.check(claim)
        super().commit([(transaction, self.table.open[name]) for transaction, name in handles if transaction > last])

    def abort(self, keep: Sequence[Any]) -> None:
        super().abort(keep)
        self.drop(f"{self.owner.name} ", {name for _, name in keep})

    def drop(self, prefix: str, kept: set[str]) -> None:
        for name in [it for it in self.table.open if it.startswith(prefix) and it not in kept]:
            self.table.open[name] = []


class TextClaims(Staging):
    def check(self, claim: int) -> None:
        if str(claim) > str(self.owner.claim):
            raise FencedError("another run has the table")


class TextTransactions(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        last = self.table.owners[self.owner.name][1]
        super().commit([it for it in handles if str(it[0]) > str(last)])


class NoGaps(Good):
    def commit(self, handles: Sequence[Any]) -> None:
        last = self.table.owners[self.owner.name][1]
        super().commit([(number, rows if number <= last + 1 + at else []) for at, (number, rows) in enumerate(handles)])


class KeepingOne(Staging):
    def abort(self, keep: Sequence[Any]) -> None:
        super().abort(keep[:1])


class Sweeping(Staging):
    def drop(self, prefix: str, kept: set[str]) -> None:
        super().drop("", kept)


class LedgerOfTheJob(Good):
    def fence(self, owner: SinkOwner) -> int | None:
        return super().fence(SinkOwner(owner.job, "", owner.claim))


class DroppingBeforeItLooks(Staging):
    def fence(self, owner: SinkOwner) -> int | None:
        if owner.claim < self.table.owners.get(owner.name, (0, 0))[0]:
            self.drop(f"{owner.name} ", set())
        return super().fence(owner)


class Checkless(Staging):
    """Relies on what the next run's abort() has dropped."""

    def check(self, claim: int) -> None:
        """Do nothing."""

    def fence(self, owner: SinkOwner) -> int | None:
        if owner.claim < self.table.owners.get(owner.name, (0, 0))[0]:
            raise FencedError("another run has the table")
        return super().fence(owner)


class StagingByNumber(Staging):
    def name(self, transaction: int) -> str:
        return f"{self.owner.name} {transaction}"


class Reusing(Good):
    """Writes on into a handle."""

    handle: Any = None

    def sink(self, msg: Any) -> None:
        if self.handle is not None:
            self.handle[1].clear()
            self.handle = None
        super().sink(msg)

    def prepare(self, transaction: int) -> Any:
        self.handle = super().prepare(transaction)
        return self.handle


class DroppingAtItsEnd(Staging):
    def close(self) -> None:
        self.abort([])


class WritingAtItsEnd(Good):
    def close(self) -> None:
        self.table.rows += self.written


class EndedForGood(Good):
    ended = False

    def close(self) -> None:
        self.ended = True

    def sink(self, msg: Any) -> None:
        if not self.ended:
            super().sink(msg)


class Talking(Good):
    def __repr__(self) -> str:
        return "Talking(dsn=user:hush@host)"


class TalkingHandles(Good):
    def prepare(self, transaction: int) -> Any:
        made = super().prepare(transaction)
        return made and (*made[:1], made[1] + ["hush"])


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        ("invisible", Eager),
        ("invisible", EagerAtPrepare),
        ("visible", Lazy),
        ("visible", NeverHandling),
        ("idempotent", Doubling),
        ("idempotent", DoublingForHeirs),
        ("empty", AlwaysHandling),
        ("handles", Locked),
        ("handles", Reusing),
        ("several", OneOnly),
        ("several", TextTransactions),
        ("several", NoGaps),
        ("heir", Forgetting),
        ("ledger", Miscounting),
        ("abort", Keeping),
        ("abort", NotDropping),
        ("keep", Dropping),
        ("keep", KeepingOne),
        ("close", DroppingAtItsEnd),
        ("close", WritingAtItsEnd),
        ("close", EndedForGood),
        ("others", Sweeping),
        ("others", LedgerOfTheJob),
        ("zombie", Unfenced),
        ("zombie", Checkless),
        ("zombie", StagingByNumber),
        ("stale", Usurping),
        ("stale", DroppingBeforeItLooks),
        ("ledger", TextClaims),
        ("crashes", Partial),
        ("restored", Forgetful),
        ("restored", ForgetfulAmid),
        ("restored", Suspicious),
        ("restored", Fenced),
        ("secrets", Talking),
        ("secrets", TalkingHandles),
    ],
)
def test_the_law_that_a_sink_breaks(law: str, kind: type[Good]) -> None:
    table = Table()
    Partial.died.clear()
    with pytest.raises(AssertionError, match=f"assert_sink: the law '{law}' is broken: "):
        assert_sink(lambda: kind(table), lambda: table.rows, copy_output=table.copied, secrets=["hush"])


@pytest.mark.slow
def test_a_good_sink() -> None:
    table = Table()
    assert_sink(
        lambda: Good(table),
        lambda: table.rows,
        make_value=lambda number: {"n": [number]},
        copy_output=table.copied,
    )
    assert_sink(lambda: StatelessSink(Good(table)), lambda: [row for row in table.rows if row != {}])
    staged = Table()
    assert_sink(lambda: Staging(staged), lambda: staged.rows)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.slow
def test_a_sink_into_a_database(staged: bool, tmp_path: Path) -> None:
    path = tmp_path / "outside.db"
    assert_sink(lambda: LedgerSink(path, staged=staged), lambda: rows_of(path), copy_output=lambda: copied_folder(path))


def test_a_sink_that_is_no_transactional_one() -> None:
    with pytest.raises(GraphError, match="assert_sink needs a sink that delivers exactly once; got VecSink"):
        assert_sink(VecSink, list)
    with pytest.raises(GraphError, match=r"assert_sink has no law 'zombies'; did you mean 'zombie'\?"):
        assert_sink(VecSink, list, without=["zombies"])


def test_every_law_in_the_docstring() -> None:
    text = assert_sink.__doc__ or ""
    assert all(f"- ``{law}``:" in text for law in SINK_LAWS)


@pytest.mark.slow
def test_sink_that_does_not_notice_a_frozen_system() -> None:
    table = Table()
    with pytest.raises(AssertionError, match=r"'frozen' is broken: commit\(\) raised no error in 1 s"):
        assert_sink(lambda: Good(table), lambda: table.rows, freeze=nullcontext, timeout=1)


class Sloppy(JsonFiles):
    """Writes pieces out at once."""

    def encode(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> list[str]:
        pieces = super().encode(keys, values, timestamps)
        (self.folder / f"{keys[0]}.json").write_text("\n".join(pieces))
        return pieces


class Wired(JsonFiles):
    """Keep a lock, which no pickle can hold."""

    def fence(self, owner: SinkOwner) -> int:
        self.lock = threading.Lock()
        return super().fence(owner)


class Unnamed(JsonFiles):
    """Names the file of a share by its transaction alone."""

    def open_writer(self, share: Share) -> JsonWriter:
        return JsonWriter(self.folder / f"{self.claim:06d}-{share.transaction:06d}.part")


class SealedIsVisible(JsonFiles):
    """Makes all files of a transaction visible, not only those in its handle."""

    def commit(self, handles: Sequence[Any]) -> None:
        super().commit(handles)
        for transaction, _ in handles:
            for path in self.folder.glob(f"*-{transaction:06d}-*.part"):
                path.rename(path.with_suffix(".json"))


class Fenceless(JsonFiles):
    """Does not look whose the folder is."""

    def check(self) -> None:
        """Do nothing."""


class Blind(JsonFiles):
    """Drops files that it is to keep."""

    def abort(self, keep: Sequence[Any]) -> None:
        super().abort([(number, sealed[:1]) for number, sealed in keep])


@pytest.mark.slow
def test_the_sink_that_is_written_from_the_contract_keeps_its_laws(tmp_path: Path) -> None:
    assert_sink(lambda: JsonFiles(str(tmp_path)), lambda: read_json_files(tmp_path), without=["others"])


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        ("pieces", Sloppy),
        ("pieces", Wired),
        ("shares", Unnamed),
        ("repeated", SealedIsVisible),
        ("repeated", Blind),
        ("late", Fenceless),
    ],
)
def test_a_distributed_sink_that_breaks_a_law_is_found(tmp_path: Path, law: str, kind: type[JsonFiles]) -> None:
    others = [it for it in SINK_LAWS if it not in SHARE_LAWS]
    with pytest.raises(AssertionError, match=f"the law '{law}' is broken"):
        assert_sink(lambda: kind(str(tmp_path)), lambda: read_json_files(tmp_path), without=others)
