"""The options of a connector, from a function's signature, and the conversion of their text in a URL."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from malflow.durations import EXAMPLES, read_duration
from malflow.errors import GraphError
from malflow.store.redaction import is_secret_name
from malflow.words import did_you_mean

__all__ = ["UNREADABLE", "ByteCount", "forms_of", "kinds_of", "options_for", "read_text", "with_options_of"]

F = TypeVar("F", bound=Callable[..., Any])

_TRUTH: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|kB|MB|GB|KiB|MiB|GiB)?")
_BYTES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

UNREADABLE: Final = object()
"""The result for a text that has none of the forms."""


class ByteCount(int):
    """A number of bytes; as text, it may have a unit such as MB or MiB."""


def with_options_of(kind: Callable[..., Any], *, without: str, **more: Any) -> Callable[[F], F]:
    """Return a decorator for a function of a URL that has not just the options of its class, as `wraps` would set them.

    Args:
        kind: the class.
        without: the option that the URL itself has; empty for none.
        more: the annotations of the further options; their default is None.
    """
    signature = inspect.signature(kind, eval_str=True)
    kept = [it for it in signature.parameters.values() if it.kind is it.KEYWORD_ONLY and it.name != without]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in more.items()
    ]

    def decorated(make: F) -> F:
        make.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined] # any function
        return make

    return decorated


def options_for(
    make: Callable[..., Any], asked_by: str, texts: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keyword arguments for a connector's function.

    Args:
        make: the function, or class; its keyword-only parameters are the options, and their annotations determine how
            text is converted.
        asked_by: names the connector, for errors.
        texts: the options in the URL. ``name.rest`` is the entry ``rest`` of an option that is a mapping.
        given: the options passed as objects.

    Raises:
        GraphError: if an option is unknown, given twice or missing, or its text can't be converted.
    """
    signature = inspect.signature(make, eval_str=True)
    parameters = {name: it for name, it in signature.parameters.items() if it.kind is it.KEYWORD_ONLY}
    options: dict[str, Any] = {}
    for name, value in given.items():
        _check_known(name, parameters, asked_by)
        options[name] = value
    for name, text in texts.items():
        option, dot, entry = name.partition(".")
        _check_known(option, parameters, asked_by)
        if option in given:
            raise GraphError(f"{asked_by} has option '{option}' both in its URL and as an argument; give it once")
        annotation = parameters[option].annotation
        hint = str if annotation is inspect.Parameter.empty else annotation
        if dot:
            options.setdefault(option, {})[entry] = _entry(text, hint, option, asked_by)
        else:
            options[option] = _read(text, hint, option, asked_by)
    missing = [name for name, it in parameters.items() if it.default is it.empty and name not in options]
    if missing:
        raise GraphError(f"{asked_by} needs the option '{missing[0]}'; write ?{missing[0]}=... or pass {missing[0]}=")
    return options


def _check_known(name: str, parameters: Iterable[str], asked_by: str) -> None:
    known = sorted(parameters)
    if name not in known:
        hint = did_you_mean(name, known, else_=f"it has {', '.join(known) or 'none'}")
        raise GraphError(f"{asked_by} has no option '{name}'{hint}")


def _entry(text: str, hint: Any, name: str, asked_by: str) -> str:
    if not any(_is_mapping(kind) for kind in kinds_of(hint)):
        raise GraphError(f"{asked_by} has an option '{name}', which is not a mapping; write ?{name}=...")
    return text


def _read(text: str, hint: Any, name: str, asked_by: str) -> Any:
    value = read_text(text, hint)
    if value is not UNREADABLE:
        return value
    shown = "***" if is_secret_name(name) else repr(text)
    forms = forms_of(hint)
    if not forms:
        raise GraphError(f"{asked_by} has an option '{name}' that no URL can contain; pass the argument {name}=...")
    raise GraphError(f"{asked_by} needs {forms} as option '{name}'; got {shown}")


def read_text(text: str, hint: Any) -> Any:
    """Return the value that a text stands for, by the annotation of an option; `UNREADABLE` if it has another form.

    >>> read_text("30s", timedelta | int), read_text("7", timedelta | int), read_text("4 MiB", ByteCount)
    (datetime.timedelta(seconds=30), 7, 4194304)
    """
    values = (_read_as(text, kind) for kind in sorted(kinds_of(hint), key=_rank))
    return next((value for value in values if value is not UNREADABLE), UNREADABLE)


def forms_of(hint: Any) -> str:
    """Return a description of the values of an annotation; empty if text can't express any of them.

    >>> forms_of(int | timedelta | None)
    'an integer or a time such as 500ms, 30s, 5m, 2h, 1d'
    """
    return " or ".join(dict.fromkeys(form for kind in kinds_of(hint) if (form := _form(kind))))


def kinds_of(hint: Any) -> Sequence[Any]:
    """Return the alternatives of an annotation, without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for it in get_args(hint) if it is not type(None) for kind in kinds_of(it)]
    return [hint]


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _rank(kind: Any) -> int:
    """Return the rank of a kind in the order in which they are tried: the narrowest first."""
    order = (Literal, bool, int, ByteCount, float, timedelta, datetime, str)
    origin = get_origin(kind) or kind
    return order.index(origin) if origin in order else len(order)


def _read_as(text: str, kind: Any) -> Any:
    origin = get_origin(kind) or kind
    try:
        if origin is Literal:
            return text if text in get_args(kind) else UNREADABLE
        if origin is bool:
            return _TRUTH.get(text.lower(), UNREADABLE)
        if origin in (int, float):
            return origin(text)
        if origin is ByteCount:
            sized = _SIZE.fullmatch(text)
            return ByteCount(float(sized[1]) * _BYTES[sized[2] or "B"]) if sized else UNREADABLE
        if origin is timedelta:
            found = read_duration(text)
            return UNREADABLE if found is None else found
        if origin is datetime:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if origin is str:
            return text
        if isinstance(origin, type) and issubclass(origin, Iterable) and not _is_mapping(kind):
            return _list_of(text, kind, origin)
    except (ValueError, OverflowError):
        pass
    return UNREADABLE


def _list_of(text: str, kind: Any, origin: type) -> Any:
    inner = next((it for it in get_args(kind) if it is not ...), str)
    values = [_read_as(part, inner) for part in text.split(",")]
    if UNREADABLE in values:
        return UNREADABLE
    return tuple(values) if origin is tuple else values


def _form(kind: Any) -> str:
    """Return a description of the values of a kind; empty if a URL can't contain them."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    forms: dict[Any, str] = {
        bool: "true or false",
        int: "an integer",
        ByteCount: "a number of bytes such as 64 MiB",
        float: "a number",
        timedelta: f"a time such as {EXAMPLES}",
        datetime: "a time in ISO format",
    }
    return forms.get(origin, "")
