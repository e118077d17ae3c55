"""Persistence on local disk, S3 or any other fsspec file system."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from malflow.checks import check_whole_number, checked_duration, checked_seconds
from malflow.durations import Duration
from malflow.errors import GraphError, SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec, codec_of
from malflow.snapshot.compression import Compression, compression_of
from malflow.snapshot.executors import InlineExecutor, ThreadExecutor
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session, Wish
from malflow.snapshot.protocol.commit import Claim, claim, open_or_create_job
from malflow.snapshot.protocol.manifest import JOB, Manifest, checked_job, decode_signed
from malflow.snapshot.protocol.manifest_log import ManifestLog, candidates
from malflow.snapshot.protocol.signing import KEY_VARIABLE, Signer
from malflow.snapshot.restore import load, manifest_choice, review
from malflow.snapshot.writer import Limits, SnapshotSession
from malflow.states.keyed import StateDelta
from malflow.states.kinds import StateKind, StateSpec
from malflow.store.contract import KeyMissing, Store, check_is_store
from malflow.store.opening import checked_place, is_private, open_store
from malflow.store.redaction import is_secret_name, redacted, secrets_in
from malflow.store.retry import Retry, SystemContext
from malflow.words import short_repr

__all__ = ["FsspecBackend"]

_log = logging.getLogger("malflow.snapshot")

_LARGEST_JOB_FILE = 4096
"""Bytes of a job file: it has some hundred, so a longer file is not one, and is not read whole."""


class FsspecBackend:
    """Stores the state of a job as incremental snapshots below a path or URL, or in a store of your own.

    Only one run at a time can work on a job: the one that started last. Snapshots are immutable files, verified
    whenever they are read; a damaged one is never loaded.

    Args:
        url: a local path or an fsspec URL: ``s3://bucket/prefix``, ``memory://name``, ...; left out with `store`.
        job: the job's name; it becomes a folder below the URL. A store of your own holds one job.
        storage_options: options of the file system, such as credentials; secrets are not pickled.
        retain: the number of snapshots to retain, or for how long: with a timedelta, every state of that time can be
            restored by ``restore=datetime``. Older snapshots are deleted, except for the newest ones.
        compression: ``"lz4"``, ``"zstd"`` (smaller, for more processor time), ``"none"``, or a `Compression` of
            your own.
        codec: how states are serialised: ``"pickle"`` accepts any object of an importable class, but loading it can
            execute code; ``"msgpack"``, or a `MsgpackCodec` with your own classes, accepts data only.
        signing_key: a key of at least 16 bytes, or several. The first one signs every snapshot. Unsigned snapshots are
            then rejected. The default is the environment variable ``MALFLOW_SIGNING_KEY``.
        allow_unsigned_pickle: load unsigned pickles even from stores and folders that others may write to.
        allow_unsafe_single_writer: use a store without exclusive creation of objects. You must then make sure
            yourself that two runs of a job never overlap.
        growth: the size of all increments, as a multiple of the base, above which a new base is written.
        retry_for: how long to retry a storage operation.
        tolerate_failures_for: how long snapshots may keep failing before the run ends. A failed snapshot is retried
            after a second, then after two, four, and so on up to a minute.
        filesystem: an fsspec file system to use instead of the one named by the URL.
        store: a store of your own instead of a URL: see `malflow.store.Store`. On Spark it must be possible to pickle
            it.

    Raises:
        GraphError: if an argument is invalid, or unsigned pickles would be loaded from where others may write.
        MissingDependency: if the library for the protocol, the codec or the compression is not installed.
    """

    is_enabled = True

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        job: str = "default",
        storage_options: Mapping[str, Any] | None = None,
        retain: int | timedelta | str = 10,
        compression: Literal["lz4", "zstd", "none"] | Compression = "lz4",
        codec: str | Codec = "pickle",
        signing_key: str | bytes | Sequence[str | bytes] | Signer | None = None,
        allow_unsigned_pickle: bool = False,
        allow_unsafe_single_writer: bool = False,
        growth: float = 1.0,
        retry_for: Duration = timedelta(seconds=30),
        tolerate_failures_for: Duration = timedelta(minutes=10),
        filesystem: Any = None,
        store: Store | None = None,
    ) -> None:
        self.job = checked_job(job)
        self._options = dict(storage_options or {})
        self._filesystem = filesystem
        self.own_store = store
        if store is None:
            self._url = checked_place(url, self._options, filesystem)
        else:
            _check_own(store, url, storage_options, filesystem, allow_unsafe_single_writer)
            self._url = ""
        self._codec = codec_of(codec)
        self._signer = Signer.of(signing_key)
        self._unsigned = allow_unsigned_pickle
        self._unsafe = allow_unsafe_single_writer
        if isinstance(retain, timedelta | str):
            retain = checked_duration("FsspecBackend", "retain", retain)
        else:
            check_whole_number("FsspecBackend", "retain", retain, or_else="a timedelta or a text such as '7d'")
        if isinstance(growth, bool) or not isinstance(growth, int | float) or not growth > 0:
            raise GraphError(f"growth must be a positive number; got {growth!r}")
        self._retry_seconds = checked_seconds("FsspecBackend", "retry_for", retry_for)
        tolerance = checked_seconds("FsspecBackend", "tolerate_failures_for", tolerate_failures_for)
        self._limits = Limits(retain, growth, tolerance, compression_of(compression))
        self._check_codec()
        self._environment = SystemContext()
        self._executor: type[ThreadExecutor | InlineExecutor] = ThreadExecutor

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Claim the job, and read the state to resume from."""
        manifest_log = self._opened()
        names: dict[str, str] = {}

        def accept(manifest: Manifest) -> dict[str, str]:
            found = review(manifest, states, start, self._codec)
            found.check()
            for loss in found.losses:
                _log.warning("%s", loss)
            for name in sorted({*start.allow_dropped_state} - _known(manifest, states)):
                _log.warning("allow_dropped_state=['%s'] drops nothing: no state and no operator has this name", name)
            names.clear()
            names.update(found.names)
            return names

        versions = {spec.name: spec.version for spec in states}
        held = claim(
            manifest_log, manifest_choice(manifest_log, start, self._codec, accept, versions), self._environment
        )
        restored = self._loaded(manifest_log, held, names, versions, start) if held.head.snapshot else None
        kept = {entry.name for entry in held.head.operators}
        session = SnapshotSession(
            manifest_log,
            held,
            self._codec,
            self._executor(),
            self._environment,
            self._limits,
            restored=restored,
            fresh_base=any(names.get(name) != name for name in kept),
        )
        return session, restored

    def claim_empty(self) -> Claim:
        """Claim a job without snapshots, in order to write its first one.

        Raises:
            SnapshotError: if it has one, or can't be claimed.
        """
        manifest_log = self._opened()

        def refuse(numbers: list[int]) -> None:
            if any(manifest_log.digest(seq) is None or manifest_log.manifest(seq).snapshot for seq in numbers):
                raise SnapshotError(f"{self!r} has snapshots; choose another job= or another URL")

        return claim(manifest_log, refuse, self._environment)

    def claim_at(self, at: Wish) -> Claim:
        """Claim the job with the content of one of its snapshots.

        That one is then the latest; the job has at least one.

        Raises:
            SnapshotError: if there is no such snapshot, it can't be read, or the job can't be claimed.
        """
        manifest_log = self._opened()

        def choose(numbers: list[int]) -> Manifest:
            return manifest_log.manifest(candidates(manifest_log, at, numbers)[0])

        return claim(manifest_log, choose, self._environment)

    def amend(self, deltas: Sequence[StateDelta]) -> int:
        """Claim the job, and replace some states of its latest snapshot; return the id of the new one.

        Raises:
            SnapshotError: if there is no snapshot, or the job can't be claimed or written.
        """
        held = self.claim_at("latest")
        head = held.head
        session = SnapshotSession(
            self._opened(),
            held,
            self._codec,
            self._executor(),
            self._environment,
            self._limits,
            restored=None,
            fresh_base=False,
        )
        states = [
            StateSpec(it.name, kind, it.version, it.placement, it.definition, it.panes)
            for it in head.operators
            if (kind := StateKind.of(it.kind)) is not None
        ]
        try:
            return session.amend(head.tick, head.parallelism, states, deltas).result()
        finally:
            session.close(wait=True)

    def _loaded(
        self,
        manifest_log: ManifestLog,
        held: Claim,
        names: dict[str, str],
        versions: dict[str, int],
        start: RestoreOptions,
    ) -> RestoredState:
        try:
            return load(manifest_log, held.head, self._codec, names, versions, in_store=start.in_store)
        except SnapshotCorrupt:
            held.check()  # a newer run may have deleted the files being read
            raise

    def replaced(self, **options: Any) -> FsspecBackend:
        """Return a backend with the same arguments, but for these; another URL also replaces `filesystem` and `store`.

        Raises:
            GraphError: if an argument is invalid.
        """
        place = {"filesystem": None, "store": None} if "url" in options else {}
        return FsspecBackend(**{**self.arguments, **place, **options})

    @property
    def place(self) -> str | None:
        """The URL, or the absolute path, of the store, without secrets; None for a store of one's own."""
        return self._shown_url() if self.own_store is None else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that make an equal backend. They hold secrets: the signer as `signing_key`, the options."""
        return {
            "url": self._url or None,
            "job": self.job,
            "storage_options": None if self._filesystem is not None else (self._options or None),
            "retain": self._limits.retain,
            "compression": self._limits.compression,
            "codec": self._codec,
            "signing_key": self._signer,
            "allow_unsigned_pickle": self._unsigned,
            "allow_unsafe_single_writer": self._unsafe,
            "growth": self._limits.growth,
            "retry_for": timedelta(seconds=self._retry_seconds),
            "tolerate_failures_for": timedelta(seconds=self._limits.tolerance),
            "filesystem": self._filesystem,
            "store": self.own_store,
        }

    @property
    def codec(self) -> Codec:
        """The codec of the states."""
        return self._codec

    @property
    def is_in_memory(self) -> bool:
        """Whether the store is in the memory of this process. No other process reaches it."""
        return self.own_store is None and self._url.startswith("memory:")

    @property
    def has_given_filesystem(self) -> bool:
        """Whether it uses a file system that was passed. It may be in the memory of this process."""
        return self._filesystem is not None

    def manifest_log(self) -> ManifestLog:
        """Return the manifests and data files of the job, for reading."""
        return self._manifest_log(self._store(exclusive=True))

    def _opened(self) -> ManifestLog:
        manifest_log = self.manifest_log()
        if open_or_create_job(manifest_log, self._environment, self._check_not_nested):
            return manifest_log
        if self.own_store is not None:
            raise SnapshotError(
                f"{self._shown_url()} overwrites existing objects, so two runs of one job could destroy each other's "
                "snapshots; let put_new() raise KeyExists if the key exists, and check it with assert_store()"
            )
        if not self._unsafe:
            raise SnapshotError(
                f"the store at {self._shown_url()} overwrites existing objects, so two runs of one job could destroy "
                "each other's snapshots; use another store, or pass allow_unsafe_single_writer=True "
                "if you make sure yourself that runs never overlap"
            )
        return self._found(self._manifest_log(self._store(exclusive=False)))

    def _check_not_nested(self) -> None:
        """Check that a new job is not inside the folder of another.

        Raises:
            SnapshotError: if it is, naming both.
        """
        if self.own_store is not None:
            return
        protocol, mark, path = self._url.rpartition("://")
        steps = path.rstrip("/").split("/")
        for count in range(len(steps), 0, -1):
            folder = f"{protocol}{mark}{'/'.join(steps[:count])}" or "/"
            outer = self._job_in(folder)
            if outer is not None:
                raise SnapshotError(
                    f"job '{self.job}' can't be created at {self._shown_url()}: '{self._redacted(folder)}' is the "
                    f"folder of job '{outer}'; jobs must not be nested: choose another URL"
                )

    def _job_in(self, folder: str) -> str | None:
        try:
            store = open_store(folder, self._options, filesystem=self._filesystem)
            body = decode_signed(JOB, store.get(JOB, _LARGEST_JOB_FILE), None)
        except (GraphError, SnapshotError, KeyMissing):
            return None  # no job file, or not one of ours, or not readable
        return str(body["name"]) if set(body) == {"job", "name"} else None

    def _found(self, manifest_log: ManifestLog) -> ManifestLog:
        open_or_create_job(manifest_log, self._environment)
        return manifest_log

    def _manifest_log(self, store: Store) -> ManifestLog:
        return ManifestLog(
            store,
            self.job,
            _Authenticator(self._signer, self._unsigned),
            Retry(self._retry_seconds, self._environment),
            self._limits.compression,
        )

    def _store(self, *, exclusive: bool) -> Store:
        if self.own_store is not None:
            return self.own_store
        root = self._url if self._url.endswith("://") else f"{self._url.rstrip('/')}/"
        folder = f"{root}{self.job}"
        return open_store(folder, self._options, filesystem=self._filesystem, exclusive=exclusive, private=self._trusts)

    @property
    def _trusts(self) -> bool:
        """Whether unsigned pickles are loaded; the place itself must then be trusted."""
        return self._codec.executes and self._signer is None and not self._unsigned

    def _check_codec(self) -> None:
        if self._trusts:
            if self.own_store is None and is_private(self._url, self._filesystem):
                return
            raise GraphError(
                f"loading a pickle can execute code, and others may be able to write to {self._shown_url()}; "
                f"set signing_key= (or {KEY_VARIABLE}), use codec='msgpack', or pass allow_unsigned_pickle=True"
            )

    def _shown_url(self) -> str:
        return self._redacted(self._url) if self.own_store is None else short_repr(self.own_store)

    def _redacted(self, url: str) -> str:
        return redacted(url, secrets_in(self._options, url))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out secrets: after unpickling they come from the environment of that process."""
        if self._filesystem is not None:
            raise GraphError(f"{self!r} can't be pickled: filesystem= may hold secrets; pass a URL instead")
        state = dict(vars(self))
        state["_options"] = {name: value for name, value in self._options.items() if not _is_secret(name, value)}
        state["_url"] = self._url if not secrets_in({}, self._url) else self._shown_url()
        return state

    def __repr__(self) -> str:
        place = repr(self._shown_url()) if self.own_store is None else f"store={self._shown_url()}"
        return f"FsspecBackend({place}, job={self.job!r})"


def _known(manifest: Manifest, states: Sequence[StateSpec]) -> set[str]:
    """Return the names of the operators with a state in a snapshot or a program."""
    return {name.partition("/")[0] for name in (*(it.name for it in manifest.operators), *(it.name for it in states))}


class _Authenticator:
    """Signs with the key, if there is one, and then rejects unsigned files unless they are allowed."""

    def __init__(self, signer: Signer | None, allow_unsigned: bool) -> None:
        self._signer = signer
        self._allow_unsigned = allow_unsigned

    def sign(self, data: bytes) -> str | None:
        return None if self._signer is None else self._signer.sign(data)

    def verify(self, data: bytes, mac: str | None) -> str | None:
        if mac is None:
            missing = self._signer is not None and not self._allow_unsigned
            return f"it is not signed, but a signing key is set; {_UNSIGNED_HINT}" if missing else None
        if self._signer is None:
            return f"it is signed, but no signing key is set; pass signing_key= or set {KEY_VARIABLE}"
        if not isinstance(mac, str) or not self._signer.verify(data, mac):
            return "its signature does not match its content under any of the signing keys"
        return None


_UNSIGNED_HINT = "allow_unsigned_pickle=True accepts it"


def _check_own(store: Store, url: object, storage_options: object, filesystem: object, unsafe: bool) -> None:
    """Check a store of the user's, and that nothing is passed with it that belongs to a URL."""
    if isinstance(store, str | os.PathLike):
        raise GraphError(f"store needs an object of your own; got {short_repr(store)}; pass it as url")
    check_is_store(store, "store")
    given = {"url": url, "storage_options": storage_options, "filesystem": filesystem}
    for name, value in {**given, "allow_unsafe_single_writer": unsafe or None}.items():
        if value is not None:
            raise GraphError(f"{name} and store are mutually exclusive; pass one of them")


def _is_secret(name: str, value: Any) -> bool:
    return is_secret_name(name) or bool(secrets_in({name: value}))
