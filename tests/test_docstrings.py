"""Docstrings open as the field's do: "Return ...", "Whether ...", or with the verb of what is done."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("malflow", "tests", "examples", "benchmarks")

BANNED = re.compile(r"(Gives?|Tells?|Lets?|Have|Has|Take what|Say (what|why|how|that))\b")
"""Openings of any docstring that "Return", "Whether", "Raise" or the proper verb replace."""

NOUN_CLAUSE = re.compile(r"(What|Whatever|How|Where|Why|Who)\b")
"""Openings of a function's docstring that hide its verb."""

NOUN_CLAUSE_TITLE = re.compile(r"test_(what|whatever|how|where|why|who)_")
"""Names of tests that hide their subject."""

CANDIDATE = re.compile(rf"""["'](\\\n)?\s*({BANNED.pattern}|{NOUN_CLAUSE.pattern})""")
"""The beginning of a string that is an offence if it is a docstring: most modules have none, and need no parsing."""

PHRASES = {
    r"\b(that|which) is none\b": "name the fault: 'is not ...', 'has no ...'",
    r"(?<!there )(?<!there or )\bis no (?!longer|more|later|older)[a-z]+": "write 'is not a ...'",
    r"(?<!left )(?<!leaves nothing )(?<!left nothing )\bbehind\b(?! the newest)": "write 'after', unless of an epoch",
    r"(?<!by )\bwhat (it|they) (is|was|were)\b": "write the noun",
    r"\bgo(es|ing)? on\b": "write 'continue' or 'advance'",
    r"\bbears?\b": "write 'have' or 'allow'",
    r"^(Return|Note) what\b": "name the thing that is returned or recorded",
    r"\bwhat (becomes?|became) of\b": "write 'outcome'",
    r"\bhow far\b.*\bha(s|ve) come\b": "write 'progress'",
    r"\b(no|not)\b.{0,40}\bany more\b": "write 'no longer'",
    r"\blisted no more\b": "write 'no longer listed'",
    r"\bfulfil(s|led)?\b": "write 'satisfy'",
    r"\bfor ever\b": "write 'forever'",
    r"\banew\b": "write 'again', or a verb with 're'",
    r"\bat hand\b": "write 'current'",
    r"\bof which no\b": "write 'none of which', or 'without'",
    r"\bhaving checked\b": "write 'Check ..., and return ...'",
    r"^Replace each value by\b": "write 'Replace each value with'",
    r"^Bring the state\b": "write 'Apply a delta to the state'",
    r"\bwhoever\b": "name who it is",
    r"\bthe outside\b": "name the external system",
    r"\b(came|come|comes) too late\b": "write 'is too late'",
    r"\b(goes|go) nowhere\b": "write 'is lost'",
    r"\bis told\b(?! otherwise)": "write 'is reported' or 'gets'",
    r"\bat (most|least) so\b": "name the limit",
}
"""Phrases that no docstring and no message of the package has, and what to write instead."""

ANY_PHRASE = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES))
"""All of them as one expression: most texts have none, and are searched once."""

CLOSED_AND_OPENED = re.compile(r"""["']\s*f?["']""")
"""The joint of a text that stands in several pieces."""

MAY_BE_IN = re.compile(ANY_PHRASE.pattern.replace("^", ""))
"""The phrases anywhere in a module: most have none, and need no parsing."""

OF_EPOCHS = re.compile(r"\bepochs?\b|\bwatermarks?\b|\bregistry\b|\bothers\b")
"""Sentences in which records, or an epoch, may be behind another epoch, and a registry behind a proxy."""

BUDGETS = {
    ", which": 8,
    "whose": 8,
    "so that": 6,
    "those of": 2,
    "that of": 6,
    ", of which": 1,
    "meanwhile": 2,
    "what makes": 1,
}
"""How often a joint of sentences may stand in 10,000 words of docstrings: write two sentences, or use "with"."""

JOINT = re.compile("|".join(rf"\b{it}\b" if it[0] != "," else rf"{it}\b" for it in BUDGETS))
"""All of them as one expression."""

TEXT = re.compile(r'''(^[ \t]*r?(?="))?"""(.*?)"""''', re.DOTALL | re.MULTILINE)
"""A text in triple quotes, with the indentation that only a docstring has before it."""

CODE = re.compile(r"``[^`]*``")

TITLE = re.compile(r"^ *def (test_\w+)\(", re.MULTILINE)
LONGEST_TITLE = 70

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def offences(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and docstring of each function, class and module whose docstring has a banned opening."""
    for node in ast.walk(ast.parse(source if CANDIDATE.search(source) else "")):
        if not isinstance(node, Documented):
            continue
        text = (ast.get_docstring(node, clean=False) or "").lstrip()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
        if BANNED.match(text) or (is_function and NOUN_CLAUSE.match(text)):
            yield getattr(node, "lineno", 1), text.partition("\n")[0]


def phrases(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, text and remedy of each docstring and message that has one of the phrases."""
    if not MAY_BE_IN.search(" ".join(CLOSED_AND_OPENED.sub("", source).split())):
        return
    tree = ast.parse(source)
    documentation = {id(it.value) for it in ast.walk(tree) if isinstance(it, ast.Expr)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if id(node) not in documentation and node.value.count(" ") < 2:
            continue  # a word of the code, such as the name of a law
        for sentence in re.split(r"(?<=[.:;]) ", " ".join(CODE.sub("", node.value).split())):
            for phrase, remedy in PHRASES.items() if ANY_PHRASE.search(sentence) else ():
                if re.search(phrase, sentence) and not ("behind" in phrase and OF_EPOCHS.search(sentence)):
                    yield node.lineno, sentence, remedy


def documentation(source: str) -> Iterator[str]:
    """Yield the texts of a module that stand as statements: its docstrings, found without a parser, to be fast."""
    for found in TEXT.finditer(source):
        if found[1] is not None:
            yield found[2]


def excesses(texts: Iterable[str]) -> Iterator[str]:
    """Yield each joint that stands in the texts more often than its budget allows, with both numbers."""
    words, found = 0, Counter[str]()
    for text in texts:
        plain = " ".join(text.split())
        words += plain.count(" ") + 1
        found.update(JOINT.findall(plain))
    for joint, budget in BUDGETS.items():
        if found[joint] * 10_000 > budget * words:
            yield f"{joint!r} stands {found[joint]} times in {words} words; at most {budget * words // 10_000}"


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property, whose docstring may be a noun."""
    return any(isinstance(it, ast.Name) and it.id == "property" for it in node.decorator_list)


def modules() -> Iterator[Path]:
    """Yield the modules of the package, of the tests, of the examples and of the benchmarks."""
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def titles(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each test."""
    for found in TITLE.finditer(source):
        yield source.count("\n", 0, found.start()) + 1, found[1]


def test_no_docstring_has_a_banned_opening() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}" for path in modules() for line, text in offences(path.read_text())
    ]
    assert not found, "\n".join(["Write 'Return ...', 'Whether ...' or the verb of what is done:", *found])


def test_no_text_of_the_package_has_a_foreign_phrase() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text} -> {remedy}"
        for path in sorted((ROOT / "malflow").rglob("*.py"))
        for line, text, remedy in phrases(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_docstrings_of_the_package_have_few_relative_clauses() -> None:
    texts = (text for path in sorted((ROOT / "malflow").rglob("*.py")) for text in documentation(path.read_text()))
    assert not list(excesses(texts))


def test_a_spent_budget_of_relative_clauses_is_found() -> None:
    text = "Return the key, which is a word. " * 9
    assert list(excesses([text, "word " * 1_000])) == ["', which' stands 9 times in 1063 words; at most 0"]
    assert not list(excesses([text, "word " * 20_000]))


@pytest.mark.parametrize(
    "text",
    [
        "the stream is no stream",
        "add it behind that operator",
        "the run goes on",
        "Note what it did",
        "its URL is one that is none",
        "an event that fulfils a step",
        "return how far an operator has come",
        "a part that is not read any more",
        "find the panes anew",
        "a text at most so wide",
    ],
)
def test_foreign_phrases_are_found(text: str) -> None:
    assert list(phrases(f"raise ValueError({text!r})\n"))


@pytest.mark.parametrize("text", ["there is no key", "records behind the epoch are late", "it is no longer there"])
def test_plain_phrases_are_not(text: str) -> None:
    assert not list(phrases(f"raise ValueError({text!r})\n"))


def test_titles_of_tests_are_short_and_name_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules()
        for line, name in titles(path.read_text())
        if len(name) > LONGEST_TITLE or NOUN_CLAUSE_TITLE.match(name)
    ]
    assert not found, "\n".join(["Write a title with a noun as its subject:", *found])


@pytest.mark.parametrize(
    "opening",
    ["Give the names.", "Tell whether it is.", "Let go of it.", "Have a process do it.", "What comes of it."],
)
def test_banned_openings_are_found(opening: str) -> None:
    assert list(offences(f'def function():\n    """{opening}"""\n'))


@pytest.mark.parametrize("opening", ["Return the names.", "Whether it is.", "Close it.", "Hash a key."])
def test_other_openings_are_not(opening: str) -> None:
    assert not list(offences(f'def function():\n    """{opening}"""\n'))
