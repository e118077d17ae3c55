"""The functions of one row.

Their names, types and results are Flink's, as `tests/oracles/sql.jsonl` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from malflow.sql.arithmetic import calculation, moved
from malflow.sql.casts import converted
from malflow.sql.functions.table import Signature
from malflow.sql.text import NOWHERE
from malflow.sql.typed import Strict, Typed, Value
from malflow.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DAYS,
    DOUBLE,
    INT,
    LONGEST,
    MONTHS,
    NULL,
    STRING,
    SqlType,
    common_type,
    decimal,
    timestamp,
)

__all__ = ["INSTEAD", "SCALAR"]

Types = Sequence[Typed]


def _same(arguments: Types) -> SqlType:
    return arguments[0].type


def _varying(arguments: Types) -> SqlType:
    """Return the type of a part of a text."""
    return SqlType("VARCHAR", size=arguments[0].type.size)


def _nullable_text(arguments: Types) -> SqlType:
    return STRING.as_nullable(any(it.type.nullable for it in arguments))


def _number(arguments: Types, name: str) -> int:
    """Return an argument that must be a literal, since a type hangs on it.

    Raises:
        ValueError: if it is not one.
    """
    last = arguments[-1]
    found = last.value if isinstance(last, Value) else None
    if type(found) is int:
        return found
    raise ValueError(f"{name} of a {arguments[0].type.kind} takes a literal number")


# -- texts


def _substring(arguments: Types) -> str:
    """Return the source of a part of a text; with literal places it is a slice."""
    places: list[int] = [it.value for it in arguments[1:] if isinstance(it, Value) and it.value is not None]
    if len(places) < len(arguments) - 1 or places[0] < 1 or places[-1] < 0:
        return "substring({*})"
    return f"{{0}}[{places[0] - 1}:{sum(places) - 1 if len(places) > 1 else ''}]"


def _trim(arguments: Types) -> str:
    method = {"BOTH": "strip", "LEADING": "lstrip", "TRAILING": "rstrip"}[arguments[0].value]  # type: ignore[attr-defined]  # a word
    return f"{{2}}.{method}({{1}})"


def _overlaid(arguments: Types) -> SqlType:
    return SqlType("VARCHAR", size=min(LONGEST, arguments[0].type.size + arguments[1].type.size))


def _sha2(arguments: Types) -> str:
    bits = _number(arguments, "SHA2")
    if bits not in {224, 256, 384, 512}:
        raise ValueError(f"SHA2 takes 224, 256, 384 or 512 bits, not {bits}")
    return f"digest('sha{bits}', {{0}})"


def _digest(algorithm: str, digits: int) -> tuple[Signature, ...]:
    return (Signature("t", SqlType("CHAR", size=digits), f"digest('{algorithm}', {{0}})"),)


_SUBSTRING = (Signature("tii?", _varying, _substring, may_be_null=True),)
_LENGTH = (Signature("t", INT, "len({0})"),)

_TEXTS: dict[str, tuple[Signature, ...]] = {
    "CHAR_LENGTH": _LENGTH,
    "CHARACTER_LENGTH": _LENGTH,
    "UPPER": (Signature("t", _same, "{0}.upper()"),),
    "LOWER": (Signature("t", _same, "{0}.lower()"),),
    "INITCAP": (Signature("t", _same, "initcap({0})"),),
    "SUBSTRING": _SUBSTRING,
    "SUBSTR": _SUBSTRING,
    "LEFT": (Signature("ti", _varying, "{0}[:max({1}, 0)]", may_be_null=True),),
    "RIGHT": (Signature("ti", _varying, "right({0}, {1})", may_be_null=True),),
    "POSITION": (Signature("tt", INT, "({1}.find({0}) + 1)"),),
    "LOCATE": (
        Signature("tt", INT, "({1}.find({0}) + 1)"),
        Signature("tti", INT, "located({*})"),
    ),
    "INSTR": (Signature("tt", INT, "({0}.find({1}) + 1)"),),
    "TRIM": (Signature("utt", lambda it: _varying(it[2:]), _trim),),
    "LTRIM": (Signature("t", _varying, "{0}.lstrip(' ')"), Signature("tt", STRING, "{0}.lstrip({1})")),
    "RTRIM": (Signature("t", _varying, "{0}.rstrip(' ')"), Signature("tt", STRING, "{0}.rstrip({1})")),
    "BTRIM": (Signature("t", STRING, "{0}.strip(' ')"), Signature("tt", STRING, "{0}.strip({1})")),
    "LPAD": (Signature("tit", STRING, "padded({*}, left=True)", may_be_null=True),),
    "RPAD": (Signature("tit", STRING, "padded({*}, left=False)", may_be_null=True),),
    "REPEAT": (Signature("ti", STRING, "({0} * {1})"),),
    "REPLACE": (Signature("ttt", STRING, "{0}.replace({1}, {2})"),),
    "REVERSE": (Signature("t", STRING, "{0}[::-1]", may_be_null=True),),
    "OVERLAY": (Signature("ttii?", _overlaid, "overlay({*})"),),
    "TRANSLATE": (Signature("ttt", STRING, "translated({*})"),),
    "SPLIT_INDEX": (
        Signature("tti", STRING, "split_part({*})", may_be_null=True),
        Signature("tii", STRING, "split_part({*})", may_be_null=True),
    ),
    "ASCII": (Signature("t", INT, "first_byte({0})"),),
    "CHR": (Signature("i", STRING, "character({0})", may_be_null=True),),
    "STARTSWITH": (Signature("tt", BOOLEAN, "{0}.startswith({1})"),),
    "ENDSWITH": (Signature("tt", BOOLEAN, "{0}.endswith({1})"),),
    "CONCAT": (Signature("t+", STRING, "''.join(({*},))"),),
    "CONCAT_WS": (Signature("tt+", _nullable_text, "joined({*})", is_lenient=True),),
    "REGEXP": (Signature("tr", BOOLEAN, "found_in({*})"),),
    "REGEXP_EXTRACT": (Signature("tri?", STRING, "extracted({*})", may_be_null=True),),
    "REGEXP_REPLACE": (Signature("trt", STRING, "all_replaced({*})"),),
    "REGEXP_COUNT": (Signature("tr", INT, "len({1}.findall({0}))", may_be_null=True),),
    "REGEXP_INSTR": (Signature("tr", INT, "place_of({*})", may_be_null=True),),
    "REGEXP_SUBSTR": (Signature("tr", STRING, "extracted({*})", may_be_null=True),),
    "MD5": _digest("md5", 32),
    "SHA1": _digest("sha1", 40),
    "SHA224": _digest("sha224", 56),
    "SHA256": _digest("sha256", 64),
    "SHA384": _digest("sha384", 96),
    "SHA512": _digest("sha512", 128),
    "SHA2": (Signature("ti", SqlType("VARCHAR", size=128), _sha2),),
    "TO_BASE64": (Signature("t", STRING, "to_base64({0})"),),
    "FROM_BASE64": (Signature("t", STRING, "from_base64({0})"),),
    "HEX": (
        Signature("i", STRING, "format({0} & 0xFFFFFFFFFFFFFFFF, 'X')"),
        Signature("t", STRING, "{0}.encode().hex().upper()"),
    ),
    "BIN": (Signature("i", STRING, "format({0} & 0xFFFFFFFFFFFFFFFF, 'b')"),),
    "JSON_VALUE": (Signature("tp", STRING, "json_value({*})", may_be_null=True),),
    "JSON_EXISTS": (Signature("tp", BOOLEAN, "json_exists({*})", may_be_null=True),),
    "SPLIT": (Signature("tt", SqlType("ARRAY", items=(STRING,)), "parts_of({*})"),),
}

# -- numbers


def _rounding(function: str) -> Callable[[Types], str | Typed]:
    """Return the function that binds ROUND or TRUNCATE; the type of a DECIMAL hangs on the digits that it keeps."""

    def bound(arguments: Types) -> str | Typed:
        places = "{1}" if len(arguments) > 1 else "0"
        kind = arguments[0].type
        if kind.kind != "DECIMAL":
            return f"single({function}({{0}}, {places}))" if kind.kind == "FLOAT" else f"{function}({{0}}, {places})"
        kept = _number(arguments, function.upper()) if len(arguments) > 1 else 0
        if kept >= kind.scale:
            return arguments[0]
        result = decimal(kind.size - kind.scale + 1 + max(kept, 0), max(kept, 0))
        text = f"decimal_of({function}({{0}}, {kept}), {result.size}, {result.scale})"
        return Strict(result.as_nullable(kind.nullable), NOWHERE, text, (arguments[0],))

    return bound


def _whole(arguments: Types) -> SqlType:
    """Return the type of FLOOR and CEIL."""
    kind = arguments[0].type
    return SqlType("DECIMAL", size=kind.size) if kind.kind == "DECIMAL" else kind


def _sign(arguments: Types) -> str:
    kind = arguments[0].type
    return f"decimal_of(sign({{0}}), {kind.size}, {kind.scale})" if kind.kind == "DECIMAL" else "sign({0})"


def _extreme(function: str) -> tuple[Signature, ...]:
    """Return GREATEST or LEAST; NaN is larger than all other floats."""
    order = {"FLOAT": ", key=order", "DOUBLE": ", key=order"}
    return (Signature("=+", _same, lambda it: f"{function}(({{*}},){order.get(it[0].type.kind, '')})"),)


def _mod(arguments: Types) -> Typed:
    found = calculation("%", arguments[0], arguments[1], NOWHERE)
    if found is None:
        raise ValueError("MOD takes whole numbers and DECIMALs; CAST to one of them")
    return found


def _real(source: str, takes: str = "d") -> tuple[Signature, ...]:
    return (Signature(takes, DOUBLE, source),)


_NUMBERS: dict[str, tuple[Signature, ...]] = {
    "ABS": (Signature("n", _same, "abs({0})"),),
    "SIGN": (Signature("n", _same, _sign),),
    "ROUND": (Signature("ni?", _same, _rounding("rounded")),),
    "TRUNCATE": (Signature("ni?", _same, _rounding("truncated")),),
    "MOD": (Signature("nn", NULL, _mod),),
    "POWER": _real("power({0}, {1})", "dd"),
    "SQRT": _real("square_root({0})"),
    "EXP": _real("exp({0})"),
    "LN": _real("logarithm({0})"),
    "LOG": (
        Signature("d", DOUBLE, "logarithm({0})"),
        Signature("dd", DOUBLE, "divide_floats(logarithm({1}), logarithm({0}))"),
    ),
    "LOG10": _real("log10({0})"),
    "LOG2": _real("(logarithm({0}) / 0.6931471805599453)"),
    "SIN": _real("sine({0})"),
    "COS": _real("cosine({0})"),
    "TAN": _real("tangent({0})"),
    "COT": _real("divide_floats(1.0, tangent({0}))"),
    "ASIN": _real("asin({0})"),
    "ACOS": _real("acos({0})"),
    "ATAN": _real("atan2({0}, 1.0)"),
    "ATAN2": _real("atan2({0}, {1})", "dd"),
    "SINH": _real("sinh({0})"),
    "COSH": _real("cosh({0})"),
    "TANH": _real("tanh({0})"),
    "DEGREES": _real("degrees({0})"),
    "RADIANS": _real("radians({0})"),
    "PI": _real("3.141592653589793", ""),
    "E": _real("2.718281828459045", ""),
    "GREATEST": _extreme("max"),
    "LEAST": _extreme("min"),
}

# -- times

_DAY = 86_400
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": _DAY, "WEEK": 7 * _DAY}
_MICROSECONDS = {unit: it * 1_000_000 for unit, it in _SECONDS.items()} | {"MILLISECOND": 1_000, "MICROSECOND": 1}
_OF_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_CLOCK = {"HOUR": 24, "MINUTE": 60, "SECOND": 60}


def _units(kind: SqlType) -> int:
    """Return how many units a second has."""
    return int(10**kind.size)


def _extract(arguments: Types) -> str | Typed:
    part, of = _word(arguments[0]), arguments[1]
    if of.type.kind == "DATE" and part not in _CLOCK and part not in {"MILLISECOND", "MICROSECOND", "EPOCH"}:
        return f"date_part('{part}', {{1}})"
    if of.type.kind == "DATE":
        return _with(arguments, converted(of, timestamp(0).as_nullable(of.type.nullable)))
    units = _units(of.type)
    if part in _CLOCK:
        return f"({{1}} // {_SECONDS[part] * units} % {_CLOCK[part]})"
    if part in {"MILLISECOND", "MICROSECOND"}:
        return f"({{1}} % {units} * {1_000_000 // _MICROSECONDS[part]} // {units})"
    if part == "EPOCH":
        return f"({{1}} // {units})"
    if of.type.kind == "TIME":
        raise ValueError(f"a TIME has no {part}")
    return f"date_part('{part}', {{1}} // {_DAY * units})"


def _word(argument: Typed) -> str:
    return str(argument.value)  # type: ignore[attr-defined]  # a word


def _with(arguments: Types, of: Typed) -> Typed:
    """Return EXTRACT of another instant."""
    source = _extract((arguments[0], of))
    if isinstance(source, Typed):
        return source
    return Strict(BIGINT.as_nullable(of.type.nullable), NOWHERE, source, (arguments[0], of))


def _part(part: str) -> tuple[Signature, ...]:
    """Return a function that is EXTRACT of a part."""

    def bound(arguments: Types) -> Typed:
        return _with((Value(SqlType("WORD"), NOWHERE, part),), arguments[0])

    return Signature("x", NULL, bound), Signature("c", NULL, bound)


def _to_unit(*, up: bool) -> Callable[[Types], str]:
    """Return the function that binds FLOOR or CEIL of a time; weeks begin on Sunday, as in Flink."""

    def bound(arguments: Types) -> str:
        kind, unit = arguments[0].type, _word(arguments[1])
        day = 1 if kind.kind == "DATE" else _DAY * _units(kind)
        if unit in _OF_MONTHS and kind.kind != "TIME":
            return f"{'ceil' if up else 'floor'}_to_months({{0}}, {_OF_MONTHS[unit]}, {day})"
        step = _MICROSECONDS[unit] * day // _MICROSECONDS["DAY"] if unit in _MICROSECONDS else 0
        if unit not in _MICROSECONDS or (kind.kind == "TIME" and step >= day):
            raise ValueError(f"a {kind.kind} has no {unit} to begin with")
        if step <= 1:
            return "{0}"
        since = f"({{0}} + {4 * day})" if unit == "WEEK" else "{0}"
        found = f"-(-{since} // {step}) * {step}" if up else f"{since} // {step} * {step}"
        return f"({found} - {4 * day})" if unit == "WEEK" else f"({found})"

    return bound


def _rounds(name: str, *, up: bool) -> tuple[Signature, ...]:
    to_unit = _to_unit(up=up)
    return Signature("n", _whole, f"{name}({{0}})"), Signature("xu", _same, to_unit), Signature("cu", _same, to_unit)


def _added(arguments: Types) -> Typed:
    """Return TIMESTAMPADD; a date becomes an instant if the unit is shorter than a day."""
    unit, count, of = _word(arguments[0]), arguments[1], arguments[2]
    kind, factor = (MONTHS, _OF_MONTHS[unit]) if unit in _OF_MONTHS else (DAYS, _MICROSECONDS[unit])
    if of.type.kind == "DATE" and factor < _MICROSECONDS["DAY"] and kind is DAYS:
        of = converted(of, timestamp(6).as_nullable(of.type.nullable))
    kind = kind.as_nullable(count.type.nullable)
    if isinstance(count, Value) and count.value is not None:
        return moved("+", of, Value(kind, count.span, count.value * factor), NOWHERE)
    return moved("+", of, Strict(kind, count.span, f"({{0}} * {factor})", (count,)), NOWHERE)


def _difference(arguments: Types) -> Typed:
    """Return TIMESTAMPDIFF: whole units from one instant to another."""
    unit, *both = arguments
    kind = common_type([it.type for it in both]) or timestamp(0)
    kind = timestamp(0) if kind.kind == "DATE" else kind
    start, end = (converted(it, kind) for it in both)
    months = _OF_MONTHS.get(_word(unit))
    if months:
        text = f"divide(months_between({{0}}, {{1}}, {kind.size}), {months})"
    else:
        text = f"divide(({{1}} - {{0}}) * {1_000_000 // _units(kind)}, {_MICROSECONDS[_word(unit)]})"
    return Strict(INT.as_nullable(start.type.nullable or end.type.nullable), NOWHERE, text, (start, end))


def _of_epoch(arguments: Types) -> str:
    """Return the source of TO_TIMESTAMP_LTZ of seconds or milliseconds."""
    digits = _number(arguments, "TO_TIMESTAMP_LTZ") if len(arguments) > 1 else 3
    if digits not in {0, 3}:
        raise ValueError("TO_TIMESTAMP_LTZ takes seconds (0) or milliseconds (3)")
    return "integer_of({0}, 64)" if digits else "integer_of({0} * 1000, 64)"


_FORMAT = "'yyyy-MM-dd HH:mm:ss'"


def _formatted(arguments: Types) -> str:
    return f"instant_formatted({{0}}, {arguments[0].type.size}, {{1}})"


_TIMES: dict[str, tuple[Signature, ...]] = {
    "FLOOR": _rounds("floor", up=False),
    "CEIL": _rounds("ceiling", up=True),
    "CEILING": _rounds("ceiling", up=True),
    "EXTRACT": (Signature("ux", BIGINT, _extract), Signature("uc", BIGINT, _extract)),
    **{it: _part(it) for it in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFYEAR": _part("DOY"),
    "DAYOFMONTH": _part("DAY"),
    "DAYOFWEEK": _part("DOW"),
    "DATE_FORMAT": (
        Signature("mf", STRING, _formatted, may_be_null=True),
        Signature("tf", STRING, "instant_formatted(instant_of_text({0}, 6), 6, {1})", may_be_null=True),
    ),
    "TO_DATE": (
        Signature("t", DATE, "tried(date_of_text, {0})", may_be_null=True),
        Signature("tf", DATE, "parsed_date({*})", may_be_null=True),
    ),
    "TO_TIMESTAMP": (
        Signature("t", timestamp(3), f"parsed_instant({{0}}, 3, {_FORMAT})", may_be_null=True),
        Signature("tf", timestamp(3), "parsed_instant({0}, 3, {1})", may_be_null=True),
    ),
    "TO_TIMESTAMP_LTZ": (
        Signature("ni?", timestamp(3, "TIMESTAMP_LTZ"), _of_epoch, may_be_null=True),
        Signature("t", timestamp(3, "TIMESTAMP_LTZ"), "instant_of_text({0}, 3)", may_be_null=True),
        Signature("tf", timestamp(3, "TIMESTAMP_LTZ"), "instant_parsed({0}, 3, {1})", may_be_null=True),
    ),
    "UNIX_TIMESTAMP": (
        Signature("t", BIGINT, "instant_of_text({0}, 0)"),
        Signature("tf", BIGINT, "instant_parsed({0}, 0, {1})"),
    ),
    "FROM_UNIXTIME": (
        Signature("i", STRING, f"instant_formatted({{0}}, 0, {_FORMAT})", may_be_null=True),
        Signature("if", STRING, "instant_formatted({0}, 0, {1})", may_be_null=True),
    ),
    "TIMESTAMPADD": (Signature("uix", NULL, _added),),
    "TIMESTAMPDIFF": (Signature("uxx", NULL, _difference),),
    "CONVERT_TZ": (Signature("ttt", STRING, "in_zone({*})", may_be_null=True),),
}

# -- arrays and maps


def _item(arguments: Types) -> SqlType:
    return arguments[0].type.items[0]


def _listed(at: int) -> Callable[[Types], SqlType]:
    """Return the function of the type of an array of the keys or the values of a map."""
    return lambda it: SqlType("ARRAY", items=(it[0].type.items[at],))


_COLLECTIONS: dict[str, tuple[Signature, ...]] = {
    "CARDINALITY": (Signature("a", INT, "len({0})"), Signature("o", INT, "len({0})")),
    "ELEMENT": (Signature("a", _item, "only({0})", may_be_null=True),),
    "ARRAY_CONTAINS": (
        Signature("a*", lambda it: BOOLEAN.as_nullable(it[0].type.nullable), "holds({*})", is_lenient=True),
    ),
    "ARRAY_POSITION": (Signature("a*", INT, "array_place({*})"),),
    "ARRAY_MAX": (Signature("a", _item, "array_max({0})", may_be_null=True),),
    "ARRAY_MIN": (Signature("a", _item, "array_min({0})", may_be_null=True),),
    "ARRAY_JOIN": (Signature("att?", STRING, "array_joined({*})"),),
    "ARRAY_DISTINCT": (Signature("a", _same, "tuple(dict.fromkeys({0}))"),),
    "ARRAY_REVERSE": (Signature("a", _same, "{0}[::-1]"),),
    "MAP_KEYS": (Signature("o", _listed(0), "tuple({0})"),),
    "MAP_VALUES": (Signature("o", _listed(1), "tuple({0}.values())"),),
}

SCALAR: dict[str, tuple[Signature, ...]] = {**_TEXTS, **_NUMBERS, **_TIMES, **_COLLECTIONS}
"""Each function by its name in capitals, with the ways to call it: the first that fits counts."""

_NOW = "a replay would give another time; use the time of the row, or a parameter as in :now"
_CHANCE = "a replay would give another value; make one of the row, as in MD5(id)"
_OLD = "it needs GROUP BY {}(...) with the same arguments"

INSTEAD: dict[str, str] = {
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME"), _NOW),
    **dict.fromkeys(("CURRENT_ROW_TIMESTAMP", "PROCTIME", "CURRENTTIMEMILLIS", "GETDATE", "SYSDATE"), _NOW),
    **dict.fromkeys(("RAND", "RANDOM", "RAND_INTEGER", "UUID"), _CHANCE),
    "CURRENT_WATERMARK": "WHERE ts <= CURRENT_WATERMARK(ts) keeps the late rows of one table, and has no other form",
    **dict.fromkeys(("TUMBLE_START", "TUMBLE_END", "TUMBLE_ROWTIME"), _OLD.format("TUMBLE")),
    **dict.fromkeys(("HOP_START", "HOP_END", "HOP_ROWTIME"), _OLD.format("HOP")),
    **dict.fromkeys(("SESSION_START", "SESSION_END", "SESSION_ROWTIME"), _OLD.format("SESSION")),
    **dict.fromkeys(("LENGTH", "LEN"), "write CHAR_LENGTH"),
    **dict.fromkeys(("COLLECT", "ARRAY_AGG", "LISTAGG", "STRING_AGG", "GROUP_CONCAT"), "use an aggregator of Python"),
    **dict.fromkeys(("UCASE", "TOUPPER", "UPPERCASE"), "write UPPER"),
    **dict.fromkeys(("LCASE", "TOLOWER", "LOWERCASE"), "write LOWER"),
    **dict.fromkeys(("NVL", "ISNULL"), "write COALESCE"),
    **dict.fromkeys(("IFTHENELSE", "IIF", "DECODE"), "write CASE WHEN ... THEN ... ELSE ... END"),
    **dict.fromkeys(("STRPOS", "CHARINDEX"), "write POSITION('b' IN a)"),
    **dict.fromkeys(("DATE_TRUNC", "TRUNC"), "write FLOOR(ts TO DAY), or TRUNCATE for numbers"),
    **dict.fromkeys(("DATE_PART", "DATEPART"), "write EXTRACT(HOUR FROM ts)"),
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), "write TIMESTAMPDIFF(DAY, a, b)"),
    **dict.fromkeys(("DATEADD", "DATE_ADD"), "write TIMESTAMPADD(DAY, 1, ts)"),
    **dict.fromkeys(("TO_CHAR", "FORMAT_TIMESTAMP", "FORMAT_DATE", "TIMESTAMPTOSTRING"), "write DATE_FORMAT"),
    **dict.fromkeys(("PARSE_TIMESTAMP", "STRINGTOTIMESTAMP", "STRPTIME"), "write TO_TIMESTAMP"),
    **dict.fromkeys(("EXTRACTJSONFIELD", "JSON_EXTRACT", "JSON_QUERY"), "write JSON_VALUE(text, '$.name')"),
    **dict.fromkeys(("CONVERT", "TO_NUMBER", "TO_INT"), "write CAST(x AS INT)"),
    **dict.fromkeys(("SPLIT_PART", "SUBSTRING_INDEX"), "write SPLIT_INDEX, which counts from 0"),
    **dict.fromkeys(("REGEXP_LIKE", "REGEXP_MATCH", "RLIKE"), "write REGEXP"),
    **dict.fromkeys(("ARRAY_LENGTH", "ARRAY_SIZE", "MAP_SIZE"), "write CARDINALITY"),
}
"""Functions that are not here, of Flink and of other dialects, with the reason or what to write."""
