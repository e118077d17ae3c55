"""Local folders: permissions, symbolic links, and the remains of crashes and failing disks."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from malflow.errors import StoreError
from malflow.store.contract import KeyExists, KeyMissing, UnknownOutcome
from malflow.store.local import LocalStore
from tests.store.conftest import run_python

pytestmark = pytest.mark.slow

BODY = b"0123456789" * 1_000
PUT = """
import sys
from pathlib import Path
from malflow.store.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
try:
    store.put_new("m/1", b"0123456789" * 1_000)
    print("done")
except Exception as error:
    print(type(error).__name__, error, sep=": ")
"""
SYSCALLS = "mkdirat,write,fsync,linkat,unlinkat"


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0  # noqa: S607


traced = pytest.mark.skipif(not can_trace(), reason="needs strace, and leave to use it")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def put_traced(root: Path, *options: str, fast: bool = True) -> subprocess.CompletedProcess[str]:
    log = str(root.parent / "trace")
    seccomp = ["--seccomp-bpf"] if fast else []  # signals are not injected with it
    return run_python(PUT, str(root), prefix=("strace", "-f", *seccomp, "-y", "-o", log, *options))


def calls_of(root: Path) -> list[str]:
    """Return the calls of the last `put_traced` below the root's parent, without the random parts."""
    lines = (root.parent / "trace").read_text().splitlines()
    told = (re.sub(r"^\d+ +", "", line).replace(str(root), "ROOT") for line in lines)
    told = (line.replace(str(root.parent), "ABOVE") for line in told if str(root.parent) in line or "ROOT" in line)
    return [re.sub(r"-[0-9a-f]{16}\b", "-*", line) for line in told]


def temps_in(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".tmp-*")]


def test_nobody_else_may_read(store: LocalStore, root: Path) -> None:
    mask = os.umask(0)
    try:
        store.put_new("d/sub/1", b"")
        store.put_new("job.json", b"")
    finally:
        os.umask(mask)
    modes = {path.relative_to(root.parent).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert modes == {"job/d": 0o700, "job/d/sub": 0o700, "job/d/sub/1": 0o600, "job/job.json": 0o600}
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_looking_makes_no_folder(store: LocalStore, root: Path) -> None:
    store.list("")
    store.delete("m/1")
    store.sweep("m/", lambda _: True)
    with pytest.raises(KeyMissing):
        store.get("m/1", 1)
    assert not root.exists()


def test_symbolic_link_in_the_place_of_an_object_is_refused(store: LocalStore, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    store.put_new("m/1", b"")
    (root / "m" / "2").symlink_to(secret)
    (root / "m" / "3").symlink_to(tmp_path / "nowhere")
    assert store.list("m/") == ["m/1", "m/2", "m/3"]
    with pytest.raises(StoreError, match="symbolic link"):
        store.get("m/2", 100)
    for key in ("m/2", "m/3"):
        with pytest.raises(KeyExists):
            store.put_new(key, b"mine")
        store.delete(key)
    assert secret.read_bytes() == b"secret"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("folder", ["m", "d/m"])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    store: LocalStore, root: Path, tmp_path: Path, folder: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1").write_bytes(b"theirs")
    (root / folder).parent.mkdir(parents=True)
    (root / folder).symlink_to(outside)
    operations: list[Callable[[], object]] = [
        lambda: store.put_new(f"{folder}/2", b"mine"),
        lambda: store.get(f"{folder}/1", 100),
        lambda: store.list(f"{folder}/"),
        lambda: store.delete(f"{folder}/1"),
        lambda: store.sweep(f"{folder}/", lambda _: True),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match="symbolic link"):
            operation()
    assert [path.name for path in outside.iterdir()] == ["1"]


def test_two_spellings_of_a_root_are_one_place(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "other").symlink_to(root)
    LocalStore(tmp_path / "x" / ".." / "other").put_new("m/1", b"")
    with pytest.raises(KeyExists):
        LocalStore(root).put_new("m/1", b"")


@pytest.mark.fault("A2")
@pytest.mark.parametrize("length", [0, 1, len(BODY) - 1, len(BODY)])
def test_leftover_of_an_interrupted_write_is_invisible_until_swept(store: LocalStore, root: Path, length: int) -> None:
    store.put_new("m/0", b"")
    (root / "m" / ".tmp-1-0123456789abcdef").write_bytes(BODY[:length])
    (root / "m" / ".tmp-2-0123456789abcdef").write_bytes(BODY[:length])
    assert store.list("") == ["m/0"]
    with pytest.raises(KeyMissing):
        store.get("m/1", 100)
    asked: list[str] = []

    def dead(key: str) -> bool:
        asked.append(key)
        return key == "m/1"

    store.sweep("m/", dead)
    assert sorted(asked) == ["m/1", "m/2"]
    assert temps_in(root) == [".tmp-2-0123456789abcdef"]
    store.put_new("m/1", BODY)
    assert store.get("m/1", len(BODY)) == BODY


def test_a_sweep_knows_names_with_dashes(store: LocalStore, root: Path) -> None:
    name = "00000000000000000007-3-0123456789abcdef-fedcba9876543210.mfs"
    store.put_new("d/0", b"")
    (root / "d" / f".tmp-{name}-0011223344556677").touch()
    store.sweep("", lambda key: key == f"d/{name}")
    assert temps_in(root) == []


def test_a_file_in_the_place_of_a_folder_is_an_error(store: LocalStore, root: Path) -> None:
    root.mkdir()
    (root / "m").write_bytes(b"")
    operations: list[Callable[[], object]] = [
        lambda: store.put_new("m/1", b""),
        lambda: store.get("m/1", 1),
        lambda: store.list("m/"),
        lambda: store.delete("m/1"),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match="replace the file or symbolic link"):
            operation()
    (root / "m").unlink()
    store.put_new("m/1", BODY)
    assert store.get("m/1", len(BODY)) == BODY


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_path_that_is_no_file_is_not_read(store: LocalStore, root: Path, make: Callable[[Path], object]) -> None:
    store.put_new("m/0", b"")
    make(root / "m" / "1")
    with pytest.raises(StoreError, match="not a regular file"):
        store.get("m/1", 100)


@pytest.mark.fault("C4")
def test_a_name_that_is_too_long_is_an_error(store: LocalStore, root: Path) -> None:
    with pytest.raises(StoreError, match="choose a shorter path"):
        store.put_new("m/" + "a" * 300, b"")
    assert store.list("") == []
    assert temps_in(root) == []


@pytest.mark.fault("H4")
def test_an_interrupt_leaves_no_half_object(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def interrupted(file: int, data: bytes) -> int:
        write(file, data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put_new("m/1", BODY)
    monkeypatch.undo()
    assert (store.list("m/"), temps_in(root)) == ([], [])
    store.put_new("m/1", BODY)


def test_no_descriptor_is_left_open(store: LocalStore, root: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    store.put_new("m/1", b"")
    before = count()
    (root / "f").write_bytes(b"")
    for key in ("m/1", "m/2", "f/1", "m/" + "a" * 300):
        for operation in (lambda key=key: store.put_new(key, b""), lambda key=key: store.get(key, 1)):
            with suppress(KeyExists, KeyMissing, StoreError):
                operation()
    store.list("")
    store.delete("m/2")
    assert count() == before


def test_two_writers_may_make_the_same_folders_at_once(root: Path) -> None:
    for round_ in range(50):
        stores = [LocalStore(root / str(round_) / "a" / "b") for _ in range(4)]
        threads = [
            threading.Thread(target=store.put_new, args=(f"m/{number}", b"")) for number, store in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stores[0].list("m/") == ["m/0", "m/1", "m/2", "m/3"]


@pytest.mark.fault("C1")
def test_a_file_that_may_not_grow_is_an_error_that_leaves_nothing(root: Path) -> None:
    told = run_python("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))" + PUT, str(root))
    assert told.stdout.startswith("StoreError: ")
    assert "m/1' could not be written: File too large; raise the limit" in told.stdout
    assert (LocalStore(root).list(""), temps_in(root)) == ([], [])


@pytest.mark.fault("C4")
def test_too_many_open_files_are_an_error_that_says_so(root: Path) -> None:
    limited = PUT.replace(
        "try:", "import os, resource\nused = len(os.listdir('/proc/self/fd')) - 1\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (used + {spare}, used + {spare}))\ntry:",
    )  # fmt: skip
    for spare in range(2):
        told = run_python(limited.replace("{spare}", str(spare)), str(root))
        assert told.stdout.startswith("StoreError: "), told
        assert "Too many open files; raise the limit on open files (ulimit -n)" in told.stdout
    assert LocalStore(root).list("") == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become somebody else")
def test_a_folder_of_somebody_else_is_an_error_that_says_so(open_folder: Path) -> None:
    told = run_python(PUT.replace("try:", "import os\nos.setuid(65534)\ntry:"), str(open_folder))
    assert "could not be written: Permission denied; give this user read and write permission" in told.stdout
    closed = open_folder / "m"
    closed.mkdir(mode=0o700)
    (closed / "1").write_bytes(b"")
    for operation in ('store.list("m/")', 'store.get("m/1", 1)', 'store.delete("m/1")'):
        told = run_python(
            PUT.replace("try:", "import os\nos.setuid(65534)\ntry:").replace(
                'store.put_new("m/1", b"0123456789" * 1_000)', operation
            ),
            str(open_folder),
        )
        assert "Permission denied" in told.stdout
        assert told.stdout.startswith("StoreError")


@pytest.mark.fault("A12")
@traced
def test_each_step_is_on_the_disk_before_the_next(root: Path) -> None:
    assert put_traced(root, "-e", f"trace={SYSCALLS},mkdir").stdout == "done\n"
    calls = [re.sub(r"\d+<", "<", re.sub(r' = .*| *"0123.*"\.\.\., 10000', "", call)) for call in calls_of(root)]
    assert calls == [
        'mkdir("ROOT", 0700)',
        "fsync(<ABOVE>)",
        'mkdirat(<ROOT>, "m", 0700)',
        "fsync(<ROOT>)",
        "write(<ROOT/m/.tmp-1-*>,)",
        "fsync(<ROOT/m/.tmp-1-*>)",
        'linkat(<ROOT/m>, ".tmp-1-*", <ROOT/m>, "1", 0)',
        "fsync(<ROOT/m>)",
        'unlinkat(<ROOT/m>, ".tmp-1-*", 0)',
    ]


@traced
def test_a_folder_that_another_process_made_is_synced_too(root: Path) -> None:
    (root / "m").mkdir(parents=True)
    assert put_traced(root, "-e", "trace=fsync").stdout == "done\n"
    assert [re.sub(r"\d+<(.*)>.*", r"\1", call) for call in calls_of(root)] == [
        "fsync(ROOT",
        "fsync(ROOT/m/.tmp-1-*",
        "fsync(ROOT/m",
    ]


@traced
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["mkdirat:when=1", "write:when=1", "fsync:when=1", "fsync:when=2", "fsync:when=3"])
def test_an_error_before_the_link_means_not_written(root: Path, call: str, error: str) -> None:
    name, when = call.split(":")
    told = put_traced(root, "-e", f"trace={SYSCALLS}", "-e", f"inject={name}:error={error}:{when}")
    if name == "write":  # the first write is that of the body: the interpreter writes nothing before
        assert "INJECTED" in next(line for line in calls_of(root) if line.startswith("write"))
    assert told.stdout.startswith("StoreError: "), told
    assert "m/1' could not be written: " in told.stdout
    assert (LocalStore(root).list(""), temps_in(root)) == ([], [])
    LocalStore(root).put_new("m/1", BODY)


@pytest.mark.fault("C2")
@traced
def test_a_file_that_did_not_sync_is_never_synced_again(root: Path) -> None:
    (root / "m").mkdir(parents=True)
    put_traced(root, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=2")
    assert [call for call in calls_of(root) if ".tmp-" in call] == [
        call for call in calls_of(root) if "INJECTED" in call
    ]


@pytest.mark.fault("C2")
@traced
def test_a_folder_that_did_not_sync_leaves_the_object_in_doubt(root: Path) -> None:
    (root / "m").mkdir(parents=True)
    program = PUT + (
        "for operation in (lambda: store.get('m/1', 9), lambda: store.put_new('m/1', b'')):\n"
        "    try:\n        print(operation())\n    except Exception as error:\n        print(type(error).__name__)\n"
        "store.put_new('m/2', b'')\nprint(store.list('m/'))"
    )
    log = str(root.parent / "trace")
    told = run_python(
        program, str(root), prefix=("strace", "-o", log, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=3")
    )
    lines = told.stdout.splitlines()
    assert re.match("UnknownOutcome: .*m/1' could not be confirmed as written: Input/output error", lines[0])
    assert lines[1:] == ["UnknownOutcome", "UnknownOutcome", "['m/1', 'm/2']"]
    assert LocalStore(root).get("m/1", len(BODY)) == BODY
    assert temps_in(root) == []


@traced
@pytest.mark.parametrize(
    ("error", "kind"), [("EPERM", "StoreError"), ("EOPNOTSUPP", "StoreError"), ("ENOSPC", "StoreError"), ("EIO", "Un")]
)
def test_an_error_of_the_link_itself_says_no_more_than_is_known(root: Path, error: str, kind: str) -> None:
    told = put_traced(root, "-e", "trace=linkat", "-e", f"inject=linkat:error={error}:when=1")
    assert told.stdout.startswith(kind)
    assert ("has no hard links" in told.stdout) == (error in ("EPERM", "EOPNOTSUPP"))
    assert temps_in(root) == []


@pytest.mark.fault("A2", "A4")
@traced
def test_a_process_killed_at_any_call_leaves_the_object_whole_or_absent(root: Path) -> None:
    assert put_traced(root, "-e", f"trace={SYSCALLS}").stdout == "done\n"
    steps = [call.split("(")[0] for call in calls_of(root)]
    assert steps.count("fsync") == 4
    seen = []
    for name in dict.fromkeys(steps):
        for nth in range(1, steps.count(name) + 1):
            shutil.rmtree(root)
            kill = f"inject={name}:signal=SIGKILL:when={nth}"
            told = put_traced(root, "-e", f"trace={SYSCALLS}", "-e", kill, fast=False)
            assert told.stdout == ""
            store = LocalStore(root)
            seen.append(_is_whole(store))
            assert store.list("") == (["m/1"] if seen[-1] else [])
            store.sweep("m/", lambda key: key == "m/1")
            assert temps_in(root) == []
            if not seen[-1]:
                store.put_new("m/1", BODY)
            assert _is_whole(LocalStore(root))
    assert (len(seen), seen.count(True)) == (8, 2)  # at the folder's fsync and at the unlink it is there


def _is_whole(store: LocalStore) -> bool:
    try:
        data = store.get("m/1", 2 * len(BODY))
    except KeyMissing:
        return False
    assert data == BODY
    return True


def test_the_contract_of_an_unknown_outcome_is_that_of_a_store_error() -> None:
    assert issubclass(UnknownOutcome, StoreError)
    assert not issubclass(KeyExists, StoreError)
