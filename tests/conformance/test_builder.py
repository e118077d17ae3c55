"""The builder's errors, raised at the earliest moment, with the facts."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from malflow import (
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    StatefulLogic,
    StatelessLogic,
    StreamProvider,
    index_select,
)
from malflow.sinks import StatefulSink, StatelessSink, StatelessSinkImpl, TextFileSink, VecSink
from malflow.snapshot import NoPersistence
from malflow.sources import SingleIteratorSource, StatefulSource, StatelessSource, StatelessSourceImpl, TextFileSource
from tests.conformance.dataflow import sis
from tests.kit.log import Log


def build(build_dataflow: Any) -> None:
    SingleThreadRuntime(build_dataflow).execute()


def source(provider: StreamProvider, name: str = "source") -> Any:
    return provider.new_stream().source(name, sis([1, 2]))


def refused(message: str) -> Any:
    return pytest.raises(GraphError, match=message)


@pytest.mark.fault("G12")
def test_a_name_is_taken_once(runtime: Any) -> None:
    reached = []

    def build_dataflow(provider: StreamProvider) -> None:
        stream = source(provider).map("x", str)
        try:
            stream.map("x", str)
        finally:
            reached.append("refused when it was added")

    with refused(
        r"operator 'x' already exists, first at .*test_builder.py:\d+; operator names must be unique"
    ) as caught:
        runtime(build_dataflow).execute()
    assert caught.value.operator == "x"
    assert re.search(r"test_builder\.py:\d+$", caught.value.location or "")
    assert reached == ["refused when it was added"]


@pytest.mark.parametrize("name", ["a/b", "sum/exchange", "/"])
def test_names_with_a_slash_are_those_of_hidden_states(name: str) -> None:
    with refused(rf"operator '{name}' has a '/' in its name, which is reserved.*; write '{name.replace('/', '-')}'"):
        build(lambda provider: source(provider).map(name, str))
    with refused(rf"operator '{name}' has a '/' in its name"):
        build(lambda provider: source(provider).union(source(provider, "other"), name=name))


def test_the_name_of_a_union_is_taken_once() -> None:
    def named_as(name: str) -> None:
        def build_dataflow(provider: StreamProvider) -> None:
            one, two = source(provider, "one"), source(provider, "two")
            one.union(two)
            one.union(two)  # unions of the same streams, which are alike, share what is made of their names
            one.union(two, name=name).map("x", str)

        build(build_dataflow)

    named_as("all")
    with refused("operator 'x' already exists"):
        named_as("x")
    with refused(r"operator '\(one \+ two\)' already exists"):
        named_as("(one + two)")


def test_a_stream_kept_after_building_takes_no_more_operators(runtime: Any) -> None:
    kept: list[Any] = []
    runtime(lambda provider: kept.append(source(provider))).execute()
    with refused("operator 'late' was added too late: the dataflow is complete"):
        kept[0].map("late", str)


@pytest.mark.parametrize("method", ["stateful_map", "stateful_op", "ttl_map"])
def test_a_stateful_operator_needs_a_keyed_stream(method: str) -> None:
    with refused(r"operator 'sum' needs a keyed stream; its input has no key; call .key_distribute\(\)") as caught:
        build(lambda provider: getattr(source(provider), method)("sum", lambda k, v, s: (v, s)))
    assert caught.value.operator == "sum"


@pytest.mark.parametrize("method", ["map", "filter", "key_local", "key_distribute", "inspect"])
def test_an_operator_needs_a_source(method: str) -> None:
    with refused(r"operator 'op' needs a stream with a source; call .source\(\)"):
        build(lambda provider: getattr(provider.new_stream(), method)("op", str))


def test_a_sink_needs_a_source() -> None:
    with refused("operator 'out' needs a stream with a source"):
        build(lambda provider: provider.new_stream().sink("out", StatelessSink(VecSink())))


def test_a_stream_has_one_source() -> None:
    with refused("operator 'again' is a source on a stream that already has one"):
        build(lambda provider: source(provider).source("again", sis([])))


@pytest.mark.parametrize("name", ["", "  ", "a\nb", 7, None, str, b"x"])
def test_a_name_is_a_printable_text(name: Any) -> None:
    with refused("an operator name must be a printable, non-blank string; got"):
        build(lambda provider: source(provider).map(name, str))


def test_a_function_in_the_place_of_the_name_is_explained() -> None:
    for swapped in ("map", "filter", "stateless_op", "sink", "key_distribute"):
        with refused("an operator name must be a printable, non-blank string; got .*; the name is the first argument"):
            build(lambda provider, method=swapped: getattr(source(provider), method)(str, "double"))


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("map", "mapper"),
        ("filter", "predicate"),
        ("filter_map", "mapper"),
        ("filter_map_many", "function"),
        ("inspect", "inspector"),
        ("inspect_frontier", "inspector"),
        ("key_local", "key_fn"),
        ("key_distribute", "key_fn"),
        ("assign_timestamps", "assigner"),
        ("convert_timestamps", "function"),
        ("generate_epochs", "generator"),
    ],
)
def test_a_callback_is_a_function(method: str, role: str) -> None:
    with refused(f"operator 'op' {role} must be a plain function; got 7.5"):
        build(lambda provider: getattr(source(provider), method)("op", 7.5))


def test_a_default_is_a_function() -> None:
    with refused("needs a function that creates a state as its default; got 0; write lambda: 0"):
        build(lambda p: source(p).key_local("k", str).stateful_map("sum", lambda k, v, s: (v, s), default=0))


def test_a_logic_is_an_object_with_on_data() -> None:
    class Logic:
        def on_data(self, msg: Any, output: Any) -> None: ...

    with refused(r"got the class Logic; write Logic\(\)"):
        build(lambda provider: source(provider).stateless_op("op", Logic))
    with refused("needs a logic with a method on_data"):
        build(lambda provider: source(provider).stateless_op("op", 7))


@pytest.mark.parametrize("outputs", [0, -1, "2", 1.0])
def test_outputs_are_one_or_more(outputs: Any) -> None:
    with refused("operator 'op' number of outputs must be a whole number, at least 1"):
        build(lambda provider: source(provider).cloned("op", outputs))


@pytest.mark.parametrize("method", ["sink", "map", "stateful_map", "union", "key_distribute"])
def test_new_timestamps_need_epochs_first(method: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = source(provider).key_local("k", str).assign_timestamps("when", lambda m: m.value)
        getattr(stream, method)("next", StatelessSink(VecSink()))

    with refused(rf"operator 'next' needs a stream with epochs; call .generate_epochs\(\) before .{method}\(\)"):
        build(build_dataflow)


def test_new_timestamps_left_alone_are_refused_when_the_dataflow_is_built() -> None:
    with refused("operator 'when' leaves a stream without epochs"):
        build(lambda provider: source(provider).assign_timestamps("when", lambda m: m.value))


def test_a_union_joins_streams_of_one_dataflow() -> None:
    kept: list[Any] = []
    build(lambda provider: kept.append(source(provider)))
    with refused("streams of the same dataflow"):
        build(lambda provider: source(provider).union(kept[0]))
    with refused("takes streams as separate arguments; got"):
        build(lambda provider: source(provider).union([source(provider, "other")]))
    with refused("needs a stream with a source"):
        build(lambda provider: source(provider).union(provider.new_stream()))


def test_keys_that_were_placed_in_two_ways_share_no_state() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        one = source(provider).key_distribute("a", lambda m: m.value)
        two = source(provider, "second").key_distribute("b", lambda m: m.value, index_select)
        one.union(two).stateful_map("sum", lambda k, v, s: (v, s))

    with refused(r"operator 'sum' would keep the state of one key on several workers.*index_select.*rendezvous_select"):
        build(build_dataflow)


def test_keys_that_were_placed_in_one_way_may_be_joined() -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        one = source(provider).key_distribute("a", lambda m: m.value)
        two = source(provider, "second").key_distribute("b", lambda m: m.value)
        counted = one.union(two).stateful_map("count", lambda k, v, n: (n + 1, n + 1), default=int)
        counted.sink("out", StatelessSink(collected))

    SingleThreadRuntime(build_dataflow, parallelism=3).execute()
    assert sorted((m.key, m.value) for m in collected) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_sources_and_sinks_are_checked_at_once() -> None:
    with refused("StatelessSource needs an instance; got the class SingleIteratorSource"):
        StatelessSource(SingleIteratorSource)  # type: ignore[arg-type]
    with refused(r"StatefulSource needs an object with a method list_parts\(\); got 7"):
        StatefulSource(7)  # type: ignore[arg-type]
    with refused(r"StatelessSink needs an object with a method sink\(\); got 7"):
        StatelessSink(7)  # type: ignore[arg-type]
    with refused(r"StatefulSink got VecSink\(\[\]\), a sink without parts; write StatelessSink"):
        StatefulSink(VecSink())  # type: ignore[arg-type]
    with refused("operator 's' needs a StatelessSource or a StatefulSource; got"):
        build(lambda provider: provider.new_stream().source("s", [1, 2]))  # type: ignore[call-overload]
    with refused("operator 's' needs a StatelessSink or a StatefulSink; got"):
        build(lambda provider: source(provider).sink("s", []))
    with refused("SingleIteratorSource needs an iterable; got 7"):
        SingleIteratorSource(7)  # type: ignore[arg-type]


def test_a_data_frame_is_no_source_of_records() -> None:
    pandas = pytest.importorskip("pandas")
    with refused(r"SingleIteratorSource needs records; a DataFrame .*; pass df.to_dict\('records'\)"):
        SingleIteratorSource(pandas.DataFrame({"a": [1]}))


class Misspelt(StatelessLogic[Any, Any, Any, Any]):
    def on_date(self, msg: Any, output: Any) -> None: ...


class MisspeltState(StatefulLogic[Any, Any, Any, Any, Any]):
    def on_date(self, msg: Any, state: Any, output: Any) -> None: ...


class MisspeltSink(StatelessSinkImpl[Any, Any, Any]):
    def write(self, msg: Any) -> None: ...


class MisspeltSource(StatelessSourceImpl[Any, Any, Any]):
    def parts(self) -> None: ...


def test_a_method_that_the_contract_only_names_is_missing() -> None:
    with refused(r"needs a logic with a method on_data"):
        build(lambda provider: source(provider).stateless_op("op", Misspelt()))
    with refused(r"needs a logic with a method on_data"):
        build(lambda provider: source(provider).key_local("k", str).stateful_op("op", MisspeltState()))
    with refused(r"StatelessSink needs an object with a method sink\(\)"):
        build(lambda provider: source(provider).sink("op", MisspeltSink()))
    with refused(r"StatelessSource needs an object with a method list_parts\(\)"):
        build(lambda provider: provider.new_stream().source("op", MisspeltSource()))


def test_an_implementation_derived_from_the_contract_needs_no_wrapper() -> None:
    collected: VecSink[Any, Any, Any] = VecSink()
    build(lambda p: p.new_stream().source("s", SingleIteratorSource([1])).sink("out", collected))
    assert collected.values == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parallelism": 0}, "parallelism must be a whole number, at least 1; got 0"),
        ({"parallelism": 2.0}, "parallelism must be a whole number, at least 1"),
        ({"parallelism": True}, "parallelism must be a whole number, at least 1"),
        ({"snapshots": "10x"}, "a run's snapshots must be a time above zero, such as .*; got '10x'"),
        ({"persistence": "state"}, r"persistence needs a backend; got 'state'; write FsspecBackend\('state'\)"),
        ({"persistence": 7}, r"persistence needs an object with a method open\(\); got 7"),
        ({"persistence": NoPersistence}, "persistence needs an instance; got the class NoPersistence"),
        ({"snapshots": timedelta(0)}, "a run's snapshots must be a time above zero"),
    ],
)
def test_a_runtime_checks_its_options(runtime: Any, options: Any, message: str) -> None:
    with refused(message):
        runtime(lambda provider: None, **options)


def test_a_runtime_needs_a_function() -> None:
    with refused("SingleThreadRuntime build_dataflow must be a plain function; got 7"):
        SingleThreadRuntime(7)  # type: ignore[arg-type]


def test_the_runtime_is_built_step_by_step_as_in_malstrom(runtime: Any, log: Log) -> None:
    show = partial(lambda log, msg, ctx: log.append(msg.value), log)
    (
        runtime.func.builder()
        .persistence(NoPersistence())
        .snapshots(timedelta(seconds=10))
        .build(lambda provider: source(provider).inspect("show", show))
        .execute()
    )
    assert log == [1, 2]


def test_a_dataflow_of_nothing_ends_at_once(runtime: Any) -> None:
    runtime(lambda provider: None).execute()
    runtime(lambda provider: provider.new_stream(), parallelism=4).execute()


@pytest.mark.fault("H8")
def test_a_runtime_may_be_executed_again(runtime: Any) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()
    again = runtime(lambda provider: source(provider).sink("out", StatelessSink(collected)))
    again.execute()
    again.execute()
    assert collected.values == [1, 2, 1, 2]


def gives(value: Any, *_: Any) -> Any:
    yield value


async def awaits(value: Any, *_: Any) -> Any:
    return value


async def gives_later(value: Any, *_: Any) -> Any:
    yield value


class Lazy:
    """An object that is called, one of whose methods yields."""

    def __call__(self, value: Any, *_: Any) -> Any:
        yield value

    def on_data(self, *_: Any) -> Any:
        yield 1


class LazyHook:
    def on_data(self, msg: Any, *state_and_output: Any) -> Any:
        return state_and_output[0]

    async def on_epoch(self, epoch: Any, *states_and_output: Any) -> None: ...


ROLES: dict[str, Any] = {
    "mapper": lambda s, f: s.map("op", f),
    "predicate": lambda s, f: s.filter("op", f),
    "mapper of filter_map": lambda s, f: s.filter_map("op", f),
    "function of filter_map_many": lambda s, f: s.filter_map_many("op", f),
    "inspector": lambda s, f: s.inspect("op", f),
    "inspector of the frontier": lambda s, f: s.inspect_frontier("op", f),
    "logic": lambda s, f: s.stateless_op("op", f),
    "key_fn": lambda s, f: s.key_local("op", f),
    "partitioner of keys": lambda s, f: s.key_distribute("op", str, f),
    "assigner": lambda s, f: s.assign_timestamps("op", f),
    "function of convert_timestamps": lambda s, f: s.convert_timestamps("op", f),
    "generator": lambda s, f: s.generate_epochs("op", f),
    "partitioner": lambda s, f: s.split("op", f, 2),
    "mapper of states": lambda s, f: s.key_local("k", str).stateful_map("op", f),
    "default": lambda s, f: s.key_local("k", str).stateful_map("op", print, f),
    "logic of states": lambda s, f: s.key_local("k", str).stateful_op("op", f),
    "default of a logic": lambda s, f: s.key_local("k", str).stateful_op("op", print, f),
    "mapper of ttl_map": lambda s, f: s.key_local("k", str).ttl_map("op", f),
    "migrate": lambda s, f: s.key_local("k", str).stateful_map("op", print, migrate=f),
}


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (gives, "a generator function, gives"),
        (awaits, "a coroutine function, awaits"),
        (gives_later, "an asynchronous generator function, gives_later"),
        (partial(gives, 1), "a generator function, gives"),
        (lambda value, *_: (yield value), "a generator function, <lambda>"),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_function_of_which_nothing_runs_is_refused(role: str, function: Any, kind: str) -> None:
    plain = role.partition(" of ")[0]
    with refused(rf"operator 'op' {plain} must be a plain function; got {re.escape(kind)} \(.*test_builder.py"):
        build(lambda provider: ROLES[role](source(provider), function))


@pytest.mark.parametrize("logic", [Lazy(), LazyHook(), Lazy().__call__], ids=["on_data", "on_epoch", "__call__"])
def test_a_logic_of_which_nothing_runs_is_refused(logic: Any) -> None:
    for role in ("logic", "logic of states"):
        with refused(
            r"(logic|on_data|on_epoch) must be a plain function; got .*: send messages by output.send\(DataMessage"
        ):
            build(lambda provider, role=role: ROLES[role](source(provider), logic))  # type: ignore[misc]


def test_a_mapper_that_yields_is_told_of_flat_map() -> None:
    for function in (gives, Lazy()):
        with refused(r"call .*\.flat_map\(\) to yield any number of values"):
            build(lambda provider, it=function: source(provider).map("op", it))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("on_epochs", r"write on_epoch\(\)"),
        ("onEpoch", r"write on_epoch\(\)"),
        ("on_shedule", r"write on_schedule\(\)"),
        ("on_timers", r"write on_timer\(\)"),
        ("on_watermark", r"the hooks are on_data\(\), on_epoch\(\), on_schedule\(\), on_timer\(\)"),
    ],
)
def test_a_misspelt_hook_of_a_logic_is_refused(misspelt: str, meant: str) -> None:
    methods = {"on_data": lambda *_: None, misspelt: lambda *_: None}
    with refused(rf"operator 'op' has a logic with a method {misspelt}\(\), which is never called; {meant}"):
        build(lambda p: source(p).key_local("k", str).stateful_op("op", type("Logic", (StatefulLogic,), methods)()))


def test_a_stateless_logic_has_no_schedule() -> None:
    logic = type("Logic", (), {"on_data": lambda *_: None, "on_schedule": lambda *_: None})()
    with refused(r"method on_schedule\(\), which is never called; the hooks are on_data\(\), on_epoch\(\)"):
        build(lambda p: source(p).stateless_op("op", logic))


def test_a_logic_may_have_methods_of_its_own() -> None:
    methods = {"on_data": lambda *_: None, "on_arrival": lambda *_: None, "once": lambda *_: None, "only": 3}
    build(lambda p: source(p).stateless_op("op", type("Logic", (StatelessLogic,), methods)()))


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("key_by", "call .key_distribute()"),
        ("keyBy", "call .key_distribute()"),
        ("group_by", "call .key_distribute()"),
        ("flatMap", "it is called .flat_map()"),
        ("reduce", "call .aggregate()"),
        ("fold", "call .aggregate()"),
        ("process", "call .stateful_op()"),
        ("forEach", "call .inspect()"),
        ("addSink", "call .sink()"),
        ("window_by", ".window() with windows of malflow.windows"),
        ("join", "then .interval_join(), .asof_join() or .join_table()"),
        ("cogroup", "then .window() and .cogroup()"),
        ("collect", ".sink() with a VecSink"),
        ("print", ".sink() with a StdOutSink"),
        ("sinc", "did you mean .sink()?"),
        ("flatmap", "did you mean .flat_map()?"),
    ],
)
def test_a_method_of_another_system_says_which_of_ours_does_it(method: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=rf"'Stream' object has no attribute '{method}'; .*{re.escape(advice)}"):
        build(lambda provider: getattr(source(provider), method)("op"))


def test_a_method_that_is_like_none_is_just_not_there() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'xyzzy'$"):
        build(lambda provider: source(provider).xyzzy())


class Stateless:
    def list_parts(self) -> Any:
        return ["a"]

    def build_part(self, part: Any) -> Any: ...


class Stateful(Stateless):
    def build_part(self, part: Any, state: Any) -> Any: ...  # type: ignore[override] # another kind of source


class Either(Stateless):
    def build_part(self, part: Any, state: Any = None) -> Any: ...


class Lines:
    def sink(self, msg: Any) -> None: ...


class Pages:
    def assign_part(self, msg: Any) -> Any: ...

    def build_part(self, part: Any, state: Any) -> Any: ...


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda: StatelessSource(Stateful()), r"StatelessSource calls build_part\(part\).*; write StatefulSource\("),
        (
            lambda: StatelessSource(TextFileSource("x")),
            r"but TextFileSource.* takes other arguments; write StatefulSource\(",
        ),  # type: ignore[arg-type]
        (lambda: StatefulSource(Stateless()), r"StatefulSource calls build_part\(part, state\).*; write Stateless"),  # type: ignore[arg-type]
        (lambda: StatefulSource(SingleIteratorSource([])), "write StatelessSource"),  # type: ignore[arg-type]
        (lambda: StatelessSink(Pages()), r"StatelessSink got .*a sink of parts; write StatefulSink\("),  # type: ignore[arg-type]
        (lambda: StatefulSink(Lines()), r"StatefulSink got .*a sink without parts; write StatelessSink\("),  # type: ignore[arg-type]
        (lambda: StatefulSink(VecSink()), r"StatefulSink got .*; write StatelessSink\("),  # type: ignore[arg-type]
    ],
)
def test_the_wrong_wrapper_is_refused_at_once(wrap: Any, message: str) -> None:
    with refused(message):
        wrap()


def test_a_source_of_either_kind_takes_both_wrappers() -> None:
    assert StatelessSource(Either()).build_part("a", None) is None  # type: ignore[arg-type]
    assert StatefulSource(Either()).build_part("a", None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (VecSink(), r"that is a sink: call .sink\(\)"),
        (StatelessSink(VecSink()), r"that is a sink: call .sink\(\)"),
        ([1, 2], r"write SingleIteratorSource\(...\)"),
        (Stateless(), r"write StatelessSource\(...\)"),
        (Stateful(), r"write StatefulSource\(...\)"),
        (Stateless, r"write Stateless\(...\)"),
    ],
)
def test_invalid_source_is_refused_with_the_fix(thing: Any, message: str) -> None:
    with refused(f"operator 'op' needs a StatelessSource or a StatefulSource; .*{message}"):
        build(lambda provider: provider.new_stream().source("op", thing))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (SingleIteratorSource([1]), r"that is a source: call .source\(\)"),
        (Lines(), r"write StatelessSink\(...\)"),
        (Pages(), r"write StatefulSink\(...\)"),
        (print, r"call .inspect\(\) for a function"),
        (VecSink, r"write VecSink\(...\)"),
    ],
)
def test_invalid_sink_is_refused_with_the_fix(thing: Any, message: str) -> None:
    with refused(f"operator 'op' needs a StatelessSink or a StatefulSink; .*{message}"):
        build(lambda provider: source(provider).sink("op", thing))


@pytest.mark.parametrize("method", ["sink", "sink_batch", "flush", "close"])
@pytest.mark.parametrize("function", [awaits, gives])
def test_a_sink_of_which_nothing_runs_is_refused(method: str, function: Any) -> None:
    methods = {"sink": lambda *_: None, method: function}
    with refused(rf"StatelessSink needs an object with a plain method {method}\(\); that of .* is a (co|gen)"):
        StatelessSink(type("Sink", (), methods)())


@pytest.mark.parametrize("method", ["poll", "poll_batch", "is_finished", "snapshot", "suspend"])
@pytest.mark.parametrize("function", [awaits, gives])
def test_a_reader_of_which_nothing_runs_is_refused(method: str, function: Any) -> None:
    methods = {"poll": lambda _: None, "is_finished": lambda _: True, method: function}
    source = type("Source", (Either,), {"build_part": lambda self, part: type("Part", (), methods)()})()
    with pytest.raises(OperatorError, match=rf"operator 'op' failed at part 'a': .* plain method {method}\(\)"):
        build(lambda provider: provider.new_stream().source("op", StatelessSource(source)))


def test_parts_may_be_listed_by_a_generator() -> None:
    build(lambda provider: provider.new_stream().source("op", StatelessSource(Listing())))  # type: ignore[arg-type]


class Listing(Stateless):
    def list_parts(self) -> Any:
        yield from ()


@pytest.mark.parametrize("function", [awaits, gives])
def test_a_function_that_would_build_nothing_is_refused(runtime: Any, function: Any) -> None:
    with refused(r"Runtime build_dataflow must be a plain function; got a .*, (awaits|gives) \(.*test_builder"):
        runtime(function)


@pytest.mark.parametrize("function", [awaits, gives])
def test_functions_of_files_are_plain(function: Any) -> None:
    with refused("formatter must be a plain function; got a (coroutine|generator) function"):
        TextFileSink("x", formatter=function)
    with refused("or a plain function; got a (coroutine|generator) function"):
        TextFileSource("x", on_error=function)
