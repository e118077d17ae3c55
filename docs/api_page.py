"""Write docs/api.md, each public name with its signature and a line, in the order of docs/reference.md.

The functions of SQL, the settings and the metrics follow. `make reference` runs it. Signatures are read from the
source, so that they stand in the page as they are written there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from docs.configuration_page import of_tables
from docs.metrics_page import of_metrics
from malflow.sql.bind.expressions import AGGREGATES
from malflow.sql.functions.scalar import INSTEAD, SCALAR
from malflow.sql.functions.table import shown
from malflow.sql.types import NULL, STRING, SqlType

DOCS = Path(__file__).parent
PAGE = DOCS / "api.md"
HEAD = """# All names

Every public class, method and function with its signature, a line, and the meaning of its parameters; then the
functions of [SQL](sql.md), the [settings](configuration.md) and the [metrics](metrics.md). Written by `make reference`
from the docstrings, which say more: `help(Stream.window)` shows one, and `make docs` builds a site of them. The
[guide](guide.md) has the operators with an example each.
"""

FUNCTIONS_HEAD = """
## Functions of SQL

Named and typed as in Flink. A word is a unit of time, as in `EXTRACT(HOUR FROM ts)`, `FLOOR(ts TO DAY)` and
`TIMESTAMPDIFF(MINUTE, a, b)`, or a side, as in `TRIM(BOTH 'x' FROM text)`.
"""

DIRECTIVE = re.compile(
    r"^## (?P<module>malflow\S*)|^\.\. (?P<kind>auto\w+|py:data):: (?P<path>\S+)\n(?P<rest>(?:\n?   .*\n)*)",
    re.MULTILINE,
)
MEMBERS = re.compile(r"^   :(members|inherited-members):(.*)$", re.MULTILINE)
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Raises, in every method|Yields|Warns):\n", re.MULTILINE)
ENTRY = re.compile(r"^    (\S[^:]*):(.*(?:\n(?:     .*|))*)", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Documented:
    """The first line of a docstring, and the parameters or attributes that it explains."""

    line: str
    explained: dict[str, str] = field(default_factory=dict)


def page() -> str:
    """Return the text of the page."""
    lines = [HEAD.rstrip()]
    for found in DIRECTIVE.finditer((DOCS / "reference.md").read_text(encoding="utf-8")):
        if found["module"]:
            lines.append(f"\n## {found['module']}")
        elif found["kind"] != "automodule":
            lines += described(found["kind"], found["path"], found["rest"])
    return "\n".join([*lines, *functions_of_sql(), *of_tables(), *of_metrics()]) + "\n"


def functions_of_sql() -> Iterator[str]:
    """Yield the functions of SQL: how each is called, and its type where that does not depend on the arguments."""
    yield FUNCTIONS_HEAD
    for name, signatures in sorted(SCALAR.items()):
        ways = dict.fromkeys(f"`{shown(name, it)}`" for it in signatures)
        kinds = dict.fromkeys(it.gives.name for it in signatures if isinstance(it.gives, SqlType) and it.gives != NULL)
        gives = " or ".join(kinds).replace(STRING.name, "STRING")
        yield f"- {', '.join(ways)}{f': {gives}' if gives else ''}"
    yield f"\nAggregates: {', '.join(f'`{it}`' for it in sorted(AGGREGATES - INSTEAD.keys()))}."


def described(kind: str, path: str, rest: str) -> Iterator[str]:
    """Yield the lines of a directive."""
    name = path.rpartition(".")[2]
    if kind == "py:data":
        yield f"\n### {name}\n\n{' '.join(rest.split())}"
        return
    value = resolved(path)
    if kind == "autofunction":
        yield f"\n### {name}\n"
        yield from of_function(value, name)
    elif kind == "autodata":
        yield f"\n### {name}\n\n{plain(data_docstring(path))}"
    else:
        yield from of_class(value, name, dict(MEMBERS.findall(rest)))


def of_class(cls: type, name: str, options: dict[str, str]) -> Iterator[str]:
    """Yield a class: its line, how it is made, what it has, and its methods."""
    documented = explained(cls)
    yield f"\n### {name}\n\n{documented.line}\n"
    made, parameters = construction(cls, set(documented.explained))
    if made is not None:
        yield f"- **`{name}{made}`**"
    for parameter, text in documented.explained.items():
        yield f"  - `{parameter}`: {text}" if parameter in parameters else f"- `.{parameter}`: {text}"
    for member in members(cls, options):
        yield from of_member(cls, member)


def of_member(cls: type, name: str) -> Iterator[str]:
    """Yield a method, or a property with its line."""
    value = inspect.getattr_static(cls, name)
    if isinstance(value, property):
        yield f"- **`.{name}`** {explained(value).line}"
    elif isinstance(value, staticmethod | classmethod):
        yield from of_function(value.__func__, f"{cls.__name__}.{name}", skipped=isinstance(value, classmethod))
    elif inspect.isfunction(value):
        yield from of_function(value, f".{name}", skipped=True)


def of_function(value: Any, name: str, *, skipped: bool = False) -> Iterator[str]:
    """Yield the signature of a function, its line, and its parameters; `self` may be skipped."""
    documented, node = explained(value), definition(value)
    result = ast.unparse(node.returns) if node.returns is not None else "Any"
    returns = "" if result == "Any" else f" -> {result}"
    yield f"- **`{name}({', '.join(arguments(node, skipped=skipped))}){returns}`** {documented.line}"
    yield from (f"  - `{parameter}`: {text}" for parameter, text in documented.explained.items() if parameter != "name")


def members(cls: type, options: dict[str, str]) -> list[str]:
    """Return the names that a directive asks for, in the order of the source, those of the class itself first."""
    if "members" not in options:
        return []
    if options["members"].strip():
        return [name.strip() for name in options["members"].split(",")]
    left_out = {name.strip() for name in options.get("inherited-members", "").split(",")}
    bases = cls.__mro__ if left_out != {""} else (cls,)
    shown = [base for base in bases if base.__module__.startswith("malflow") and base.__name__ not in left_out]
    return list(dict.fromkeys(name for base in shown for name in vars(base) if name[0] != "_"))


def construction(cls: type, documented: set[str]) -> tuple[str | None, set[str]]:
    """Return the signature by which users make an object, None if they don't, and its parameters."""
    if is_dataclass(cls) or hasattr(cls, "_fields"):
        fields = inspect.signature(cls).parameters.values()
        shown = [
            argument(it.name, it.annotation, None if it.default is it.empty else shown_default(it.default))
            for it in fields
        ]
        return f"({', '.join(shown)})", {it.name for it in fields}
    written = next((it for it in cls.__mro__ if "__init__" in vars(it)), object)
    if not written.__module__.startswith("malflow"):
        return None, set()
    node = definition(vars(written)["__init__"])
    names = {it.arg for it in every_argument(node)} - {"self"}
    if names and not names & documented:
        return None, set()
    return f"({', '.join(arguments(node, skipped=True))})", names


def explained(value: Any) -> Documented:
    """Return what a docstring says, with the parameters of base classes that only those explain."""
    text = inspect.getdoc(value) or ""
    parts = SECTION.split(text)
    line = plain(parts[0].partition("\n\n")[0])
    found: dict[str, str] = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if heading in ("Args", "Attributes"):
            section = re.split(r"^(?=\S)", body, maxsplit=1, flags=re.MULTILINE)[0]
            found |= {name: plain(meaning) for name, meaning in ENTRY.findall(section)}
    return Documented(line, found)


def data_docstring(path: str) -> str:
    """Return the string under an assignment of a module."""
    module, _, name = path.rpartition(".")
    home = inspect.getmodule(getattr(import_module(module), name)) or import_module(module)
    for source in (import_module(module), home):
        body = tree(source.__file__ or "").body
        for node, following in pairwise(body):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            named = [it.id for it in targets if isinstance(it, ast.Name)]
            if name in named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                return str(following.value.value)
    return ""


def definition(value: Any) -> Function:
    """Return the definition of a function; where it has overloads, the one that has a body."""
    home = inspect.unwrap(value)
    scope: Any = tree(inspect.getsourcefile(home) or "")
    *outer, name = home.__qualname__.split(".")
    for part in outer:
        scope = next(it for it in scope.body if isinstance(it, ast.ClassDef) and it.name == part)
    found = [it for it in ast.walk(scope) if isinstance(it, Function) and it.name == name][-1]
    return found if "__signature__" not in vars(home) else listing(found, home)


def listing(node: Function, constructor: Any) -> Function:
    """Return a constructor that takes ``**options``, with the options that its signature lists in their place."""
    listed = deepcopy(node)
    for it in inspect.signature(constructor).parameters.values():
        if it.kind is inspect.Parameter.KEYWORD_ONLY:
            listed.args.kwonlyargs.append(ast.arg(it.name, ast.parse(it.annotation, mode="eval").body))
            listed.args.kw_defaults.append(ast.parse(repr(it.default).removeprefix("datetime."), mode="eval").body)
    listed.args.kwarg = None
    return listed


@cache
def tree(file: str) -> ast.Module:
    """Return the syntax of a module."""
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def every_argument(node: Function) -> Iterator[ast.arg]:
    """Yield the arguments of a function, of all kinds."""
    given = node.args
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from (it for it in (given.vararg, given.kwarg) if it is not None)


def arguments(node: Function, *, skipped: bool) -> Iterator[str]:
    """Yield the arguments of a function as they are written, perhaps without the first."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + [*given.defaults]
    for number, (it, default) in enumerate(zip(positional, defaults, strict=True), 1):
        if number > skipped:
            yield argument(it.arg, text_of(it.annotation), text_of(default))
        if number == len(given.posonlyargs) and number > skipped:
            yield "/"
    if given.vararg is not None:
        yield argument(f"*{given.vararg.arg}", text_of(given.vararg.annotation), None)
    elif given.kwonlyargs:
        yield "*"
    for it, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield argument(it.arg, text_of(it.annotation), text_of(default))
    if given.kwarg is not None:
        yield argument(f"**{given.kwarg.arg}", text_of(given.kwarg.annotation), None)


def argument(name: str, annotation: Any, default: str | None) -> str:
    """Return an argument with its type, unless that is any, and its default."""
    typed = f"{name}: {annotation}" if isinstance(annotation, str) and annotation != "Any" else name
    return typed if default is None else f"{typed} = {default}" if typed != name else f"{name}={default}"


def shown_default(default: Any) -> str:
    """Return a default as it is shown: a function by its name, since its address differs from run to run."""
    if inspect.isfunction(default):
        return default.__name__.replace("<lambda>", "lambda")
    return repr(default)


def text_of(node: ast.expr | None) -> str | None:
    """Return an expression as it is written."""
    return None if node is None else ast.unparse(node)


def plain(text: str) -> str:
    """Return a docstring's text in one line of Markdown."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def resolved(path: str) -> Any:
    """Return what a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
