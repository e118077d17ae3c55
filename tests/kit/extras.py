"""Tests without an optional library: files and examples that need it are skipped, and the others run.

A file is skipped if its import fails because a library of the extras `columns`, `delta` or `spark` is not installed. So
no list of files must be kept. A test that fails for this reason while it runs remains a failure: the core must work
without these libraries. Such tests call `pytest.importorskip`, or have the mark of `needs`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from doctest import UnexpectedException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.doctest import DoctestItem, DoctestModule

__all__ = ["LACKING", "lacking", "libraries_of", "needs", "skipping"]

EXTRAS = frozenset({"columns", "delta", "spark"})
"""The extras of malflow that tests can do without."""

_PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_REQUIREMENT = re.compile(r"([\w-]+)(?:\[([\w,]+)\])?")


def libraries_of(extras: Iterable[str]) -> set[str]:
    """Return the libraries of some extras, and of the extras that they include."""
    required = [_REQUIREMENT.match(line) for extra in extras for line in _PROJECT["optional-dependencies"][extra]]
    found = {it[1] for it in required if it}
    included = {extra for it in required if it and it[1] == "malflow" for extra in it[2].split(",")}
    return found - {"malflow"} | (libraries_of(included) if included else set())


LACKING = frozenset(name for name in libraries_of(EXTRAS) if find_spec(name) is None)
"""The libraries of these extras that are not installed."""


def _reason(names: Iterable[str]) -> str:
    return f"{' and '.join(sorted(names))} not installed"


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark of tests that need libraries: without one of them, they are skipped."""
    return pytest.mark.skipif(not LACKING.isdisjoint(names), reason=_reason(LACKING.intersection(names)))


def lacking(error: BaseException | None) -> str | None:
    """Return which library an import failed to find, if it is of the extras and not installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name in LACKING:
            return error.name
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def skipping(what: object) -> Iterator[None]:
    """Skip a file or a test where a library is missing.

    Args:
        what: names it in the reason.
    """
    try:
        yield
    except (ImportError, pytest.Collector.CollectError) as error:
        if (name := lacking(error)) is None:
            raise
        pytest.skip(f"{what}: {_reason([name])}", allow_module_level=True)


class _Tests(pytest.Module):
    """A file of tests."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        with skipping(self.path.relative_to(self.config.rootpath)):
            return super().collect()


class _Examples(DoctestModule):
    """The examples in the docstrings of a module."""

    def collect(self) -> Iterable[DoctestItem]:
        with skipping(self.path.relative_to(self.config.rootpath)):
            if LACKING:  # pytest would put an empty package in the place of one that can't be imported
                import_module(".".join(self.path.relative_to(self.config.rootpath).with_suffix("").parts))
        return super().collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip the examples of a docstring that need a missing library."""
    try:
        yield
    except UnexpectedException as failed:
        with skipping(item.name):
            raise failed.exc_info[1] from None
        raise


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the examples in docstrings, of modules that have some: ``--doctest-modules`` imports all to find them."""
    if file_path.suffix == ".py" and ">>> " in file_path.read_text(encoding="utf-8"):
        examples: pytest.Collector = _Examples.from_parent(parent, path=file_path)
        return examples
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Collect a file of tests, if its libraries are installed."""
    module: pytest.Module = _Tests.from_parent(parent, path=module_path)
    return module
