"""A folder on any object store, in which a staged object is copied to its final name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from malflow.connectors.lost_output import SinkFileError
from malflow.connectors.staging.places import HIDDEN, LOST, Place, Staged, StagedFile
from malflow.store.contract import Transient
from malflow.store.redaction import redacted
from malflow.store.retry import Retry
from malflow.words import error_line

__all__ = ["CopiedPlace"]

R = TypeVar("R")


class CopiedPlace(Place):
    """A folder on an object store. It writes and copies objects as a whole.

    Args:
        filesystem: the file system.
        inner: the folder in it.
        sub: the folder for staged files of one sink, below `HIDDEN`.
        secrets: texts that no message may show.
        retry: how long to retry while the store can't be reached.
    """

    def __init__(self, filesystem: Any, inner: str, sub: str, secrets: list[str], retry: Retry) -> None:
        self._filesystem = filesystem
        self._folder = inner.rstrip("/")
        self._staged = f"{self._folder}/{HIDDEN}/{sub}"
        self._secrets = secrets
        self._retry = retry

    def create(self, name: str) -> StagedFile:
        """Create a file that will be published under a name."""
        return _StagedObject(self, name)

    def publish(self, staged: Staged) -> None:
        """Make a file visible, unless it is visible already.

        Raises:
            SinkFileError: if it is gone.
        """
        (name,) = staged
        source, final = self.staged_path(name), f"{self._folder}/{name}"
        if not self.ask(final, self._filesystem.exists, final):
            try:
                self.ask(final, self._filesystem.cp_file, source, final)
            except FileNotFoundError:
                if not self.ask(final, self._filesystem.exists, final):
                    raise SinkFileError(source, LOST % final) from None
        self.drop(name)

    def sweep(self, prefix: str, keep: Iterable[Staged], is_obsolete: Callable[[str], bool]) -> None:
        """Delete the obsolete staged files with a prefix, except those in `keep`."""
        kept = {name for (name,) in keep}
        with suppress(FileNotFoundError):
            for path in self.ask(self._staged, partial(self._filesystem.ls, detail=False), self._staged):
                name = path.rpartition("/")[2].removesuffix(".part")
                if name.startswith(prefix) and name not in kept and is_obsolete(name):
                    self.drop(name)

    def staged_path(self, name: str) -> str:
        """Return the path of a staged object."""
        return f"{self._staged}/{name}.part"

    def open(self, name: str) -> Any:
        """Open a staged object for writing; it exists once it is closed."""
        path = self.staged_path(name)
        return self.ask(path, partial(self._filesystem.open, mode="wb"), path)

    def drop(self, name: str) -> None:
        """Delete a staged object, if it exists."""
        path = self.staged_path(name)
        with suppress(FileNotFoundError):
            self.ask(path, self._filesystem.rm_file, path)

    def ask(self, path: str, method: Callable[..., R], *arguments: Any) -> R:
        """Call the file system, and retry while it can't be reached.

        Raises:
            FileNotFoundError: if the object does not exist.
            SinkFileError: if the call fails.
        """
        return self._named(path, lambda: self._retry.of(partial(self._ask_once, path, method, *arguments)))

    def ask_once(self, path: str, method: Callable[..., R], *arguments: Any) -> R:
        """Call the file system once, since a retry could write twice.

        Raises:
            SinkFileError: if the call fails.
        """
        return self._named(path, lambda: self._ask_once(path, method, *arguments))

    def _named(self, path: str, asking: Callable[[], R]) -> R:
        try:
            return asking()
        except Transient as error:
            problem = str(error)
        raise SinkFileError(path, problem)

    def _ask_once(self, path: str, method: Callable[..., R], *arguments: Any) -> R:
        try:
            return method(*arguments)
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries raise anything; raised below, without secrets
            problem = redacted(f"could not be written ({error_line(error)})", self._secrets)
            passing = isinstance(error, ConnectionError | TimeoutError)
        raise Transient(problem) if passing else SinkFileError(path, problem)


class _StagedObject(StagedFile):
    def __init__(self, place: CopiedPlace, name: str) -> None:
        self._place = place
        self._name = name
        self._file = place.open(name)

    def write(self, data: Any) -> int:
        self._place.ask_once(self._name, self._file.write, bytes(data))
        return memoryview(data).nbytes

    def seal(self) -> Staged:
        self._place.ask_once(self._name, self._file.close)
        return (self._name,)

    def discard(self) -> None:
        with suppress(SinkFileError):  # the object is deleted anyway
            self._place.ask_once(self._name, self._file.close)
        self._place.drop(self._name)
