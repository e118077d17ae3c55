"""Reading types."""

from __future__ import annotations

from malflow.sql.parser.reader import Reader
from malflow.sql.types import BYTES, LONGEST, MOST_DIGITS, STRING, SqlType
from malflow.words import did_you_mean

__all__ = ["TypeReader"]

_PLAIN = {
    "BOOLEAN": SqlType("BOOLEAN"),
    "TINYINT": SqlType("TINYINT"),
    "SMALLINT": SqlType("SMALLINT"),
    "INT": SqlType("INT"),
    "INTEGER": SqlType("INT"),
    "BIGINT": SqlType("BIGINT"),
    "FLOAT": SqlType("FLOAT"),
    "DOUBLE": SqlType("DOUBLE"),
    "STRING": STRING,
    "BYTES": BYTES,
    "DATE": SqlType("DATE"),
}

_SIZED = {"CHAR": 1, "VARCHAR": LONGEST, "BINARY": 1, "VARBINARY": LONGEST}
"""Types with a length, and the length that is meant without one, as in Flink."""

_DIGITS = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
"""Types with digits of a second, and how many are meant without a number, as in Flink."""

_INSTEAD = {
    "RAW": "BYTES",
    "MULTISET": "ARRAY, or MAP with counts",
    "INTERVAL": "BIGINT with a unit of your own",
    "TEXT": "STRING",
    "NUMBER": "DECIMAL",
    "LONG": "BIGINT",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "REAL": "FLOAT",
    "OBJECT": "ROW",
    "STRUCT": "ROW",
    "JSON": "STRING",
}
"""Types of Flink that are not here, and of other dialects, with what is written instead."""

_ALL = [*_PLAIN, *_SIZED, *_DIGITS, "DECIMAL", "ARRAY", "MAP", "ROW"]

_FINEST = 6
"""The most digits of a second: Python's instants have microseconds."""


class TypeReader(Reader):
    """Reads types."""

    def type(self) -> SqlType:
        """Read a type, with NOT NULL if it has that."""
        with self.deeper():
            found = self._type()
        if self.take("NOT", "NULL"):
            return found.as_nullable(False)
        self.take("NULL")
        return found

    def _type(self) -> SqlType:
        start = self.token
        word = start.upper
        if start.kind != "word" or word not in {*_ALL, "DEC", "NUMERIC"}:
            instead = f"; write {_INSTEAD[word]}" if word in _INSTEAD else did_you_mean(word, _ALL, else_="", write=str)
            raise self.fault(f"expected a type{instead}")
        self.skip()
        if word in _PLAIN:
            if word == "DOUBLE":
                self.take("PRECISION")
            return _PLAIN[word]
        if word in _SIZED:
            return SqlType(word, size=self._number(_SIZED[word], 1, LONGEST))
        if word in _DIGITS:
            return self._instant(word)
        if word in {"DECIMAL", "DEC", "NUMERIC"}:
            return self._decimal()
        return self._fields() if word == "ROW" else self._of_items(word)

    def _number(self, default: int, least: int, most: int) -> int:
        """Read a number in brackets, if there is one."""
        if not self.take("("):
            return default
        start = self.token
        number = self.whole_number()
        if not least <= number <= most:
            raise self.fault(f"expected a number from {least} to {most}", start.span)
        self.need(")")
        return number

    def _instant(self, word: str) -> SqlType:
        start = self.token
        digits = self._number(_DIGITS[word], 0, 9)
        if digits > _FINEST:
            raise self.fault(
                f"{word} has at most {_FINEST} digits of a second; write {word}({_FINEST})", self.since(start)
            )
        if word == "TIMESTAMP" and self.take("WITH", "LOCAL", "TIME", "ZONE"):
            word = "TIMESTAMP_LTZ"
        elif self.peek("WITH", "TIME", "ZONE"):
            raise self.fault("instants with a zone of their own are not supported; write TIMESTAMP_LTZ")
        else:
            self.take("WITHOUT", "TIME", "ZONE")
        return SqlType(word, size=digits)

    def _decimal(self) -> SqlType:
        if not self.take("("):
            return SqlType("DECIMAL", size=10)
        start = self.token
        size = self.whole_number()
        scale = self.whole_number() if self.take(",") else 0
        if not 1 <= size <= MOST_DIGITS or scale > size:
            raise self.fault(f"a DECIMAL has 1 to {MOST_DIGITS} digits, and no more after the point", self.since(start))
        self.need(")")
        return SqlType("DECIMAL", size=size, scale=scale)

    def _of_items(self, word: str) -> SqlType:
        self.need("<")
        items = self.listed(self.type)
        if len(items) != (1 if word == "ARRAY" else 2):
            raise self.fault("an ARRAY has one type of elements, a MAP those of key and value", self.token.span)
        self.need(">")
        return SqlType(word, items=items)

    def _fields(self) -> SqlType:
        close = ">" if self.take("<") else ")"
        if close == ")":
            self.need("(")
        fields = self.listed(lambda: (self.name("a field").text, self.type()))
        self.need(close)
        return SqlType("ROW", items=tuple(it for _, it in fields), names=tuple(name for name, _ in fields))
