"""Measures of the package as a house: rooms, doors, words said twice. Run ``python -m tests.house``.

Not a test: a table to compare before and after a change of the structure. Each figure is a count, but for the time of
an import, which is the fastest of several.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "malflow"
MANY = 15
"""The number of doors from which a room counts as large."""

IMPORTS = 5
"""How often an import is timed; the fastest counts, since all else is noise."""

JOINTS = (", which", "whose", "so that", r"those of\b")


def main() -> None:
    """Print the measures as a table."""
    print("| measure | |\n|---|---|")
    for name, value in measures():
        print(f"| {name} | {value} |")


def measures() -> Iterator[tuple[str, object]]:
    """Yield each measure with its name."""
    doors = [it for it in sorted(PACKAGE.rglob("*.py")) if it.name != "__init__.py"]
    rooms = Counter(it.parent.relative_to(PACKAGE).as_posix() for it in doors)
    lines = [len(it.read_text().splitlines()) for it in doors]
    yield "modules", len(doors)
    yield f"rooms above {MANY} doors", sum(number > MANY for number in rooms.values())
    yield "largest rooms", ", ".join(f"{room} {number}" for room, number in rooms.most_common(6))
    yield "median, p90 and longest module", f"{median(lines):.0f}, {quantiles(lines, n=10)[-1]:.0f}, {max(lines)}"
    yield "lines of package", sum(len(it.read_text().splitlines()) for it in PACKAGE.rglob("*.py"))
    yield "files that a tick of one thread passes", len(files_of(ticks))
    yield "files to build and start", len(files_of(build_and_start))
    yield "modules that a dataflow needs to be built, seconds", imported("from malflow import StreamProvider")
    yield "modules of `malflow --help`, seconds", imported("from malflow.cli import main; main(['--help'])")
    trees = {it: ast.parse(it.read_text()) for it in PACKAGE.rglob("*.py")}
    yield "`get_close_matches` outside words.py", uses(trees, "get_close_matches", "words.py")
    yield "functions that check a whole number outside checks.py", whole_number_checks(trees)
    yield "functions check_, checked_, require_, refuse_", sum(is_check(node) for node in functions(trees))
    yield "lines of overloads", sum(overload_lines(tree) for tree in trees.values())
    names = Counter(it.stem for it in doors)
    yield "module names that stand twice or more", sum(number > 1 for number in names.values())
    yield "constants without a reason", sum(bare_constants(it) for it in PACKAGE.rglob("*.py"))
    yield "words of docs without the API", words_of_docs()
    words, found = joints(trees)
    yield (
        f"{', '.join(JOINTS)} in 10,000 words of docstrings".replace(r"\b", ""),
        ", ".join(f"{10_000 * number / words:.0f}" for number in found),
    )


def functions(trees: dict[Path, ast.Module]) -> Iterator[ast.FunctionDef]:
    """Yield all functions."""
    for tree in trees.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def is_check(function: ast.FunctionDef) -> bool:
    """Whether a function's name is that of a check."""
    return function.name.lstrip("_").startswith(("check_", "checked_", "require_", "refuse_"))


def whole_number_checks(trees: dict[Path, ast.Module]) -> int:
    """Count the functions that raise unless an argument is an int and no bool."""
    return sum(
        "bool" in source and "int)" in source and "raise" in source and "isinstance" in source
        for path, tree in trees.items()
        if path.name != "checks.py"
        for source in (ast.unparse(node) for node in functions({path: tree}) if len(node.body) <= MANY)
        if re.search(r"isinstance\([\w.]+, bool\)", source) and re.search(r"isinstance\([\w.]+, int\)", source)
    )


def uses(trees: dict[Path, ast.Module], name: str, but: str) -> int:
    """Count the modules but one that mention a name."""
    return sum(
        any(isinstance(node, ast.Name | ast.alias) and name in ast.dump(node) for node in ast.walk(tree))
        for path, tree in trees.items()
        if path.name != but
    )


def overload_lines(tree: ast.Module) -> int:
    """Count the lines of overloads."""
    return sum(
        (node.end_lineno or 0) - node.lineno + 2
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(it) == "overload" for it in node.decorator_list)
    )


def bare_constants(path: Path) -> int:
    """Count the constants of a module that are numbers and have no comment or docstring."""
    text = path.read_text()
    lines, body = text.splitlines(), ast.parse(text).body
    found = 0
    for at, node in enumerate(body):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is None or not is_number(value):
            continue
        following = body[at + 1] if at + 1 < len(body) else None
        told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        found += not (told or "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#"))
    return found


def is_number(value: ast.expr) -> bool:
    """Whether an expression is arithmetic with literal numbers."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def words_of_docs() -> int:
    """Count the words of the docs, without the page made of docstrings and the records of decisions."""
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
    return sum(len(it.read_text().split()) for it in pages if it.name != "api.md")


def joints(trees: dict[Path, ast.Module]) -> tuple[int, list[int]]:
    """Return the number of words of docstrings, and how often each joint of sentences stands in them."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    texts = [
        ast.get_docstring(node) or "" for tree in trees.values() for node in ast.walk(tree) if isinstance(node, kinds)
    ]
    whole = "\n".join(texts)
    return len(whole.split()), [len(re.findall(joint, whole)) for joint in JOINTS]


def files_of(act: Callable[[Callable[[], None]], None]) -> set[str]:
    """Return the modules of the package in which a function runs while it acts, from the call of its argument on."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(frame.f_code.co_filename)

    def begin() -> None:
        threading.setprofile(note)
        sys.setprofile(note)

    try:
        act(begin)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files


def dataflow(records: Any) -> Callable[[Any], None]:
    """Return the running sum of the README over a source."""

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("numbers", records).key_distribute("by rest", lambda msg: msg.value % 7)
        summed = keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), int)
        summed.sink("out", VecSink())

    return build


def ticks(begin: Callable[[], None]) -> None:
    """Run a dataflow, and begin amid its ticks; stop before the last one."""

    def numbers() -> Iterator[int]:
        for number in range(60_000):
            if number == 20_000:
                begin()
            if number == 50_000:
                sys.setprofile(None)
            yield number

    SingleThreadRuntime(dataflow(SingleIteratorSource(numbers()))).execute()


def build_and_start(begin: Callable[[], None]) -> None:
    """Build and start a dataflow that ends at once."""
    begin()
    SingleThreadRuntime(dataflow(SingleIteratorSource([1]))).execute()


def imported(statement: str) -> str:
    """Return how many modules of malflow a statement loads in a new process, and its processor time in seconds."""
    code = f"""
import sys, time, os
began = time.process_time()
sys.stdout = open(os.devnull, "w")
try:
    {statement}
except SystemExit:
    pass
took = time.process_time() - began
print(sum(it == "malflow" or it.startswith("malflow.") for it in sys.modules), took, file=sys.stderr)
"""
    found = []
    for _ in range(IMPORTS):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
        found.append(done.stderr.split()[-2:])
    return f"{found[0][0]}, {min(float(seconds) for _, seconds in found):.2f}"


if __name__ == "__main__":
    main()
