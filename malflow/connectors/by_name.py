"""Sources, sinks and tables for look-ups by their URL: schemes are entry points, so other packages can add theirs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from malflow.connectors.address import Address
from malflow.connectors.option_texts import options_for
from malflow.errors import GraphError, MissingDependency
from malflow.words import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from malflow.lookups.contract import LookupTable
    from malflow.sinks.contract import StatefulSink, StatefulSinkImpl, StatelessSink, StatelessSinkImpl
    from malflow.sources.contract import StatefulSource, StatefulSourceImpl, StatelessSource, StatelessSourceImpl

AnySource: TypeAlias = (
    "StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any] | StatelessSourceImpl[Any, Any, Any] "
    "| StatefulSourceImpl[Any, Any, Any, Any]"
)
AnySink: TypeAlias = (
    "StatelessSink[Any, Any, Any] | StatefulSink[Any, Any, Any, Any, Any] | StatelessSinkImpl[Any, Any, Any] "
    "| StatefulSinkImpl[Any, Any, Any, Any, Any]"
)

__all__ = ["LOOKUPS", "SINKS", "SOURCES", "Connection", "Replacement", "connect"]

SOURCES: Final = "malflow.sources"
"""The group of entry points of sources: a scheme, and a function ``(address, *, option=...)`` that returns a source."""

SINKS: Final = "malflow.sinks"
"""The same for sinks."""

LOOKUPS: Final = "malflow.lookups"
"""The same for tables of `Stream.lookup`."""

_GROUPS: Final = (SOURCES, SINKS, LOOKUPS)

OF_FILES: Final = "file+"
"""The prefix of an entry point's name that is a file format; it applies to all schemes of file systems."""

_OURS: Final = "malflow.connectors."
"""The beginning of the value of our own entry points; the folder after it has the name of the extra that it needs."""


def connect(url: str, /, **options: Any) -> Connection:
    r"""Return a source, sink or table by its URL, for `Stream.source`, `Stream.sink` and `Stream.lookup`.

    The scheme, such as ``kafka``, ``postgres`` or ``redis``, selects the connector. A path, or the URL of a file system
    such as ``s3``, is a file; its format is its extension or the option ``format``. Options are text after a ``?``, or
    objects passed as arguments. An entry of an option that is a mapping is written ``?settings.linger.ms=5``.

    Args:
        url: the URL, or a path. Messages do not show its password or other secrets.
        options: options of the connector, as in its class.

    Raises:
        GraphError: if no connector has the scheme. The result raises it when it is used, if the connector can't be
            read, written to or asked, or does not have the option.
        MissingDependency: raised when the result is used, if the connector's library is not installed.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/towns.csv", b"Ulm;130000\n")
    >>> connect("memory://towns.csv?delimiter=;&header=no").source().build_part("memory://towns.csv", None).poll()
    (['Ulm', '130000'], 0)
    >>> fsspec.filesystem("memory").rm("/towns.csv")
    """
    return Connection(Address.parse(url), options)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The URL and the options of a source or sink by its configuration.

    Attributes:
        url: the URL; None for that of the code.
        options: the options; text is converted as that in a URL is.
        origin: the place where they were written.
    """

    url: str | None = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    origin: str


class Connection:
    """The result of `connect`, for use as a source, a sink or the table of a look-up.

    Args:
        address: the URL.
        options: the options passed as arguments.

    Raises:
        GraphError: if no connector has the scheme.
    """

    def __init__(self, address: Address, options: Mapping[str, Any]) -> None:
        self._address = address
        self._options = dict(options)
        self._texts = dict(address.query)
        self._name = self._named()
        self._found = {group: _entry_point(group, self._name) for group in _GROUPS}
        if not any(self._found.values()):
            _read.cache_clear()  # its package may have been installed a moment ago, in a notebook
            self._found = {group: _entry_point(group, self._name) for group in _GROUPS}
        if not any(self._found.values()):
            raise self._unknown()

    def __repr__(self) -> str:
        return f"connect({str(self._address)!r})"

    @property
    def connector(self) -> str:
        """The name of its entry point: a scheme, or ``file+`` and the format of a file."""
        return self._name

    def option(self, name: str) -> str | None:
        """Return the text of an option; None if it has another form, or is not there."""
        found = self._options.get(name, self._texts.get(name))
        return found if isinstance(found, str) else None

    def replaced(self, replacement: Replacement) -> Connection:
        """Return the connection that a configuration asks for in place of this one.

        Arguments of the code remain, but for those that are configured; none of them if the connector is another.

        Raises:
            GraphError: if no connector has the scheme.
        """
        address = self._address if replacement.url is None else Address.parse(replacement.url)
        texts = {name: value for name, value in replacement.options.items() if isinstance(value, str)}
        objects = {name: value for name, value in replacement.options.items() if name not in texts}
        query = {name: text for name, text in address.query.items() if name.partition(".")[0] not in objects} | texts
        made = Connection(dataclasses.replace(address, query=query), objects)
        if made._name == self._name:
            named = {name.partition(".")[0] for name in (*made._texts, *made._options)}
            kept = {name: value for name, value in self._options.items() if name not in named}
            made._options = kept | made._options
        return made

    def source(self) -> AnySource:
        """Return a new source.

        Raises:
            GraphError: if the connector can't be read, or an option is wrong.
            MissingDependency: if its library is not installed.
        """
        made: AnySource = self._made(SOURCES, "read")
        return made

    def sink(self) -> AnySink:
        """Return a new sink.

        Raises:
            GraphError: if the connector can't be written to, or an option is wrong.
            MissingDependency: if its library is not installed.
        """
        made: AnySink = self._made(SINKS, "written to")
        return made

    def lookup(self) -> LookupTable[Any, Any]:
        """Return a new table for look-ups.

        Raises:
            GraphError: if the connector can't be asked for rows by key, or an option is wrong.
            MissingDependency: if its library is not installed.
        """
        made: LookupTable[Any, Any] = self._made(LOOKUPS, "asked for rows by key")
        return made

    def _made(self, group: str, done: str) -> Any:
        entry = self._found[group]
        if entry is None:
            raise GraphError(f"{self!r} can't be {done}: its connector does not support it; {_able(group, self._name)}")
        make = _loaded(entry, repr(self))
        return make(self._address, **options_for(make, repr(self), self._texts, self._options))

    def _named(self) -> str:
        """Return the name of the entry point: the scheme, its beginning up to a ``+``, or the format of a file."""
        scheme = self._address.scheme
        beginning, plus, _ = scheme.partition("+")
        for name in filter(None, (scheme, plus and f"{beginning}+")):
            if any(_entry_point(group, name) for group in _GROUPS):
                return name
        if scheme and not _is_of_files(scheme):
            return scheme
        from malflow.connectors.files.formats import format_of  # noqa: PLC0415 - loads fsspec

        chosen = self._options.pop("format", None) or self._texts.pop("format", None)
        return OF_FILES + str(chosen or format_of(f"{self._address.netloc}/{self._address.path}".lstrip("/")))

    def _unknown(self) -> GraphError:
        name, known = self._name, sorted(set().union(*map(_names, _GROUPS)))
        if name.startswith(OF_FILES):
            kind, named = f"files of format '{name.removeprefix(OF_FILES)}'", "format="
            known = [it.removeprefix(OF_FILES) for it in known if it.startswith(OF_FILES)]
        else:
            kind, named = f"scheme '{name}'", "scheme"
            known = [it for it in known if not it.startswith(OF_FILES)]
        hint = did_you_mean(name.removeprefix(OF_FILES), known, else_=f"{named} may be one of {', '.join(known)}")
        return GraphError(
            f"{self!r}: no connector for {kind}{hint}; other packages add theirs as entry points of '{SOURCES}', "
            f"'{SINKS}' and '{LOOKUPS}'"
        )


def _is_of_files(scheme: str) -> bool:
    """Whether a scheme belongs to a file system."""
    from malflow.store.filesystem import is_known  # noqa: PLC0415 - loads fsspec

    return is_known(scheme)


def _names(group: str) -> set[str]:
    return set(_entry_points().select(group=group).names)


def _able(group: str, name: str) -> str:
    """Return the connectors that can do what another one can't: formats beside a format, or else schemes."""
    names = sorted(it for it in _names(group) if it.startswith(OF_FILES) == name.startswith(OF_FILES))
    kind = "formats" if name.startswith(OF_FILES) else "schemes"
    return f"{kind} that can be are {', '.join(it.removeprefix(OF_FILES) for it in names)}"


def _entry_point(group: str, name: str) -> EntryPoint | None:
    """Return an entry point; None if it does not exist.

    Raises:
        GraphError: if two packages define it.
    """
    found = {entry.value: entry for entry in _entry_points().select(group=group, name=name)}
    if len(found) > 1:
        raise GraphError(f"two packages have a connector for '{name}': {' and '.join(sorted(found))}; remove one")
    return next(iter(found.values()), None)


def _entry_points() -> EntryPoints:
    """Return the entry points of all packages; they are read from disk only once."""
    from importlib import metadata  # noqa: PLC0415 - slow to import

    return _read(metadata.entry_points, tuple(sys.path))


@lru_cache(maxsize=1)
def _read(entry_points: Callable[[], EntryPoints], path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of the packages on a path; reading them takes longer than building a dataflow."""
    del path
    return entry_points()


def _loaded(entry: EntryPoint, shown: str) -> Callable[..., Any]:
    try:
        make: Callable[..., Any] = entry.load()
    except MissingDependency:
        raise
    except ImportError as error:
        extra = entry.value.removeprefix(_OURS).partition(".")[0] if entry.value.startswith(_OURS) else None
        install = f"; pip install 'malflow[{extra}]'" if extra else ""
        raise MissingDependency(f"{shown} needs {entry.value}, which can't be imported: {error}{install}") from error
    return make
