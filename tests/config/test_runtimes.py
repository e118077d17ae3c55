"""Runtimes of settings alone, and over the runtime of the code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    ConfigError,
    GraphError,
    MultiProcessRuntime,
    OperatorError,
    RestartPolicy,
    SingleThreadRuntime,
    SparkRuntime,
    StreamProvider,
    connect,
)
from malflow.config import Override, Settings, load, settings_text
from malflow.config.sections import PersistenceSettings, ProcessSettings, RunSettings, SparkSettings
from malflow.runtime.base import Runtime, declared_by
from malflow.runtime.options import RunOptions
from malflow.runtime.processes.options import ProcessOptions
from malflow.runtime.spark.settings import SparkOptions
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, NoPersistence
from malflow.sources import SingleIteratorSource

KEY = "k" * 16


def nothing(provider: StreamProvider) -> None:
    provider.new_stream()


def overrides(**tables: Mapping[str, Any]) -> Settings:
    given = {f"{table}.{name}": value for table, settings in tables.items() for name, value in settings.items()}
    return load(None, env={}, overrides=given)


def from_file(folder: Path, text: str) -> Settings:
    (folder / "malflow.toml").write_text(text)
    return load(folder, env={})


def options(runtime: Runtime) -> Any:
    return declared_by(runtime).options


@pytest.mark.parametrize(
    ("on", "kind"), [(None, SingleThreadRuntime), ("processes", MultiProcessRuntime), ("spark", SparkRuntime)]
)
def test_a_runtime_of_settings_alone(on: str | None, kind: type[Runtime], tmp_path: Path) -> None:
    chosen = "" if on is None else f'on = "{on}"\n'
    text = f'[run]\n{chosen}persistence = "{tmp_path}"\njob = "orders"\nsnapshots = "2s"\nrestore = 7\n'
    text += "[persistence]\nretain = '7d'\ngrowth = 2\n[spark]\ntrigger = '1s'\n[spark.conf]\na = 1\n[processes]\n"
    text += "processes = 3\nrestart.attempts = 9\n"
    made = from_file(tmp_path, text).runtime(nothing)
    assert type(made) is kind
    assert (options(made).snapshots, options(made).restore) == (timedelta(seconds=2), 7)
    arguments = options(made).persistence.arguments
    assert (arguments["url"], arguments["job"]) == (str(tmp_path), "orders")
    assert (arguments["retain"], arguments["growth"]) == (timedelta(days=7), 2.0)
    if on == "spark":
        assert (options(made).trigger, options(made).conf) == (timedelta(seconds=1), {"a": "1"})
    if on == "processes":
        assert (options(made).processes, options(made).restart) == (3, RestartPolicy(9, timedelta(seconds=1)))


def test_settings_lie_over_the_options_of_the_code() -> None:
    backend = FsspecBackend("memory://code", job="code", retain=3, storage_options={}, signing_key=KEY, codec="pickle")
    code = SingleThreadRuntime(nothing, backend, timedelta(seconds=1), 4, debug=True, at_end="keep")
    before = options(code)
    made = overrides(run={"parallelism": 2, "job": "set"}, persistence={"growth": 3}).apply_to(code)
    assert type(made) is SingleThreadRuntime
    assert options(code) is before
    assert options(made).parallelism == 2
    assert (options(made).debug, options(made).at_end, options(made).snapshots) == (True, "keep", timedelta(seconds=1))
    arguments = options(made).persistence.arguments
    assert arguments | {"job": "code", "growth": 1.0} == backend.arguments
    assert (arguments["job"], arguments["growth"]) == ("set", 3.0)


def test_a_backend_has_all_its_arguments() -> None:
    parameters = list(inspect.signature(FsspecBackend).parameters)
    backend = FsspecBackend(
        "memory://x",
        job="j",
        retain=timedelta(days=2),
        compression="none",
        codec="msgpack",
        signing_key=[KEY, "b" * 20],
        allow_unsigned_pickle=True,
        allow_unsafe_single_writer=True,
        growth=2.5,
        retry_for=timedelta(seconds=7),
        tolerate_failures_for=timedelta(minutes=3),
    )
    assert list(backend.arguments) == parameters
    again = backend.replaced()
    assert again.arguments == backend.arguments
    assert backend.replaced(url="memory://y").arguments["url"] == "memory://y"


class Own(SingleThreadRuntime):
    """A runtime of a user's."""


def test_a_runtime_of_an_own_class_keeps_its_class() -> None:
    found = VecSink()
    code = Own(orders(found, header=False), parallelism=2)
    made = overrides(run={"debug": True}).apply_to(code)
    assert (type(made), options(made).debug, options(made).parallelism) == (Own, True, 2)
    assert not options(code).debug


def test_a_url_replaces_the_persistence_of_the_code(tmp_path: Path) -> None:
    made = overrides(run={"persistence": str(tmp_path), "snapshots": "1s"}).apply_to(SingleThreadRuntime(nothing))
    assert options(made).persistence.arguments["url"] == str(tmp_path)
    made = overrides(run={"persistence": "none"}).apply_to(SingleThreadRuntime(nothing, FsspecBackend(str(tmp_path))))
    assert not options(made).persistence.is_enabled


def test_options_that_nobody_sets_stay_with_the_code() -> None:
    code = SparkRuntime(nothing, trigger=timedelta(seconds=1), scratch_options={"a": 1, "b": {"c": 2}})
    assert options(load(None, env={}).apply_to(code)) == options(code)
    made = overrides(spark={"scratch_options.b.d": 3}).apply_to(code)
    assert options(made).scratch_options == {"a": 1, "b": {"c": 2, "d": 3}}


def test_a_script_moves_to_another_runtime() -> None:
    backend = FsspecBackend("memory://x", job="j")
    code = SingleThreadRuntime(nothing, backend, timedelta(seconds=3), restore=None, sinks="accept_duplicates")
    made = load(None, env={}).apply_to(code, on="spark")
    assert type(made) is SparkRuntime
    found = options(made)
    assert (found.persistence, found.snapshots, found.restore) == (backend, timedelta(seconds=3), None)
    assert (found.sinks, found.parallelism) == ("accept_duplicates", None)
    back = overrides(run={"on": "single"}).apply_to(MultiProcessRuntime(nothing, parallelism=4))
    assert (type(back), options(back).parallelism) == (SingleThreadRuntime, 4)
    policy = RestartPolicy(7)
    moved = load(None, env={}).apply_to(MultiProcessRuntime(nothing, restart=policy), on="spark")
    assert options(moved).restart == policy
    assert options(load(None, env={}).apply_to(SparkRuntime(nothing), on="single")).parallelism == 1


def test_options_that_the_other_runtime_lacks_are_refused_by_name() -> None:
    code = SparkRuntime(nothing, trigger=timedelta(seconds=1), restart=RestartPolicy(1))
    with pytest.raises(ConfigError) as refused:
        load(None, env={}).apply_to(code, on="single")
    assert [fault.key for fault in refused.value.faults] == ["spark.trigger", "spark.restart"]
    assert f"{__file__}:" in str(refused.value.origin)
    assert "trigger= is an option of SparkRuntime, which SingleThreadRuntime does not have" in str(refused.value)


def test_an_override_for_another_runtime_is_refused_and_a_file_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spark\.trigger has no effect on a SingleThreadRuntime"):
        overrides(spark={"trigger": "1s"}).apply_to(SingleThreadRuntime(nothing))
    from_file(tmp_path, "[spark]\ntrigger = '1s'\n").apply_to(SingleThreadRuntime(nothing))


def test_a_pinned_option_names_both_places(tmp_path: Path) -> None:
    code = SingleThreadRuntime(
        nothing, FsspecBackend("memory://x"), parallelism=4, pinned=["parallelism", "persistence"]
    )
    settings = from_file(tmp_path, "[run]\nparallelism = 2\ndebug = true\n[persistence]\nretain = 3\n")
    with pytest.raises(ConfigError) as refused:
        settings.apply_to(code)
    assert [fault.key for fault in refused.value.faults] == ["run.parallelism", "persistence.retain"]
    first = str(refused.value.faults[0])
    assert "malflow.toml:2: run.parallelism is pinned by the code at " in first
    assert f"{__file__}:" in first
    assert options(overrides(run={"debug": "true"}).apply_to(code)).debug


@pytest.mark.parametrize(
    ("pinned", "words"),
    [("parallelism", "pinned needs a list"), (["paralelism"], "did you mean 'parallelism'"), ([3], "pinned has 3")],
)
def test_pinned_options_that_do_not_exist(pinned: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        SingleThreadRuntime(nothing, pinned=pinned)


@pytest.mark.parametrize(
    ("tables", "key", "words"),
    [
        ({"run": {"snapshots": "1s"}}, "run.snapshots", "needs a store of snapshots.*set run.persistence"),
        ({"run": {"job": "x"}}, "run.job", "needs a store of snapshots, but none is given"),
        ({"persistence": {"retain": 3}}, "persistence.retain", "set run.persistence to its URL"),
        ({"run": {"on": "spark"}, "spark": {"latency": "1s", "trigger": "2s"}}, "spark.latency", "is shorter than"),
    ],
)
def test_settings_that_contradict_each_other_are_named(tables: Any, key: str, words: str) -> None:
    settings = overrides(**tables)
    for make in (settings.runtime, lambda build: settings.apply_to(SingleThreadRuntime(build))):
        with pytest.raises(ConfigError, match=words) as refused:
            make(nothing)
        assert refused.value.key == key
        assert refused.value.origin == f"--set {key}"


def test_an_option_of_a_store_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="but the code has a NoPersistence"):
        overrides(persistence={"retain": 3}).apply_to(SingleThreadRuntime(nothing, NoPersistence()))


def test_the_build_function_is_checked() -> None:
    with pytest.raises(GraphError, match="build_dataflow must be a plain function"):
        load(None, env={}).runtime(3)  # type: ignore[arg-type]


def test_the_code_is_shown_below_what_hides_it() -> None:
    code = SingleThreadRuntime(nothing, FsspecBackend("memory://x", retain=3), parallelism=4)
    settings = load(None, env={}, overrides={"run.parallelism": Override("8", "--parallelism")}).over(code)
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in settings_text(settings).splitlines()}
    place = f"code {declared_by(code).location}"
    assert lines["run.parallelism"] == f"8 --parallelism over 4 {place}"
    assert lines["run.persistence"] == f"'memory://x' {place}"
    assert lines["persistence.retain"] == f"3 {place}"
    assert set(lines) == {"run.parallelism", "run.persistence", "run.job", "persistence.retain"}


def test_every_option_of_a_run_is_a_setting_or_an_object() -> None:
    def names(kind: Any) -> set[str]:
        return {it.name for it in fields(kind)}

    run = names(RunOptions)
    assert names(RunSettings) == (run - {"listeners", "pinned"}) | {"on", "job"}
    assert names(SparkSettings) == names(SparkOptions) - run - {"spark"}
    assert names(ProcessSettings) == names(ProcessOptions) - run
    backend = set(FsspecBackend("memory://x").arguments)
    assert names(PersistenceSettings) == backend - {"url", "job", "filesystem", "store"}
    for table, kind in ((RunSettings, RunOptions), (SparkSettings, SparkOptions), (ProcessSettings, ProcessOptions)):
        defaults = {it.name: it.default for it in fields(kind)}
        for it in fields(table):
            if it.name in defaults and it.name != "persistence":
                assert it.default == defaults[it.name], it.name
    parameters = inspect.signature(FsspecBackend).parameters
    assert all(it.default == parameters[it.name].default for it in fields(PersistenceSettings))


def orders(found: VecSink, **given: Any) -> Any:
    def build(provider: StreamProvider) -> None:
        source = provider.new_stream().source("orders", connect("memory://none.csv", **given))
        source.map("parse", lambda row: row).sink("found", found)

    return build


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    path = tmp_path / "towns.csv"
    path.write_text("Ulm;130000\n")
    return path


def test_a_configured_url_replaces_that_of_the_code(towns: Path, tmp_path: Path) -> None:
    found = VecSink()
    text = f'[operators.orders]\nurl = "{towns}?delimiter=;"\noptions = {{ header = "no" }}\n'
    from_file(tmp_path, text).apply_to(SingleThreadRuntime(orders(found, delimiter=","))).execute()
    assert found.values == [["Ulm", "130000"]]


def test_options_of_the_code_remain_with_the_same_connector(towns: Path) -> None:
    found = VecSink()
    settings = overrides(operators={"orders.url": str(towns)})
    settings.runtime(orders(found, delimiter=";", header=False)).execute()
    assert found.values == [["Ulm", "130000"]]


def test_options_of_another_connector_do_not_apply(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps({"a": 1}) + "\n")
    found = VecSink()
    settings = overrides(operators={"orders.url": str(tmp_path / "rows.json")})
    settings.runtime(orders(found, delimiter=";", header=False)).execute()
    assert found.values == [{"a": 1}]


def test_options_without_a_url_lie_over_those_of_the_code(towns: Path) -> None:
    found = VecSink()

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("orders", connect(f"{towns}?header=no", delimiter=","))
        rows.sink("found", found)

    overrides(operators={"orders.options.delimiter": ";"}).runtime(build).execute()
    assert found.values == [["Ulm", "130000"]]


def test_a_configured_sink(towns: Path, tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("orders", SingleIteratorSource([{"a": 1}]))
        rows.sink("out", connect("memory://never.json"))

    overrides(operators={"out.url": str(tmp_path / "out.json")}).runtime(build).execute()
    assert (tmp_path / "out.json").exists()


def test_the_outer_configuration_of_a_build_function_wins(towns: Path) -> None:
    found = VecSink()
    inner = overrides(operators={"orders.url": "gone.csv"}).runtime(orders(found, delimiter=";", header=False))
    overrides(operators={"orders.url": str(towns)}).apply_to(inner).execute()
    assert found.values == [["Ulm", "130000"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ordres.url": "a.csv"}, "the program has no operator 'ordres'; did you mean 'orders'?"),
        ({"x.on_error": "skip"}, "the program has no operator 'x'; there are 'orders', 'parse', 'found'"),
        ({"parse.url": "a.csv"}, "operator 'parse' is neither a source nor a sink"),
        ({"found.url": "a.json"}, r"--set operators.found.url: .*py:\d+ does not make 'found' by connect\(\)"),
        ({"orders.options.delimitr": "x"}, "--set .* has no option 'delimitr'; did you mean 'delimiter'"),
        ({"orders.url": "sqlite:///x"}, "--set operators.orders.url: operators.orders: .* can't be read"),
    ],
)
def test_operators_that_can_not_be_configured_so(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        overrides(operators=settings).runtime(orders(VecSink())).execute()


def parsed(found: VecSink, letters: VecSink | None = None, **given: Any) -> Any:
    def build(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", SingleIteratorSource(["1", "x", "2"]))
        texts.map("parse", int, **given).sink("found", found)
        if letters is not None:
            provider.on_dead_letters(lambda them: them.sink("letters", letters), operators=["parse"])

    return build


@pytest.mark.parametrize(
    "settings",
    [{"operators": {"parse.on_error": "skip"}}, {"errors": {"default": "skip"}}],
    ids=["operator", "default"],
)
def test_a_configured_policy_for_failed_records(settings: Any) -> None:
    found = VecSink()
    overrides(**settings).runtime(parsed(found)).execute()
    assert found.values == [1, 2]


def test_a_policy_of_an_operator_precedes_the_code_and_the_default() -> None:
    found, letters = VecSink(), VecSink()
    settings = overrides(operators={"parse.on_error": "dead_letter"}, errors={"default": "fail"})
    settings.apply_to(SingleThreadRuntime(parsed(found, letters, on_error="skip"))).execute()
    assert [it.value for it in letters.values] == ["x"]
    found = VecSink()
    overrides(errors={"default": "dead_letter"}).runtime(parsed(found, on_error="skip")).execute()
    assert found.values == [1, 2], "the policy of the code is not to fail, so the default leaves it"


def test_limits_of_configured_policies() -> None:
    settings = overrides(errors={"default": "dead_letter", "keep": 1})
    texts = ["x", "y"]

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("texts", SingleIteratorSource(texts)).map("parse", int)

    with pytest.raises(OperatorError, match="dead letters"):
        settings.runtime(build).execute()
    overrides(errors={"default": "dead_letter", "keep": 1, "full": "drop_oldest"}).runtime(build).execute()


def test_a_policy_of_an_operator_that_can_have_none() -> None:
    with pytest.raises(GraphError, match=r"put a \.map\(\) with that on_error= before it"):
        overrides(operators={"texts.on_error": "skip"}).runtime(parsed(VecSink())).execute()


def test_a_configured_sink_of_dead_letters(tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("texts", SingleIteratorSource(["x"])).map("parse", int, on_error="dead_letter")
        provider.on_dead_letters(lambda them: them.map("text", str).sink("letters", connect("memory://none.txt")))

    overrides(operators={"letters.url": str(tmp_path / "letters.txt")}).runtime(build).execute()
    assert "ValueError" in (tmp_path / "letters.txt").read_text()


def test_policies_are_validated_and_exposed(tmp_path: Path) -> None:
    text = '[errors]\ndefault = "skip"\nbudget = { share = 0.1 }\nkeep_bytes = "1 MiB"\n'
    text += (
        '[operators."my parse"]\non_error = "dead_letter"\nretry = { attempts = 5, first = "1s", on = ["OSError"] }\n'
    )
    settings = from_file(tmp_path, text)
    assert (settings.errors.default, settings.errors.keep_bytes) == ("skip", 2**20)
    assert settings.errors.budget is not None
    assert (settings.errors.budget.share, settings.errors.budget.at_least) == (0.1, 100)
    operator = settings.operators["my parse"]
    assert (operator.on_error, operator.url) == ("dead_letter", None)
    assert operator.retry is not None
    assert (operator.retry.attempts, operator.retry.first, operator.retry.on) == (5, timedelta(seconds=1), ("OSError",))


def test_operators_in_variables() -> None:
    env = {"MALFLOW_OPERATORS__ORDERS__URL": "a.csv", "MALFLOW_OPERATORS__outFile__URL": "b.json"}
    settings = load(None, env=env | {"MALFLOW_SPARK__CONF__SPARK__EXECUTOR__MEMORY": "4g"})
    assert {name: it.url for name, it in settings.operators.items()} == {"orders": "a.csv", "outFile": "b.json"}
    assert settings.spark.conf == {"spark.executor.memory": "4g"}
