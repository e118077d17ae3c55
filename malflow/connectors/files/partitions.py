"""Columns from the names of folders, as Hive and Spark write them: ``day=2024-05-01/region=eu``."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from malflow.connectors.files.paths import MisplacedFileError
from malflow.connectors.files.typed import BY_NAME, FieldError, RecordTypes, shown_kind, without_none
from malflow.errors import GraphError
from malflow.store.redaction import shown_path
from malflow.words import short_repr

__all__ = ["FolderValues", "PartitionColumns", "Partitions"]

Partitions: TypeAlias = Mapping[str, Any] | bool
"""Types, or their names, by the names of columns; True for all folders, as texts; False for none of them."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_MEND = "move the file, or leave it out of the path"
_LIKELY = re.compile(r"[A-Za-z_]\w*=.*")
_LOG = logging.getLogger("malflow")


class _Folder(NamedTuple):
    """A folder of a partition: its name as it is written, that of the column, and the text of the value."""

    written: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FolderValues:
    """The partition columns of one file.

    Attributes:
        values: the values, by column.
        kinds: the types.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, Any] = field(default_factory=dict)

    def collision(self, columns: Iterable[str]) -> str | None:
        """Return the fault if the file itself has one of the columns; None if it does not."""
        both = next((name for name in columns if name in self.values), None)
        if both is None:
            return None
        others = ", ".join(f"{name!r}: {shown_kind(kind)}" for name, kind in self.kinds.items() if name != both)
        instead = f"partitions={{{others}}}" if others else "no partitions="
        return f"column {both!r} is in the file and in the name of its folder; pass {instead} to read that of the file"


class PartitionColumns:
    """The partition columns of a source.

    Args:
        asked_by: the name of the source, for errors.
        given: the option of the user; None warns of folders that look like partitions.
        types: the types of fields of the source; they apply to the folders of ``partitions=True``.
        has_columns: whether records have columns.

    Attributes:
        are_given: whether the source has such columns.
        follow_folders: whether they follow from the folders.
        names: the columns, in their order; none if they follow from the folders.

    Raises:
        GraphError: if the option is invalid, or records can't have columns.
    """

    def __init__(
        self,
        asked_by: str,
        given: Partitions | None,
        types: Mapping[str, Any] | None = None,
        *,
        has_columns: bool = True,
    ) -> None:
        _check(asked_by, given, has_columns=has_columns)
        self._asked_by = asked_by
        self._fields = dict(types or {})
        named = isinstance(given, Mapping) and {name: _kind(kind) for name, kind in given.items()}
        self._types = RecordTypes(asked_by, named, of_text=True) if named else None
        self._has_columns = has_columns
        self._tells = given is None or isinstance(given, Mapping)
        self.are_given = bool(given)
        self.follow_folders = given is True
        self.names = () if self._types is None else self._types.names
        for name in self.names:
            self._check_same(name)

    def kind_of(self, name: str) -> Any:
        """Return the type of a column."""
        return self._fields.get(name, str) if self._types is None else self._types.kinds[name]

    def collision(self, columns: Iterable[str]) -> str | None:
        """Return the fault if files have one of the columns named in the option; None if they do not."""
        return self._values_of(dict.fromkeys(self.names)).collision(columns)

    def of(self, file: str) -> FolderValues:
        """Return the columns of a file.

        Raises:
            MisplacedFileError: if a folder is missing or comes twice, or its value has another type.
        """
        if not self.are_given:
            return FolderValues()
        found: dict[str, _Folder] = {}
        for folder in _folders(file):
            if self.names and folder.name not in self.names:
                continue
            if (other := found.get(folder.name)) is not None:
                both = f"two folders of '{folder.name}', '{other.written}' and '{folder.written}'"
                raise MisplacedFileError(file, f"is in {both}; leave the column out of partitions=, or move the file")
            found[folder.name] = folder
        for name in self.names:
            if name not in found:
                raise MisplacedFileError(file, f"is in no folder '{name}=...', a column in partitions=; {_MEND}")
        return self._values_of({name: self._value(file, found[name]) for name in self.names or found})

    def check(self, files: Sequence[str]) -> None:
        """Check the folders of all files.

        Raises:
            MisplacedFileError: if a file lacks a column, its value has another type, or files have different columns.
        """
        if not self.are_given:
            return
        first: tuple[str, ...] = ()
        for file in files:
            names = tuple(self.of(file).values)
            if not names:
                raise MisplacedFileError(
                    file, f"is in no folder such as 'day=2024-05-01', for partitions=True; {_MEND}"
                )
            first = first or names
            if set(names) != set(first):
                raise MisplacedFileError(
                    file,
                    f"is in folders of {', '.join(names)}, and '{shown_path(files[0])}' in those of "
                    f"{', '.join(first)}; name the columns that all have, such as partitions={{{first[0]!r}: str}}",
                )

    def tell(self, files: Iterable[str]) -> None:
        """Warn of a folder that looks like a partition and is not in the records."""
        if not self._tells:
            return
        for file in files:
            for folder in _folders(file):
                if folder.name in self.names or not _LIKELY.fullmatch(folder.written):
                    continue
                _LOG.warning(
                    "source file '%s' is in a folder named '%s', and its records do not get that value; %s",
                    shown_path(file),
                    folder.written,
                    self._cure(folder),
                )
                return

    def _values_of(self, values: Mapping[str, Any]) -> FolderValues:
        return FolderValues(values, {name: self.kind_of(name) for name in values})

    def _check_same(self, name: str) -> None:
        kind, other = without_none(self.kind_of(name)), without_none(self._fields.get(name, Any))
        if other not in (Any, object, kind):
            raise GraphError(
                f"{self._asked_by} field {name!r} is {shown_kind(kind)} in partitions and {shown_kind(other)} in "
                "types; write the same type"
            )

    def _value(self, file: str, folder: _Folder) -> Any:
        if folder.text == _NULL:
            return None
        types = self._types or RecordTypes(self._asked_by, {folder.name: self.kind_of(folder.name)}, of_text=True)
        try:
            return types.value(folder.name, unquote(folder.text, errors="strict"))
        except (FieldError, UnicodeDecodeError) as error:
            raise MisplacedFileError(
                file, f"is in folder '{folder.written}': {error}; pass another type in partitions=, or {_MEND}"
            ) from error

    def _cure(self, folder: _Folder) -> str:
        if not self._has_columns:
            return "if you need it, take it from the name of the file, which is the key of each record: msg.key"
        named = "".join(f"{name!r}: {shown_kind(self.kind_of(name))}, " for name in self.names)
        return (
            f"pass partitions={{{named}{folder.name!r}: {_likely_kind(folder.text)}}} to have it as a column, or "
            "partitions=False if they do not need it"
        )


def _check(asked_by: str, given: object, *, has_columns: bool) -> None:
    if given is None or given is False:
        return
    if not isinstance(given, Mapping | bool) or given == {}:
        raise GraphError(
            f"{asked_by} partitions must be a dict of types by name, such as {{'day': date}}, True for all folders as "
            f"texts, or False; got {short_repr(given)}"
        )
    if not has_columns:
        raise GraphError(
            f"{asked_by} partitions can't be columns, since its records have none; got {short_repr(given)}; take the "
            "value from the name of the file, which is the key of each record: msg.key"
        )
    for name in given if isinstance(given, Mapping) else ():
        if not isinstance(name, str) or not name:
            raise GraphError(f"{asked_by} partitions must have names of columns, as text; got {short_repr(given)}")


def _kind(given: Any) -> Any:
    return BY_NAME.get(given, given) if isinstance(given, str) else given


def _folders(file: str) -> Iterator[_Folder]:
    for written in file.split("/")[:-1]:
        name, equals, text = written.partition("=")
        if name and equals:
            yield _Folder(written, unquote(name), text)


def _likely_kind(text: str) -> str:
    for kind in (int, date.fromisoformat):
        try:
            kind(text)
        except ValueError:
            continue
        return "int" if kind is int else "date"
    return "str"
