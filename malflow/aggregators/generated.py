"""Source code of the functions of a kernel."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from types import CodeType, MethodType
from typing import Any, Literal

from malflow.aggregators.checks import explain
from malflow.aggregators.fields import (
    Field,
    addable,
    check_addable,
    check_integer,
    exact,
    key_of,
    nan_error,
    none_error,
    source_of_field,
)
from malflow.aggregators.numbers import PLAIN, added, divided, may_be_of_numpy, number
from malflow.aggregators.slots import Slot, Slotted, unique
from malflow.diagnostics import Fresh
from malflow.records.rows import ReadField

__all__ = ["Source"]

Kind = Literal["items", "attributes", "columns"]
"""The kind of the values from which fields are read: mappings, objects, or columns, row by row."""

_FUNCTIONS = ("add", "each", "merge", "merge_by_key", "result", "results")


class Source:
    """Writes the functions of a kernel, and compiles them.

    An accumulator is the state of the only slot, or a list of the states of the slots.

    Args:
        aggregators: the aggregators.
        refuses_nan: whether the loop rejects NaN where numbers are summed or compared.
    """

    def __init__(self, aggregators: Sequence[Slotted[Any, Any, Any]], *, refuses_nan: bool) -> None:
        self.aggregators = aggregators
        self.slots = unique(slot for aggregator in aggregators for slot in aggregator.slots)
        self.bare = len(self.slots) == 1
        self.refuses_nan = refuses_nan
        self._places = {slot.identity: index for index, slot in enumerate(self.slots)}
        self._names: dict[str, object] = {
            "explain": explain,
            "none_error": none_error,
            "nan_error": nan_error,
            "check_addable": check_addable,
            "check_integer": check_integer,
            "addable": addable,
            "exact": exact,
            "plain": PLAIN,
            "added": added,
            "divided": divided,
            "number": number,
        }
        self._columns = self._numbered_columns()
        self.knows_numpy = False
        self._fresh: dict[int, Fresh] = {}

    @property
    def reads_fields(self) -> bool:
        """Whether a field is read by name,. The loop then depends on the kind of the values."""
        return any(isinstance(slot.column, str) for slot in self.slots)

    def place(self, slot: Slot) -> str:
        """Return the expression of a slot of the accumulator ``a``."""
        return self._state("a", self._places[slot.identity])

    def bind(self, hint: str, thing: object) -> str:
        """Return the name of an object."""
        for name, bound in self._names.items():
            if bound is thing or (isinstance(thing, MethodType) and bound == thing):
                return name
        name = f"{hint}_{len(self._names)}"
        self._names[name] = thing
        return name

    @property
    def fields(self) -> list[ReadField] | None:
        """The distinct fields that are read; None if more of the values is."""
        read = [slot.column for slot in self.slots if slot.reads("x")]
        return None if self.reads_values or None in read else self.columns

    @property
    def columns(self) -> list[ReadField]:
        """The distinct fields that are read, in the order in which loops over columns take them."""
        read = {key_of(slot.column): slot.column for slot in self.slots if slot.reads("x")}
        return [column for column in read.values() if column is not None]

    @property
    def reads_values(self) -> bool:
        """Whether a slot keeps whole values. Loops over columns take them as the last column."""
        return any(slot.reads("v") for slot in self.slots)

    def compile(self, kind: Kind) -> dict[str, Callable[..., Any]]:
        """Return the functions of a kernel by name; `add` and `each` are for values of one kind."""
        parts = [self._loop(kind, each=False), self._loop(kind, each=True), self._merge(), self._result()]
        source = "\n\n".join(parts)
        reads_items = kind == "items" if self.reads_fields and kind != "columns" else None
        namespace: dict[str, Any] = {**self._names, "reads_items": reads_items}
        exec(_code(source), namespace)  # noqa: S102 - generated from templates; fields are quoted
        return {name: namespace[name] for name in _FUNCTIONS if name in namespace}

    def _loop(self, kind: Kind, *, each: bool) -> str:
        names = [self._columns[key_of(field)][0] for field in self.columns] if kind == "columns" else []
        names += ["v"] if names and self.reads_values else []
        value = names[0] if len(names) == 1 else f"({', '.join(names)})" if names else "v"
        is_timed = any(slot.reads("t") for slot in self.slots)  # avoids creating objects for unread timestamps
        record, columns = (f"{value}, t", "values, timestamps") if is_timed else (value, "values")
        lines = [
            f"def {'each' if each else 'add'}(accs, keys, values, timestamps, admit):",
            *(("    outcomes = []", "    append = outcomes.append") if each else ()),
            "    get = accs.get",
            "    try:",
            f"        for key, {record} in zip(keys, {columns}, strict=True):",
            *_indented(3, self._reads(kind)),
            *_indented(3, self._update(each=each)),
            *((f"            append({self._outcome()})",) if each else ()),
            "    except Exception as error:",
            "        explain(error)",
            "        raise",
            *(("    return outcomes",) if each else ()),
        ]
        return "\n".join(lines)

    def learn_numpy(self) -> bool:
        """Make loops convert scalars of numpy once it is loaded; return whether those compiled before do not."""
        if self.knows_numpy or not may_be_of_numpy():
            return False
        self.knows_numpy = True
        return True

    def _reads(self, kind: Kind) -> list[str]:
        lines = []
        for name, column in self._columns.values():
            if column is not None and kind == "columns":
                pass
            elif isinstance(column, str | int):
                lines.append(f"{name} = {source_of_field(column, mapping=kind == 'items')}")
            elif column is not None:
                lines.append(f"{name} = {self.bind('read', column)}(v)")
            if self.refuses_nan and self._needs_value(column, equality=True):
                lines.append(f"if {name} != {name}: raise nan_error({self.bind('field', column)})")
            integers = [slot for slot in self.slots if slot.needs_integer and key_of(slot.column) == key_of(column)]
            if integers:
                known = f" and {name} is not None" if all(slot.skips for slot in integers) else ""
                check = f"check_integer({self.bind('field', column)}, {name})"
                lines.append(f"if {name}.__class__ is not int{known}: {check}")
            elif self.knows_numpy and self._needs_number(column):
                lines.append(
                    f"if {name}.__class__ is not int and {name}.__class__ not in plain: {name} = number({name})"
                )
        return lines

    def _update(self, *, each: bool) -> list[str]:
        """Return the statements that add one record to the accumulator of its key."""
        started = ", ".join(map(self._first, self.slots))
        new = started if self.bare else f"[{started}]"
        simple = self.bare and (not self.slots[0].step or self.slots[0].skips)  # the state of a known key may be None
        lines = ["if key not in accs:" if simple else "a = get(key)"]
        if not simple:
            lines.append("if a is None:")
        lines.append("    if admit is not None: admit(key)")
        for name, column in self._columns.values():
            if not any(slot.needs_value for slot in self._readers(column) if not slot.skips):
                continue
            if self._needs_number(column):  # most are of these two classes, which need no further check
                lines.append(f"    if {name}.__class__ is not int and {name}.__class__ is not float:")
                lines.append(f"        check_addable({self.bind('field', column)}, {name})")
            elif self._needs_value(column):
                lines.append(f"    if {name} is None: raise none_error({self.bind('field', column)})")
        lines += [f"    {'a = ' if each else ''}accs[key] = {new}", "else:"]
        if simple:
            lines.append("    a = accs[key]")
        lines += _indented(1, [it for at, slot in enumerate(self.slots) for it in self._steps(at, slot, each=each)])
        if self.bare and each:
            lines.append("    accs[key] = a")
        return lines

    def _first(self, slot: Slot) -> str:
        """Return the expression of the state after one record, which may be skipped."""
        x = self._columns[key_of(slot.column)][0]
        added = self._first_added(slot, x)
        return f"(({added}) if {x} is not None else None)" if slot.skips else added

    def _first_added(self, slot: Slot, x: str) -> str:
        if slot.skips and slot.needs_number:
            x = f"addable({self.bind('field', slot.column)}, {x})"
        if slot.first:
            return slot.first.format(x=x, t="t")
        create: Callable[[], Any] = slot.create
        if not isinstance(create, type):
            create = self._fresh.setdefault(id(create), Fresh(create, "the function that creates accumulators"))
        return self._added(slot, f"{self.bind('create', create)}()", x)

    def _steps(self, index: int, slot: Slot, *, each: bool) -> list[str]:
        """Return the statements that add a record to a state."""
        x = self._columns[key_of(slot.column)][0]
        a = self._state("a", index)
        to = "accs[key]" if self.bare and not each else a
        step = slot.step.format(a=a, to=to, x=x, t="t") if slot.step else f"{to} = {self._added(slot, a, x)}"
        if not slot.skips:
            return [step]
        first = self._first_added(slot, x)
        return [f"if {x} is not None:", f"    if {a} is None: {to} = {first}", "    else:", f"        {step}"]

    def _added(self, slot: Slot, state: str, x: str) -> str:
        """Return a call of the `add` function."""
        arguments = [x if letter == "x" else letter for letter in slot.takes]
        return f"{self.bind('add', slot.add)}({', '.join([state, *arguments])})"

    def _merge(self) -> str:
        if any(slot.merge is None for slot in self.slots):
            return ""
        states = ", ".join([self._join(index, slot) for index, slot in enumerate(self.slots)])
        joined = states if self.bare else f"[{states}]"
        lines = [
            "def merge(a, b):",
            f"    return {joined}",
            "",
            "def merge_by_key(one, other):",
            "    merged = dict(one)",
            "    for key, b in other.items():",
            "        if key in merged:",
            "            a = merged[key]",
            f"            merged[key] = {joined}",
            "        else:",
            "            merged[key] = b",
            "    return merged",
        ]
        return "\n".join(lines)

    def _join(self, index: int, slot: Slot) -> str:
        a, b = self._state("a", index), self._state("b", index)
        if slot.skips and not slot.is_plain:
            return f"{self.bind('merged', slot.merged)}({a}, {b})"
        joined = slot.join.format(a=a, b=b) if slot.join else f"{self.bind('merge', slot.merge)}({a}, {b})"
        return f"({b} if {a} is None else {a} if {b} is None else {joined})" if slot.skips else joined

    def _result(self) -> str:
        outcome = self._outcome()
        return f"def result(a):\n    return {outcome}\n\ndef results(accs):\n    return [{outcome} for a in accs]"

    def _outcome(self) -> str:
        outcomes = [aggregator.result_source(self) for aggregator in self.aggregators]
        return outcomes[0] if len(outcomes) == 1 else f"({', '.join(outcomes)})"

    def _state(self, acc: str, index: int) -> str:
        return acc if self.bare else f"{acc}[{index}]"

    def _numbered_columns(self) -> dict[object, tuple[str, Field]]:
        """Return the name of each distinct column; that of the values themselves is ``v``."""
        columns: dict[object, tuple[str, Field]] = {}
        for slot in self.slots:
            name = "v" if slot.column is None else f"x{len(columns)}"
            columns.setdefault(key_of(slot.column), (name, slot.column))
        return columns

    def _needs_value(self, column: Field, *, equality: bool = False) -> bool:
        """Whether a slot that reads the column rejects None, or NaN."""
        return any(slot.needs_value or (equality and slot.needs_equality) for slot in self._readers(column))

    def _needs_number(self, column: Field) -> bool:
        return any(slot.needs_number for slot in self._readers(column))

    def _readers(self, column: Field) -> list[Slot]:
        return [slot for slot in self.slots if key_of(slot.column) == key_of(column)]


def _indented(depth: int, lines: Sequence[str]) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]


@lru_cache(maxsize=1024)
def _code(source: str) -> CodeType:
    """Compile source code, and keep it for the lines of tracebacks."""
    name = f"<malflow aggregation {blake2b(source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(source, name, "exec")
