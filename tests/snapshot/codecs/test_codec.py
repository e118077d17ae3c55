"""The states that codecs accept, refuse and restore."""

from __future__ import annotations

import enum
import pickle
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage
from malflow.connectors.files.lines import LinePosition
from malflow.connectors.files.local_file import FileSinkPosition
from malflow.connectors.files.source import FilePosition
from malflow.errors import GraphError, MissingDependency
from malflow.message import MAX, MIN, NoKey
from malflow.names import written_as, written_name
from malflow.operators.ttl import ExpireMap
from malflow.snapshot.codecs import classes
from malflow.snapshot.codecs.classes import declared_class
from malflow.snapshot.codecs.contract import PickleCodec, codec_of
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec
from malflow.snapshot.codecs.msgpack_types import FORMS, RECORD
from malflow.windows import calendar, tumbling


@dataclass(frozen=True)
class Order:
    id: Any
    price: Any = 0
    tags: list[Any] = field(default_factory=list)

    @cached_property
    def total(self) -> int:
        return 7


@dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = field(default=1, init=False)


class Point(NamedTuple):
    x: Any
    y: Any = 0


class Color(enum.StrEnum):
    RED = "r"
    BLUE = "b"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


TYPES: dict[str, type] = {"order": Order, "slotted": Slotted, "point": Point, "color": Color, "right": Right}
CODEC = MsgpackCodec(TYPES)
PICKLE = PickleCodec()


class MyList(list[Any]):
    pass


class MyInt(int):
    pass


class MyDecimal(Decimal):
    pass


class MyOrder(Order):
    pass


zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.builds(
        timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.sampled_from(["CET", "\ud800", "é"])
    ),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), ZoneInfo("Etc/GMT+3")]),
)
texts = st.text(st.characters(exclude_categories=()), max_size=8)
moments = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.integers(0, 1))
clocks = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1))
decimals = st.decimals() | st.sampled_from(["sNaN12", "-0E+7", "1E+999999"]).map(Decimal)
keys = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        texts,
        st.binary(max_size=8),
        moments,
        st.dates(),
        clocks,
        st.timedeltas(),
        st.fractions(),
        st.uuids(),
        st.sampled_from([NoKey, MIN, MAX, Color.RED, Right.READ, Right.READ | Right.WRITE, Right(0)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3), st.builds(Point, inner, inner)
    ),
    max_leaves=4,
)


def expire_map(entries: dict[Any, tuple[Any, int]]) -> ExpireMap[Any, Any, int]:
    expiring: ExpireMap[Any, Any, int] = ExpireMap()
    for key, (value, expiry) in entries.items():
        expiring.insert(key, value, expiry)
    return expiring


def slotted(a: Any, b: Any) -> Slotted:
    value = Slotted(a)
    value.b = b
    return value


values = st.recursive(
    keys | st.floats() | st.complex_numbers() | decimals | st.binary(max_size=8).map(bytearray),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=3),
        st.builds(deque, st.lists(inner, max_size=3), st.sampled_from([None, 0, 3])),
        st.dictionaries(keys, inner, max_size=3).map(Counter),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.builds(defaultdict, st.sampled_from([None, int, list, dict, set]), st.dictionaries(keys, inner, max_size=3)),
        st.builds(Order, inner, inner, st.lists(inner, max_size=2)),
        st.builds(slotted, inner, inner),
        st.builds(Point, inner, inner),
        st.dictionaries(keys, st.tuples(inner, st.integers()), max_size=3).map(expire_map),
        st.builds(DataMessage, keys, inner, inner),
    ),
    max_leaves=12,
)


def facts(value: Any) -> Any:
    """Spell a value so that two are equal exactly if type, content and order are, with NaN equal to itself."""
    kind = type(value)
    if kind in (list, tuple, deque, Point, LinePosition):
        return kind, getattr(value, "maxlen", None), [facts(part) for part in value]
    if kind in (set, frozenset):
        return kind, sorted(map(repr, map(facts, value)))
    if kind in (dict, Counter, OrderedDict, defaultdict):
        pairs = [(facts(key), facts(part)) for key, part in value.items()]
        return kind, getattr(value, "default_factory", None), pairs
    if kind is ExpireMap:
        return kind, facts(value.__getstate__())
    if kind in (Order, Slotted, DataMessage, FilePosition):
        return kind, [facts(getattr(value, name)) for name in kind.__dataclass_fields__]
    if kind in (datetime, time):
        zone = value.tzinfo
        return kind, value.replace(tzinfo=None).isoformat(), value.fold, type(zone), repr(zone)
    return kind, repr(value)


@pytest.mark.parametrize("codec", [PICKLE, CODEC], ids=["pickle", "msgpack"])
@given(value=values)
@pytest.mark.slow
def test_a_value_comes_back_with_its_exact_type_content_and_order(codec: Any, value: Any) -> None:
    assert facts(codec.loads(codec.dumps(value))) == facts(value)


@given(value=st.dictionaries(keys, values, max_size=6))
@pytest.mark.slow
def test_any_key_is_found_again(value: dict[Any, Any]) -> None:
    restored = CODEC.loads(CODEC.dumps(value))

    assert [facts(key) for key in restored] == [facts(key) for key in value]
    assert all(key in restored for key in value)


@pytest.mark.parametrize("codec", [PICKLE, CODEC], ids=["pickle", "msgpack"])
@pytest.mark.parametrize("one", [NoKey, MIN, MAX, Color.RED, None, True])
def test_there_is_one_of_each_in_every_process(codec: Any, one: Any) -> None:
    assert codec.loads(codec.dumps([one]))[0] is one


def test_integers_of_any_size_come_back() -> None:
    for number in (2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 1 << 20_000, -(1 << 20_000)):
        for value in (number, [number, 1], (1, number), {number: (number, "x")}):
            assert CODEC.loads(CODEC.dumps(value)) == value


@pytest.mark.parametrize(
    "value", [bytearray(b"x"), [{"a": bytearray(b"x")}], (bytearray(b"x"),), Order(bytearray(b"x"))]
)
def test_a_bytearray_does_not_become_bytes_wherever_it_is(value: Any) -> None:
    assert facts(CODEC.loads(CODEC.dumps(value))) == facts(value)


def test_positions_of_file_sources_and_messages_need_no_registration() -> None:
    value = [FilePosition(LinePosition(3, 4, True), 1, header=("a", "b")), DataMessage("k", 1, 2)]

    assert facts(MsgpackCodec().loads(MsgpackCodec().dumps(value))) == facts(value)


@pytest.mark.fault("E20")
def test_an_expire_map_goes_on_expiring() -> None:
    entries = CODEC.loads(CODEC.dumps(expire_map({"late": (1, 30), "soon": (2, 10)})))

    assert (entries.earliest, entries.expire(10), entries.get("late")) == (10, [("soon", 2)], 1)


class Hook:
    def __init__(self, key: str) -> None:
        self.key = key

    def __reduce__(self) -> Any:
        return str, (self.key,)


class Zone(tzinfo):
    pass


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"orders": [1, 2, 3, Order(1, MyDecimal(2))]}, "['orders'][3].price: "),
        ({"a": (1, MyList())}, "['a'][1]: "),
        (Point(1, MyInt(2)), ".y: "),
        (MyOrder(1), "the value: "),
        ([Hook("x")], "[0]: "),
        (memoryview(b"x"), "the value: "),
        ({memoryview(b"x"): 1}, " key: "),
        (Counter({1: memoryview(b"x")}), "[1]: "),
        ([msgpack.ExtType(1, b"\x01")], "[0]: "),
        ([msgpack.Timestamp(1)], "[0]: "),
        ({"d": defaultdict(lambda: 1)}, "['d']: "),
        ([datetime(2020, 1, 1, tzinfo=Zone())], "[0]: "),
        ({Order: 1}, " key: "),
        ({frozenset({MyInt(1)})}, " element element: "),
        (expire_map({"k": (MyList(), 1)}), "['k'][0]: "),
        (len, "the value: "),
    ],
)
def test_object_that_is_no_plain_data_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(TypeError) as refused:
        CODEC.dumps(value)

    assert str(refused.value).startswith(path)


def test_a_class_that_could_be_registered_is_told_so() -> None:
    with pytest.raises(TypeError, match=r"Order can't be written; register its class: MsgpackCodec\(\{'name': ...\}\)"):
        MsgpackCodec().dumps(Order(1))


def test_cached_properties_are_ignored_and_other_attributes_are_not() -> None:
    cached = Order(1)
    assert cached.total == 7
    odd = Order(1)
    odd.__dict__["extra"] = 1

    assert CODEC.loads(CODEC.dumps(cached)) == cached
    with pytest.raises(TypeError, match="'order' has an attribute 'extra' that is not a field"):
        CODEC.dumps(odd)


def test_state_that_contains_itself_is_refused_quickly() -> None:
    ring: list[Any] = []
    ring.extend([ring] * 1000)
    loop: dict[str, Any] = {}
    loop["a"] = (loop,)

    for value in (ring, loop, [loop]):
        with pytest.raises(TypeError, match="nested too deeply, or contains itself"):
            CODEC.dumps(value)


def nested(depth: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.fault("E16")
@pytest.mark.parametrize(
    ("wrap", "fits", "exceeds"),
    [
        (lambda inner: [inner], 400, 401),
        (lambda inner: {"a": inner}, 400, 100_000),
        (lambda inner: (inner,), 100, 102),
        (Order, 100, 50_000),
        (lambda inner: ([[[inner]]],), 95, 110),
        (lambda inner: ([[[[[[[[[inner]]]]]]]]],), 36, 60),
    ],
)
@pytest.mark.slow
def test_nesting_is_bounded_and_what_can_be_written_can_be_read(wrap: Any, fits: int, exceeds: int) -> None:
    deep = nested(fits, wrap)
    outcome: list[bool] = []

    def check() -> None:  # from deep in a stack, as user code may be
        outcome.append(CODEC.dumps(CODEC.loads(CODEC.dumps(deep))) == CODEC.dumps(deep))

    thread = threading.Thread(target=check)
    thread.start()
    thread.join()

    assert outcome == [True]
    with pytest.raises(TypeError, match="nested too deeply"):
        CODEC.dumps(nested(exceeds, wrap))


@given(data=st.binary(max_size=60))
def test_reading_noise_gives_data_or_an_error_that_says_so(data: bytes) -> None:
    with suppress(ValueError, TypeError):
        CODEC.loads(data)


@given(value=values, data=st.data())
@pytest.mark.slow
def test_reading_damaged_data_gives_data_or_an_error_that_says_so(value: Any, data: st.DataObject) -> None:
    raw = bytearray(CODEC.dumps(value))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    with suppress(ValueError, TypeError):
        CODEC.loads(bytes(raw))


def extension(code: int, plain: Any) -> bytes:
    return bytes(msgpack.packb(msgpack.ExtType(code, msgpack.packb(plain))))


@pytest.mark.parametrize(
    "data",
    [
        extension(99, 1),
        extension(1, 5),
        extension(1, "ab"),
        extension(3, {1: 2}),
        extension(4, 10**12),
        extension(5, "1"),
        extension(11, 1),
        extension(8, 10**9),
        extension(12, [1, 0]),
        extension(13, b"short"),
        extension(16, ["eval", {}]),
        extension(18, "Key"),
        extension(7, [2020, 1, 1, 0, 0, 0, 0, 0, "../../etc/passwd"]),
        extension(7, [2020, 1, 1, 0, 0, 0, 0, 0, "os.path"]),
        extension(7, [2020, 13, 1, 0, 0, 0, 0, 0, None]),
        extension(19, ["k", 1]),
        extension(19, ["k", 1, 1, "l", 1, "unordered"]),
        extension(2, [[1]]),
        extension(RECORD, ["order", "id"]),
        extension(RECORD, ["color"]),
        extension(RECORD, []),
        extension(RECORD, [["order"]]),
        b"\x81\x90\x01",
        b"\xdd\xff\xff\xff\xff" * 1000 + b"\0" * 10_000,
        b"\x91" * 1100 + b"\x01",
        b"\x01\x01",
        b"",
    ],
)
def test_crafted_data_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        CODEC.loads(data)


@pytest.mark.slow
def test_lists_that_are_not_there_take_no_memory() -> None:
    program = """
import resource
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec

codec = MsgpackCodec()
size = 200_000
data = (b"\\xdd" + size.to_bytes(4, "big")) * 500 + bytes(size - 1)
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))  # made one by one they would take 800 MB
try:
    codec.loads(data)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.endswith("it is truncated\n")


def test_crafted_nesting_is_refused_before_it_takes_the_stack() -> None:
    data = b"\x01"
    for _ in range(150):
        data = bytes(msgpack.packb(msgpack.ExtType(1, b"\x91" + data)))

    with pytest.raises(ValueError, match="nested too deeply"):
        CODEC.loads(data)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "os.path", "a//b", "a/", "", "a" * 65, "UTC\n"])
def test_invalid_name_of_a_time_zone_is_not_looked_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(key: str) -> None:
        raise AssertionError(key)

    monkeypatch.setattr("malflow.snapshot.codecs.msgpack_types.ZoneInfo", look_up)
    with pytest.raises(ValueError, match="is not the name of a time zone"):
        CODEC.loads(extension(9, [0, 0, 0, 0, 0, name]))


@pytest.mark.slow
def test_reading_imports_opens_and_executes_nothing_whatever_the_data_says() -> None:
    program = """
import sys
import msgpack
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec

codec = MsgpackCodec()
pack = msgpack.packb
crafted = [
    data
    for name in ("os.system", "builtins.eval", "subprocess", "antigravity", "../x", "__main__.codec")
    for data in (
        *(pack(msgpack.ExtType(32, pack(facts))) for facts in ([name, "a", 1], [name, []], [name, "__class__", name])),
        pack(msgpack.ExtType(16, pack([name, {}]))),
        pack(msgpack.ExtType(18, pack(name))),
        pack(msgpack.ExtType(7, pack([2020, 1, 1, 0, 0, 0, 0, 0, name]))),
        pack({"__class__": name, "py/object": name, "__reduce__": [name]}),
    )
]
events = []
zones = "tzdata"  # the package in which names of time zones are looked up, where it is installed
try:
    codec.loads(pack(msgpack.ExtType(7, pack([2020, 1, 1, 0, 0, 0, 0, 0, "no_zone"]))))  # looks for the package
except ValueError:
    pass
sys.addaudithook(lambda event, facts: watching and zones not in str(facts) and events.append((event, facts)))
watching = True
refused = 0
for data in crafted:
    try:
        codec.loads(data)
    except (ValueError, TypeError):
        refused += 1
watching = False
print(refused, events)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "36 []\n"


def renamed(name: str, *fields: Any) -> type:
    return make_dataclass(name, fields)


@pytest.mark.fault("G7")
def test_a_class_that_was_renamed_or_moved_keeps_its_name() -> None:
    new = renamed("Purchase", ("id", int), ("price", int), ("tags", list))

    restored = MsgpackCodec({"order": new}).loads(CODEC.dumps(Order(1, 2, ["t"])))

    assert restored == new(1, 2, ["t"])


def test_class_of_several_names_is_written_under_the_first() -> None:
    codec = MsgpackCodec({"new": Order, "order": Order})

    assert codec.loads(CODEC.dumps(Order(1))) == Order(1)
    assert b"new" in codec.dumps(Order(1))


@pytest.mark.fault("G6")
def test_a_field_that_was_added_takes_its_default_each_time_anew() -> None:
    old = MsgpackCodec({"order": renamed("Order", ("id", int))})
    data = old.dumps([old._types["order"](1), old._types["order"](2)])

    first, second = CODEC.loads(data)

    assert (first, second) == (Order(1), Order(2))
    assert first.tags is not second.tags


def test_added_field_without_a_default_is_an_error() -> None:
    data = CODEC.dumps(Order(1))
    codec = MsgpackCodec({"order": renamed("Order", ("id", int), ("price", int), ("tags", list), ("due", int))})

    with pytest.raises(TypeError, match=r"'order' .* was written without field 'due'; give it a default"):
        codec.loads(data)


@pytest.mark.fault("G6")
def test_a_field_that_was_removed_is_an_error_that_names_it() -> None:
    data = CODEC.dumps([Order(1), Point(1, 2)])
    codec = MsgpackCodec({"order": renamed("Order", ("id", int), ("tags", list)), "point": Point})

    with pytest.raises(TypeError, match=r"'order' .* has no field 'price', which was written"):
        codec.loads(data)


def test_fields_of_a_named_tuple_may_change_their_order_and_be_added() -> None:
    class Spot(NamedTuple):
        y: int
        x: int
        z: int = 9

    restored = MsgpackCodec({"point": Spot}).loads(CODEC.dumps(Point(1, 2)))

    assert restored == Spot(2, 1, 9)
    assert type(restored) is Spot


def test_a_member_that_an_enum_has_no_more_is_an_error_that_names_it() -> None:
    class Shade(enum.Enum):
        BLUE = 1

    with pytest.raises(TypeError, match=r"enum 'color' .* has no member 'RED'"):
        MsgpackCodec({"color": Shade}).loads(CODEC.dumps(Color.RED))


def test_record_of_an_unregistered_class_is_an_error_with_a_way_out() -> None:
    with pytest.raises(TypeError, match=r"there is a record of type 'order'; register its class"):
        MsgpackCodec().loads(CODEC.dumps(Order(1)))


@dataclass
class WithSecretSlot(MyList):
    a: int = 0


class SlotBase:
    __slots__ = ("hidden",)


@dataclass
class WithSlot(SlotBase):
    a: int = 0


@dataclass
class IsError(Exception):
    a: int = 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("malflow.Own", Order),
        ("", Order),
        ("x" * 101, Order),
        (1, Order),
        ("a", dict),
        ("a", Order(1)),
        ("a", "Order"),
        ("a", Hook),
        ("a", WithSecretSlot),
        ("a", WithSlot),
        ("a", IsError),
    ],
)
def test_class_with_hidden_state_or_no_name_cannot_be_registered(name: Any, kind: Any) -> None:
    with pytest.raises(GraphError):
        MsgpackCodec({name: kind})


def test_a_codec_travels_by_the_classes_it_has() -> None:
    travelled = pickle.loads(pickle.dumps(CODEC))

    assert travelled.loads(CODEC.dumps(Order(1))) == Order(1)
    assert repr(travelled) == "MsgpackCodec(order, slotted, point, color, right)"


def test_codes_and_names_never_change_their_meaning() -> None:
    codes = {form.code: form.kind.__name__ for form in FORMS if form.code != 18}

    assert codes == {
        1: "tuple",
        2: "set",
        3: "frozenset",
        4: "bytearray",
        5: "int",
        6: "complex",
        7: "datetime",
        8: "date",
        9: "time",
        10: "timedelta",
        11: "Decimal",
        12: "Fraction",
        13: "UUID",
        14: "deque",
        15: "Counter",
        16: "defaultdict",
        17: "OrderedDict",
        19: "ExpireMap",
    }
    assert RECORD == 32


OWN = ["malflow.DataMessage", "malflow.FilePosition", "malflow.FileSinkPosition", "malflow.LinePosition"]


@pytest.mark.parametrize("name", OWN)
def test_classes_of_malflow_keep_their_names(name: str) -> None:
    kind = declared_class(name)
    assert kind is not None
    assert written_name(kind) == name


UNDECLARED = ["malflow.CsvSource", "malflow.import_module", "malflow.Gone", "malflow.", "DataMessage"]


@pytest.mark.parametrize("name", UNDECLARED)
def test_names_that_no_class_declares_are_not_read(name: str) -> None:
    assert declared_class(name) is None
    record = msgpack.ExtType(RECORD, msgpack.packb([name, "key", 1]))
    with pytest.raises(TypeError, match="there is a record of type"):
        CODEC.loads(msgpack.packb(record))


class Derived(DataMessage[str, int, int]):
    """A class of a user."""


@written_as("malflow.LinePosition")
@dataclass
class Posing:
    """Another, which declares a name of malflow's own."""

    offset: int = 0


@pytest.mark.parametrize("value", [Derived("a", 1, 2), Posing()])
def test_only_the_class_itself_has_its_declared_name(value: object) -> None:
    with pytest.raises(TypeError, match="can't be written; register its class"):
        CODEC.dumps(value)


@pytest.mark.slow
def test_a_position_is_read_where_no_source_was_imported() -> None:
    data = CODEC.dumps(LinePosition(7, 1))
    code = (
        "import sys; from malflow.snapshot import MsgpackCodec; "
        "assert 'malflow.connectors.files.lines' not in sys.modules; "
        f"print(MsgpackCodec().loads({data!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "LinePosition(offset=7, line=1, open_line=False, digest=None, head=None, ended=False)\n"


GOLDEN = bytes.fromhex(
    "de0011a57475706c65d6019301c0c3a46c6f6e67c70b05c409400000000000000000a26174c7150799cd07ea0b150a3b33070092ced693a4"
    "00a3434554a47a6f6e65c71409960102000001ad4575726f70652f4265726c696ea6616d6f756e74c7050ba4312e3530a5726174696fc703"
    "0c920103a26964c7120dc41000000000000000000000000000000007a3736574d5029103a3646179c70508ce000b4a65a47370616ed60a93"
    "ff0005a56f72646572c73e2097a56f72646572a2696401a57072696365c71a2095a5706f696e74a17802a179c70b2092a5636f6c6f72a352"
    "4544a47461677391d72092a5726967687403a7656e7472696573c7051393a16b0102a4656e647393c70612a54e6f4b6579d612a34d494ed6"
    "12a34d4158a474657874a3eda080a372617793c40162c70304c40161c7130692cb0000000000000000cb3ff0000000000000a46d616e7995"
    "d60e92910102d60f81a16101c706119291a1629101c7091092a46c697374810190d5039101a8706f736974696f6ec76e209bb46d616c666c"
    "6f772e46696c65506f736974696f6ea26174c72f2097b46d616c666c6f772e4c696e65506f736974696f6ea66f666673657401a46c696e65"
    "02a96f70656e5f6c696e65c2a5696e64657803a7736b697070656400a966697273745f626164c0a6686561646572c0"
)


def test_data_of_the_first_version_is_read_for_ever() -> None:
    value = {
        "tuple": (1, None, True),
        "long": 2**70,
        "at": datetime(2026, 11, 21, 10, 59, 51, 7, tzinfo=timezone(timedelta(hours=1), "CET")),
        "zone": time(1, 2, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        "amount": Decimal("1.50"),
        "ratio": Fraction(1, 3),
        "id": UUID(int=7),
        "set": {3},
        "day": date(2026, 11, 21),
        "span": timedelta(days=-1, microseconds=5),
        "order": Order(1, Point(2, Color.RED), [Right.READ | Right.WRITE]),
        "entries": expire_map({"k": (1, 2)}),
        "ends": [NoKey, MIN, MAX],
        "text": "\ud800",
        "raw": [b"b", bytearray(b"a"), 1j],
        "many": [deque([1], 2), Counter("a"), OrderedDict(b=1), defaultdict(list, {1: []}), frozenset({1})],
        "position": FilePosition(LinePosition(1, 2, False), 3),
    }

    assert facts(CODEC.loads(GOLDEN)) == facts(value)


def test_without_msgpack_the_extra_is_named_when_the_codec_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)

    with pytest.raises(MissingDependency, match=r"pip install 'malflow\[msgpack\]'"):
        codec_of("msgpack")


@pytest.mark.slow
def test_the_codec_works_without_the_compiled_library() -> None:
    program = """
from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec
import msgpack, pickle, sys
assert msgpack.Packer.__module__ == "msgpack.fallback"
codec = MsgpackCodec()
value = {(1, "a"): [2**70, b"x", bytearray(b"y"), {1.5: None}], "\\ud800": ({1}, [True])}
sys.stdout.write(codec.dumps(value).hex())
restored = codec.loads(codec.dumps(value))
assert repr(restored) == repr(value)
"""
    environment = {"MSGPACK_PUREPYTHON": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    value = {(1, "a"): [2**70, b"x", bytearray(b"y"), {1.5: None}], "\ud800": ({1}, [True])}

    assert done.stdout == CODEC.dumps(value).hex()


def test_pickle_refuses_what_it_can_not_find_by_name_and_says_what_to_do() -> None:
    class Local:
        pass

    for value in (lambda: 1, Local, Local(), [{"a": Local()}]):
        with pytest.raises(pickle.PicklingError, match=r"by reference: define .* at the top level of a module"):
            PICKLE.dumps(value)


def test_error_of_a_class_while_it_is_pickled_is_raised() -> None:
    class Sulky:
        def __reduce__(self) -> Any:
            raise AttributeError("not today")

    with pytest.raises(AttributeError, match=r"^not today$"):
        PICKLE.dumps(Sulky())


def test_pickles_hold_no_code_so_that_classes_may_change() -> None:
    data = PICKLE.dumps(Order(1))

    assert data[:2] == b"\x80\x05"
    assert b"Order" in data
    assert b"total" not in data


@pytest.mark.fault("G13")
def test_a_codec_is_found_by_name_or_given() -> None:
    assert (codec_of("pickle").name, codec_of("pickle").executes) == ("pickle", True)
    assert (codec_of("msgpack").name, codec_of("msgpack").executes) == ("msgpack", False)
    assert codec_of(CODEC) is CODEC


class Nameless:
    name = ""
    executes = False

    def dumps(self, value: Any) -> bytes:
        return b""

    def loads(self, data: bytes) -> Any:
        return data


@pytest.mark.parametrize(
    ("given_codec", "text"),
    [
        ("pikle", "did you mean 'pickle'?"),
        ("msgpak", "did you mean 'msgpack'?"),
        ("yaml", "got 'yaml'"),
        (MsgpackCodec, r"write MsgpackCodec\(...\)"),
        (None, "dumps"),
        (pickle, "needs a name"),
        (Nameless(), "needs a name"),
    ],
)
def test_invalid_codec_is_refused(given_codec: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text.replace("?", r"\?")):
        codec_of(given_codec)


@pytest.mark.parametrize("old", sorted(classes._MOVED_WHOLE))
def test_modules_that_moved_are_where_snapshots_are_sent(old: str) -> None:
    module = import_module(classes._MOVED_WHOLE[old])
    for name in module.__all__:
        assert classes.find(old, name) is getattr(module, name)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (
            b"\x80\x05\x95u\x00\x00\x00\x00\x00\x00\x00\x8c\x15malflow.sources.files\x94\x8c\x0cFilePosition\x94\x93"
            b"\x94)\x81\x94]\x94(\x8c\x15malflow.sources.lines\x94\x8c\x0cLinePosition\x94\x93\x94(K\x03K\x04\x88Nt\x94\x81"
            b"\x94K\x01K\x00N\x8c\x01a\x94\x8c\x01b\x94\x86\x94eb.",
            FilePosition(LinePosition(3, 4, True), 1, header=("a", "b")),
        ),
        (
            b"\x80\x05\x95F\x00\x00\x00\x00\x00\x00\x00\x8c\x18malflow.sinks.local_file\x94\x8c\x10FileSinkPosition"
            b"\x94\x93\x94\x8c\x07out.txt\x94K\x05\x8c\x02ab\x94\x87\x94\x81\x94.",
            FileSinkPosition("out.txt", 5, "ab"),
        ),
        (
            b"\x80\x05\x95,\x00\x00\x00\x00\x00\x00\x00\x8c\x0cmalflow.rows\x94\x8c\x04Rows\x94\x93\x94}\x94"
            b"\x8c\x01a\x94]\x94(K\x01K\x02es\x85\x94R\x94.",
            [{"a": 1}, {"a": 2}],
        ),
        (
            b"\x80\x05\x95\x5c\x00\x00\x00\x00\x00\x00\x00\x8c\x0fmalflow.windows\x94\x8c\x0bTimeWindows\x94\x93\x94)"
            b"\x81\x94]\x94(\x8c\rmalflow.panes\x94\x8c\x0cRegularPanes\x94\x93\x94)\x81\x94]\x94(K\x05K\x00ebK\x01K"
            b"\x01eb.",
            tumbling(5),
        ),
        (
            b"\x80\x05\x95\xa0\x00\x00\x00\x00\x00\x00\x00\x8c\x0fmalflow.windows\x94\x8c\x0bTimeWindows\x94\x93\x94)"
            b"\x81\x94]\x94(\x8c\rmalflow.panes\x94\x8c\rCalendarPanes\x94\x93\x94h\x05\x8c\x04Unit\x94\x93\x94\x8c"
            b"\x03day\x94\x85\x94R\x94\x8c\x08datetime\x94\x8c\x08timezone\x94\x93\x94h\r\x8c\ttimedelta\x94\x93\x94K"
            b"\x00K\x00K\x00\x87\x94R\x94\x85\x94R\x94\x86\x94R\x94K\x01K\x01eb.",
            calendar("day"),
        ),
    ],
    ids=["FilePosition", "FileSinkPosition", "Rows", "RegularPanes", "CalendarPanes"],
)
@pytest.mark.parametrize("migrating", [False, True])
def test_values_pickled_before_their_classes_moved(data: bytes, value: object, migrating: bool) -> None:
    assert PickleCodec().reader((), migrating=migrating)(data) == value
