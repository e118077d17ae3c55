"""Errors of user code while the dataflow runs, as the user sees them."""

from __future__ import annotations

import pickle
import re
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from malflow import DataMessage, NoKey, OperatorError, SingleThreadRuntime, SparkRuntime, StreamProvider
from malflow.sinks import StatefulSink, StatelessSink, VecSink
from malflow.sources import StatelessSource
from tests.conformance.dataflow import sis, values_of
from tests.kit.log import Log


def failure(build: Any, items: Any = (1, 0, 2), *, runtime: Any = SingleThreadRuntime, **options: Any) -> OperatorError:
    """Run a stream that must fail, and return the error."""
    with pytest.raises(OperatorError) as caught:
        runtime(lambda provider: build(provider.new_stream().source("source", sis(list(items)))), **options).execute()
    return caught.value


def divide(value: int) -> float:
    return 1 / value


class Dividing:
    def on_data(self, msg: Any, *state_and_output: Any) -> Any:
        state = 1 / msg.value
        return state if len(state_and_output) > 1 else None


@pytest.mark.fault("E1")
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map("op", lambda v: 1 / v),
        lambda s: s.filter("op", lambda v: 1 / v),
        lambda s: s.filter_map("op", lambda v: 1 / v),
        lambda s: s.filter_map_many("op", lambda values: [1 / v for v in values]),
        lambda s: s.map("list", lambda v: (1 / v for _ in [v])).flatten("op"),
        lambda s: s.inspect("op", lambda m, ctx: 1 / m.value),
        lambda s: s.stateless_op("op", Dividing()),
        lambda s: s.key_local("op", lambda m: 1 / m.value),
        lambda s: s.key_distribute("op", lambda m: 1 / m.value),
        lambda s: s.key_distribute("op", lambda m: m.value, lambda key, workers: 1 // key * 0),
        lambda s: s.key_local("k", lambda m: m.value).stateful_map("op", lambda k, v, state: (1 / v, state)),
        lambda s: s.key_local("k", lambda m: m.value).stateful_op("op", Dividing()),
        lambda s: s.key_local("k", lambda m: m.value).ttl_map("op", lambda k, v, t, e: (1 / v, e)),
        lambda s: s.assign_timestamps("op", lambda m: 1 / m.value).generate_epochs("e", lambda m, p: None),
        lambda s: s.generate_epochs("op", lambda m, p: 1 / m.value),
        lambda s: s.split("op", lambda m, outputs: outputs.__setitem__(0, 1 / m.value), 2),
        lambda s: s.sink("op", StatelessSink(FailingSink())),
        lambda s: s.sink("op", StatefulSink(FailingParts())),
    ],
)
def test_the_operator_the_record_and_the_function_are_named(build: Any, any_parallelism: Any) -> None:
    error = failure(build, runtime=any_parallelism)
    assert error.operator == "op"
    assert error.has_record
    assert error.timestamp == 1
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert str(error).startswith("operator 'op' failed at key ")
    assert re.search(r"timestamp 1: ZeroDivisionError: .* by zero", str(error))
    assert re.search(r"\(.*test_failures\.py:\d+\)", error.callback or "")


class FailingSink:
    def sink(self, msg: Any) -> None:
        1 / msg.value


class FailingParts:
    def assign_part(self, msg: Any) -> Any:
        return 1 / msg.value

    def build_part(self, part: Any, state: Any) -> Any:
        return FailingSink()


def test_key_and_value_are_attributes(runtime: Any) -> None:
    keyed = lambda s: s.key_local("k", lambda m: f"k{m.value}").map("op", lambda v: 1 / v)  # noqa: E731
    error = failure(keyed, runtime=runtime)
    assert (error.key, error.value, error.timestamp) == ("k0", 0, 1)
    assert failure(lambda s: s.map("op", divide), runtime=runtime).key is NoKey


def test_the_record_at_fault_is_found_after_many(runtime: Any) -> None:
    items = [1] * 20_000
    items[12_345] = 0
    error = failure(lambda s: s.map("op", divide), items, runtime=runtime)
    assert error.timestamp == 12_345
    assert "divide" in (error.callback or "")


def test_an_operator_error_travels_between_processes() -> None:
    error = failure(lambda s: s.map("op", divide))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.operator, copy.value, copy.callback) == (str(error), "op", 0, error.callback)


@pytest.mark.parametrize(
    ("mapper", "got"),
    [
        (lambda k, v, s: v, "cannot unpack non-iterable int"),
        (lambda k, v, s: None, "cannot unpack non-iterable NoneType"),
        (lambda k, v, s: (v,), "not enough values to unpack"),
        (lambda k, v, s: (v, s, s), "too many values to unpack"),
    ],
)
def test_a_mapper_of_the_wrong_shape_is_told_the_right_one(mapper: Any, got: str) -> None:
    error = failure(lambda s: s.key_local("k", lambda m: m.value).stateful_map("op", mapper))
    assert re.search(rf"value 1, timestamp 0: it must return \(value, state\); {got}", str(error))
    assert "test_failures.py" in (error.callback or "")


def test_a_ttl_mapper_returns_an_expire_map() -> None:
    error = failure(lambda s: s.key_local("k", lambda m: m.value).ttl_map("op", lambda k, v, t, e: (v, {})))
    assert "it must return (value, ExpireMap | None)" in str(error)


def test_an_error_like_that_of_a_shape_in_user_code_is_left_as_it_is() -> None:
    def mapper(key: Any, value: Any, state: Any) -> Any:
        a, b = value
        return a, b

    error = failure(lambda s: s.key_local("k", lambda m: 1).stateful_map("op", mapper))
    assert "it must return" not in str(error)
    assert "TypeError: cannot unpack" in str(error)


unusable_keys = pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "None cannot be used as a key"),
        (float("nan"), "NaN does not equal itself"),
        (Decimal("nan"), "NaN does not equal itself"),
        (("a", float("nan")), "NaN does not equal itself"),
        ([1], "has no stable hash"),
        ({}, "has no stable hash"),
        (("a", [1]), "has no stable hash"),
        (object(), "has no stable hash"),
        (lambda: 0, "has no stable hash"),
    ],
)


@pytest.mark.fault("E14")
@unusable_keys
def test_an_unusable_key_is_refused_with_operator_and_key(any_parallelism: Any, key: Any, reason: str) -> None:
    error = failure(lambda s: s.key_distribute("by", lambda m: key if m.value == 0 else 1), runtime=any_parallelism)
    here = any_parallelism.func is SingleThreadRuntime
    assert error.key is key if here else repr(error.key)[:5] == repr(key)[:5]  # from elsewhere it comes as a copy
    _assert_tells_of_key(error, reason)


@unusable_keys
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_unusable_key_of_a_worker_of_its_own_is_refused_too(parallelism: int, key: Any, reason: str) -> None:
    error = failure(lambda s: s.key_local("by", lambda m: key if m.value == 0 else 1), parallelism=parallelism)
    assert error.key is key
    _assert_tells_of_key(error, reason)


def _assert_tells_of_key(error: OperatorError, reason: str) -> None:
    assert error.operator == "by"
    assert "its key is invalid" in str(error)
    assert reason in str(error)
    assert "test_failures.py" in str(error)


@pytest.mark.parametrize("answer", [-1, 3, "0", None, 1.5])
def test_a_partitioner_answers_one_of_the_workers(any_parallelism: Any, answer: Any) -> None:
    error = failure(
        lambda s: s.key_distribute("by", lambda m: m.value, lambda k, workers: answer), runtime=any_parallelism
    )
    parallelism = any_parallelism.keywords["parallelism"]
    assert error.operator == "by"
    assert error.key == 1
    assert f"the partitioner returned {answer!r}; it must return one of {list(range(parallelism))}" in str(error)
    assert "test_failures.py" in str(error)


@pytest.mark.slow
def test_debug_finds_a_message_that_is_kept_by_a_key_function() -> None:
    kept: list[Any] = []
    error = failure(lambda s: s.key_local("by", lambda m: kept.append(m) or 1), debug=True)
    assert "kept its message" in str(error)


@pytest.mark.slow
def test_debug_finds_a_message_that_is_kept_by_an_epoch_generator() -> None:
    kept: list[Any] = []
    error = failure(lambda s: s.generate_epochs("op", lambda m, _: kept.append(m)), debug=True)
    assert "kept its message" in str(error)


def test_a_key_that_was_changed_on_its_worker_gets_no_state_there() -> None:
    def change_key(msg: Any, output: Any) -> None:
        output.send(DataMessage(f"changed {msg.key}", msg.value, msg.timestamp))

    def build(stream: Any) -> Any:
        keyed = stream.key_distribute("k", lambda m: m.value).stateless_op("change", change_key)
        return keyed.stateful_map("op", lambda k, v, s: (v, v))

    error = failure(build, range(20), parallelism=3)
    assert error.operator == "op"
    assert re.search(r"key 'changed \d+' reached worker \d but belongs to worker \d", str(error))
    assert values_of(SingleThreadRuntime, range(20), build) == list(range(20))


def test_output_takes_messages_only() -> None:
    error = failure(lambda s: s.stateless_op("op", lambda msg, output: output.send(msg.value)))
    assert "output.send takes a DataMessage(key, value, timestamp); got 1" in str(error)


def test_split_flags_are_set_and_not_added() -> None:
    error = failure(lambda s: s.split("op", lambda msg, outputs: outputs.append(True), 2))
    assert "changed the number of flags from 2 to 3" in str(error)


@pytest.mark.parametrize("hook", ["on_epoch", "on_schedule"])
def test_a_hook_that_raises_is_named(runtime: Any, hook: str) -> None:
    def broken(*_: Any) -> None:
        raise LookupError("gone")

    logic = type("Logic", (), {"on_data": lambda self, msg, state, output: 1, hook: broken})()
    error = failure(lambda s: s.key_local("k", lambda m: 1).stateful_op("op", logic), runtime=runtime)
    at = "epoch MAX" if hook == "on_epoch" else "the start of a tick"
    assert re.fullmatch(
        rf"operator 'op' failed at {at}: LookupError: gone; in .*broken \(.*test_failures.py:\d+\)", str(error)
    )
    assert not error.has_record


def test_an_inspector_of_the_frontier_that_raises_is_named(runtime: Any) -> None:
    error = failure(lambda s: s.inspect_frontier("op", lambda epoch, ctx: 1 / 0), runtime=runtime)
    assert str(error).startswith("operator 'op' failed at epoch MAX: ZeroDivisionError")


class Part:
    """A partition whose methods fail as told."""

    def __init__(self, failing: str) -> None:
        self.failing = failing
        self.left = 2

    def poll(self) -> Any:
        self.fail("poll")
        self.left -= 1
        return self.left, 0

    def is_finished(self) -> bool:
        self.fail("is_finished")
        return self.left <= 0

    def suspend(self) -> None:
        self.fail("suspend")

    def fail(self, method: str) -> None:
        if method == self.failing:
            raise LookupError(f"no {method}")


class Parts(Part):
    def list_parts(self) -> Any:
        self.fail("list_parts")
        return ["a", "a"] if self.failing == "twice" else [["a"]] if self.failing == "key" else ["a"]

    def build_part(self, part: Any) -> Any:
        self.fail("build_part")
        return Part(self.failing)


@pytest.mark.fault("F1")
@pytest.mark.parametrize("method", ["list_parts", "build_part", "poll", "is_finished", "suspend"])
def test_a_source_that_raises_is_named(runtime: Any, method: str) -> None:
    with pytest.raises(
        OperatorError, match=f"operator 'letters' failed.*: LookupError: no {method}; in Part.fail"
    ) as caught:
        runtime(
            lambda provider: provider.new_stream().source("letters", StatelessSource(Parts(method)))  # type: ignore[arg-type]
        ).execute()
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("what", "message"), [("twice", "it lists part 'a' more than once"), ("key", "no stable hash")]
)
def test_parts_are_usable_keys_listed_once(what: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        SingleThreadRuntime(
            lambda provider: provider.new_stream().source("letters", StatelessSource(Parts(what)))  # type: ignore[arg-type]
        ).execute()


class Closing(VecSink[Any, Any, Any]):
    """A sink that tells when it is flushed and closed, and may fail then."""

    def __init__(self, failing: str = "") -> None:
        super().__init__()
        self.log: list[str] = []
        self.failing = failing

    def flush(self) -> None:
        self.log.append("flush")
        if self.failing == "flush":
            raise OSError("disk full")

    def close(self) -> None:
        self.log.append("close")
        if self.failing == "close":
            raise OSError("disk full")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_sink_is_flushed_each_tick_and_closed_once(runtime: Any, parallelism: int) -> None:
    sink = Closing()
    values = range(20_000)
    short_ticks = {"max_records_per_tick": 8_192} if runtime.func is SparkRuntime else {}
    runtime(
        lambda p: p.new_stream().source("s", sis(values)).sink("out", StatelessSink(sink)),
        parallelism=parallelism,
        **short_ticks,
    ).execute()
    assert sink.values == list(values)
    assert sink.log.count("close") == 1
    assert sink.log[-1] == "close"
    assert sink.log.count("flush") >= 3


@pytest.mark.fault("F10")
def test_a_sink_is_closed_when_the_run_fails(runtime: Any) -> None:
    sink = Closing("close")

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", sis([0])).map("op", divide).sink("out", StatelessSink(sink))

    with pytest.raises(OperatorError, match="operator 'op' failed") as caught:
        runtime(build_dataflow).execute()
    assert sink.log == ["close"]
    (note,) = caught.value.__notes__
    assert note.startswith("and while closing: operator 'out' failed at close: OSError: disk full")


@pytest.mark.fault("F7")
@pytest.mark.parametrize("method", ["flush", "close"])
def test_a_sink_that_fails_to_flush_or_close_is_named(runtime: Any, method: str) -> None:
    with pytest.raises(
        OperatorError, match=f"operator 'out' failed at {method}: OSError: disk full; in Closing.{method}"
    ):
        runtime(lambda p: p.new_stream().source("s", sis([1])).sink("out", StatelessSink(Closing(method)))).execute()


def test_a_broken_repr_does_not_hide_the_error(runtime: Any) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class array(Shy):  # noqa: N801 - a name that reprlib takes for the standard library's
        pass

    error = failure(lambda s: s.map("op", lambda v: v.missing), [Shy()], runtime=runtime)
    assert "<Shy instance at" in str(error)
    error = failure(lambda s: s.map("op", lambda v: v.missing), [array()], runtime=runtime)
    assert "array whose repr raised AttributeError>" in str(error)


def test_the_function_that_raised_is_named_beside_the_one_that_was_given(runtime: Any) -> None:
    error = failure(lambda s: s.map("op", lambda v: divide(v) + 1), runtime=runtime)
    given, raised = (error.callback or "").split(", raised in ")
    assert re.fullmatch(r"<lambda> \(.*test_failures\.py:\d+\)", given)
    assert re.fullmatch(r"divide \(.*test_failures\.py:\d+\)", raised)


def test_a_missing_default_is_hinted_at(runtime: Any) -> None:
    error = failure(
        lambda s: s.key_local("k", lambda m: 1).stateful_map("op", lambda k, v, s: (v + s, s)), runtime=runtime
    )
    assert isinstance(error.__cause__, TypeError)
    assert error.__cause__.__notes__ == ["the state of a new key is None; set another by default=, such as default=int"]


def test_debug_takes_no_text_of_two_letters_for_a_pair() -> None:
    error = failure(lambda s: s.key_local("k", lambda m: 1).stateful_map("op", lambda k, v, s: "UA"), debug=True)
    assert "the mapper must return (value, state); got 'UA'" in str(error)


def test_poll_returns_a_pair() -> None:
    class Bare(Parts):
        def build_part(self, part: Any) -> Any:
            return type("P", (), {"poll": lambda self: 7, "is_finished": lambda self: False})()

    with pytest.raises(OperatorError, match=r"poll\(\) must return \(value, timestamp\) or None; got 7"):
        SingleThreadRuntime(
            lambda provider: provider.new_stream().source("letters", StatelessSource(Bare("")))  # type: ignore[arg-type]
        ).execute()


@pytest.mark.parametrize("missing", ["poll", "is_finished"])
def test_a_partition_has_the_methods_it_needs(missing: str) -> None:
    methods = {"poll": lambda self: None, "is_finished": lambda self: True}
    del methods[missing]

    class Lacking(Parts):
        def build_part(self, part: Any) -> Any:
            return type("P", (), methods)()

    with pytest.raises(OperatorError, match=rf"at part 'a': .*needs an object with a method {missing}\(\)"):
        SingleThreadRuntime(
            lambda provider: provider.new_stream().source("letters", StatelessSource(Lacking("")))  # type: ignore[arg-type]
        ).execute()


def test_long_values_are_shortened() -> None:
    error = failure(lambda s: s.map("op", lambda v: v.missing), ["x" * 10_000])
    assert len(str(error)) < 1_000


def test_debug_finds_a_state_inside_an_emitted_value(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.key_distribute("all", lambda _: 0)
        return keyed.stateful_map("grow", lambda k, v, s: (s.append(v) or (v, [s]), s), default=list).map("read", str)

    error = failure(build, range(3), runtime=runtime, debug=True)
    assert error.operator == "grow"
    assert "the value it emitted was changed before operator 'read' read it: it was (0, [[0]])" in str(error)


def test_debug_finds_a_reader_that_changes_what_another_reads() -> None:
    def build(stream: Any) -> Any:
        left, right = stream.cloned("both", 2)
        left.map("change", lambda v: v.append(9) or v)
        return right.map("read", len)

    error = failure(build, [[1], [2]], debug=True)
    assert "before operator 'read' read it" in str(error)


@pytest.mark.fault("E7")
def test_debug_finds_a_key_function_that_changes_its_mind() -> None:
    answers = iter(range(100))
    error = failure(lambda s: s.key_distribute("by", lambda _: next(answers)), debug=True)
    assert error.operator == "by"
    assert "must depend only on the record" in str(error)


def test_debug_changes_nothing_where_nothing_is_wrong(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.key_distribute("all", lambda m: m.value % 3)
        return keyed.stateful_map("grow", lambda k, v, s: (s.append(v) or s, s), default=list).map("sum", sum)

    plain = values_of(runtime, range(50), build)
    assert values_of(lambda build: runtime(build, debug=True), range(50), build) == plain


def test_a_broken_str_of_an_exception_does_not_hide_it(runtime: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def raise_mute(value: Any) -> Any:
        raise Mute

    error = failure(lambda s: s.map("op", raise_mute), runtime=runtime)
    assert "Mute: <its str raised RuntimeError>; in raise_mute" in str(error)


def test_epochs_that_cannot_be_compared_name_the_union() -> None:
    def build(stream: Any) -> Any:
        numbers = stream.generate_epochs("numbers", lambda m, _: m.value)[0]
        texts = stream.assign_timestamps("t", str).generate_epochs("texts", lambda m, _: "now")[0]
        return numbers.union(texts)

    error = failure(build)
    assert error.operator == "(numbers + texts)"
    assert "epochs of its inputs can't be compared" in str(error)


def test_a_part_of_a_sink_can_tell_its_state_where_that_is_kept(runtime: Any, store: Any) -> None:
    class Pages:
        def assign_part(self, msg: Any) -> str:
            return "page"

        def build_part(self, part: str, state: Any) -> Any:
            return FailingSink()

    error = failure(lambda s: s.sink("op", StatefulSink(Pages())), runtime=runtime, persistence=store)
    assert re.search(r"at part 'page': .*needs an object with a method snapshot\(\)", str(error))


def test_every_part_is_released_whatever_the_others_raise(runtime: Any, log: Log) -> None:
    class Page:
        def __init__(self, part: str) -> None:
            self.part = part

        def sink(self, msg: Any) -> None: ...

        def snapshot(self) -> None: ...

        def close(self) -> None:
            log.append(self.part)
            raise OSError(f"no {self.part}")

    class Pages:
        def assign_part(self, msg: Any) -> str:
            return f"part-{msg.value}"

        def build_part(self, part: str, state: Any) -> Page:
            return Page(part)

    error = failure(lambda s: s.sink("op", StatefulSink(Pages())), runtime=runtime)
    assert sorted(log) == ["part-0", "part-1", "part-2"]
    assert "OSError: no part-" in str(error)
    assert len(error.__notes__) == 2


def next_of_none(*_: Any) -> Any:
    return next(iter(()))


@pytest.mark.fault("E24")
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_partitioner_that_finds_no_worker_drops_no_record(parallelism: int) -> None:
    def only_zero(key: Any, workers: Any) -> int:
        return next(worker for worker in workers if worker == key)

    build = lambda s: s.key_distribute("by", lambda m: m.value % 4, only_zero)  # noqa: E731
    error = failure(build, range(20), parallelism=parallelism)
    assert (error.operator, error.key, error.value) == ("by", parallelism, parallelism)
    assert isinstance(error.__cause__, StopIteration)
    assert "only_zero" in str(error)


@pytest.mark.fault("E24")
@pytest.mark.parametrize("where", ["name", "tuple", "fields"])
def test_a_key_whose_stable_key_stops_is_refused(where: str) -> None:
    key = {"name": Stopping(), "tuple": (1, Stopping()), "fields": frozenset({Stopping()})}[where]
    error = failure(lambda s: s.key_distribute("by", lambda m: key))
    assert isinstance(error.__cause__, StopIteration)


class Stopping:
    __stable_key__ = next_of_none

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 0


def test_flags_of_a_split_are_all_asked_for() -> None:
    flag = type("Flag", (), {"__bool__": next_of_none})()

    def partitioner(msg: Any, outputs: Any) -> None:
        outputs[0] = flag

    assert isinstance(failure(lambda s: s.split("op", partitioner, 2)).__cause__, StopIteration)


def test_a_failure_to_close_one_sink_leaves_none_open() -> None:
    class Interrupting(Closing):
        def close(self) -> None:
            super().close()
            raise KeyboardInterrupt

    sinks = [Closing("close"), Interrupting(), Closing()]

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", sis([0]))
        for number, sink in enumerate(sinks):
            stream.sink(f"out-{number}", StatelessSink(sink))

    with pytest.raises(KeyboardInterrupt) as caught:
        SingleThreadRuntime(build_dataflow).execute()
    assert [sink.log[-1] for sink in sinks] == ["close"] * 3
    assert "OSError: disk full" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("abc", "returned 'abc', whose elements would be its letters"),
        (b"abc", "returned b'abc', whose elements would be its bytes"),
        (None, "returned None, which has no elements"),
        (7, "'int' object is not iterable"),
    ],
)
def test_a_flat_map_returns_no_text_and_not_nothing(answer: Any, message: str) -> None:
    error = failure(lambda s: s.flat_map("op", lambda v: answer if v == 0 else [v]))
    assert (error.operator, error.value) == ("op", 0)
    assert message in str(error)


@pytest.mark.parametrize("text", ["ab", b"ab", type("Text", (str,), {})("ab")])
def test_a_text_has_no_elements_for_flatten(text: Any) -> None:
    error = failure(lambda s: s.flatten("op"), [["a"], text])
    assert (error.value, error.timestamp) == (text, 1)
    assert "split it first, as by value.split()" in str(error)


@pytest.mark.parametrize("answer", [7, "x", [DataMessage(1, 2, 3)], (value for value in [1]), (None, 1)])
@pytest.mark.parametrize("hook", ["function", "on_data", "on_epoch"])
def test_return_value_of_a_logic_is_refused(hook: str, answer: Any) -> None:
    answers = {"on_data": lambda *_: None, hook: lambda *_: answer}
    logic = answers["function"] if hook == "function" else type("Logic", (), answers)()
    error = failure(lambda s: s.stateless_op("op", logic))
    assert re.search(r"it returned .*, which would be lost; emit by output\.send\(DataMessage", str(error))
    assert error.has_record == (hook != "on_epoch")


@pytest.mark.parametrize("hook", ["on_epoch", "on_schedule"])
def test_return_value_of_a_state_hook_is_refused(hook: str) -> None:
    logic = type("Logic", (), {"on_data": lambda *_: None, hook: lambda *_: [DataMessage(1, 2, 3)]})()
    error = failure(lambda s: s.key_local("k", lambda m: 1).stateful_op("op", logic))
    assert "which would be lost" in str(error)


def test_a_logic_may_return_what_sending_gives() -> None:
    def build(stream: Any) -> Any:
        both = stream.stateless_op("both", lambda msg, out: [out.send(msg) for _ in range(2)])
        some = both.stateless_op("some", lambda msg, out: msg.value and out.send(msg))
        return some.stateless_op("others", lambda msg, out: msg.value == 1 or out.send(msg))

    assert values_of(SingleThreadRuntime, range(3), build) == [2, 2]


def test_a_message_with_a_key_that_has_no_hash_may_be_sent(runtime: Any) -> None:
    def resend(msg: Any, state: Any, output: Any) -> Any:
        output.send(DataMessage([msg.key], {"value": msg.value}, msg.timestamp))
        return state

    build = lambda s: s.key_local("k", lambda m: 1).stateful_op("op", resend)  # noqa: E731
    assert values_of(runtime, [1], build) == [{"value": 1}]
    error = failure(lambda s: build(s).stateful_map("next", lambda k, v, s: (v, s)), runtime=runtime)
    assert error.operator == "next"


@pytest.mark.parametrize("keep", ["stateful_map", "stateful_op", "ttl_map"])
@pytest.mark.parametrize("change", ["stateless_op", "stateful_op"])
def test_debug_finds_a_key_that_was_changed_after_it_was_placed(runtime: Any, change: str, keep: str) -> None:
    def send(msg: Any, *state_and_output: Any) -> Any:
        state_and_output[-1].send(DataMessage(f"changed {msg.key}", msg.value, msg.timestamp))
        return None if change == "stateless_op" else state_and_output[0]

    def build(stream: Any) -> Any:
        keyed = stream.key_distribute("k", lambda m: m.value)
        changed = getattr(keyed, change)("change", send).map("between", lambda v: v)
        keepers = {"stateful_map": lambda k, v, s: (v, v), "stateful_op": lambda m, s, o: 1, "ttl_map": expire}
        return getattr(changed, keep)("op", keepers[keep])

    error = failure(build, range(20), runtime=runtime, debug=True)
    assert error.operator == "op"
    assert re.search(r"key 'changed \d+'.* its key was \d+ at .key_distribute\(\) and was changed since", str(error))


def expire(key: Any, value: Any, timestamp: Any, entries: Any) -> Any:
    return value, entries


def test_debug_finds_nothing_in_a_key_that_is_placed_again_or_alike() -> None:
    def rename(msg: Any, output: Any) -> None:
        output.send(DataMessage(f"changed {msg.key}", msg.value, msg.timestamp))

    def build(stream: Any) -> Any:
        changed = stream.key_distribute("k", lambda m: m.value).stateless_op("change", rename)
        again = changed.key_distribute("again", lambda m: m.key).stateful_map("one", lambda k, v, s: (v, v))
        on_one = stream.key_distribute("first", lambda m: m.value, lambda key, workers: workers[0])
        alike = on_one.stateless_op("alike", rename).stateful_map("two", lambda k, v, s: (v, v))
        return again.key_distribute("all", lambda m: 0).union(alike.key_distribute("all too", lambda m: 0))

    assert sorted(values_of(partial(SingleThreadRuntime, debug=True), range(20), build)) == sorted([*range(20)] * 2)


def test_debug_finds_a_generator_that_nobody_takes_apart() -> None:
    lazy = lambda s: s.map("lazy", lambda v: (v for _ in range(2)))  # noqa: E731
    error = failure(lambda s: lazy(s).sink("op", VecSink()), debug=True)
    assert error.operator == "op"
    assert "its value is a generator that has not run; call .flat_map()" in str(error)
    values = values_of(partial(SingleThreadRuntime, debug=True), [1, 2], lambda s: lazy(s).flatten("elements"))
    assert values == [1, 1, 2, 2]


def test_debug_finds_a_coroutine_that_nobody_waits_for() -> None:
    async def get(value: Any) -> Any:
        return value

    coroutines: list[Any] = []
    error = failure(
        lambda s: s.map("later", lambda v: coroutines.append(get(v)) or coroutines[-1]).map("op", str), debug=True
    )
    assert (error.operator, "its value is a coroutine" in str(error)) == ("op", True)
    for coroutine in coroutines:
        coroutine.close()
