# One command list for people and for CI. The virtual environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HYPOTHESIS_PROFILE ?= dev
export HYPOTHESIS_PROFILE
# Where this is set, each process of the tests compiles what it imports, and pytest rewrites every assertion anew.
unexport PYTHONDONTWRITEBYTECODE
# How many processes share the tests, a file each at a time: three for two processors, as tests wait half of their time, or
# a number; 0 is this one alone. All tests on Spark are in one of them.
WORKERS ?= auto
# Which tests of the night run beside the others: none by default, all, or a tenth by a number in hex, such as the hash of a commit.
SLICE ?=
# How many of the slowest tests to list at the end; none by default.
DURATIONS ?=
PYTEST = PYTHONWARNINGS=error $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
	$(if $(SLICE),--slice $(SLICE)) $(if $(DURATIONS),--durations=$(DURATIONS))

.PHONY: run quick quick-0 quick-1 newest bare test nightly spark crashes servers archive bytecode check format reference vendor docs wheel clean

run: $(VENV)/.installed
	$(BIN)/python examples/flight_delays.py
	$(BIN)/python examples/flight_delays_crash.py

# What to run while working: the checks, and the tests that are neither on Spark nor slow. Two processes have half of the
# files each: those of pytest-xdist would collect all of them twice.
quick: $(VENV)/.dev
	$(MAKE) --no-print-directory --keep-going --output-sync=target -j3 check quick-0 quick-1

quick-0 quick-1: quick-%: $(VENV)/.dev
	PYTHONWARNINGS=error $(BIN)/python -m pytest -q -m "not spark and not slow" --share $*/2

# The quick tests on the newest Python beside this one, where there is one, in an environment of its own.
newest: $(VENV)/.dev
	@newest="$$($(BIN)/python -m tests.kit.newest_python)"; \
	if [ -z "$$newest" ]; then echo "no Python here is newer than $$($(BIN)/python --version)"; exit; fi; \
	echo "The quick tests on $$newest:"; \
	$(MAKE) --no-print-directory --keep-going --output-sync=target -j2 quick-0 quick-1 \
		PYTHON="$$newest" VENV="$(VENV)/$$(basename "$$newest")"

# The quick tests in an environment without numpy, pandas, pyarrow, deltalake and pyspark, or without what WITHOUT names:
# tests that need them are skipped with a reason.
WITHOUT ?=
bare: $(VENV)/.dev
	$(BIN)/python -m tests.kit.bare_python $(VENV)/bare $(WITHOUT)
	PYTHONWARNINGS=error $(VENV)/bare/bin/python -m pytest -q -m "not spark and not slow"

# What must pass before work lands: all but the tests of the night, which SLICE adds.
test: check servers archive bytecode
	$(PYTEST)

# Everything, the tests of the night too; HYPOTHESIS_PROFILE=nightly tries more examples and larger sizes, for hours.
nightly: SLICE = all
nightly: test

# The tests on Spark only; they need Java 17, and are skipped where there is none.
spark: $(VENV)/.dev archive bytecode
	$(PYTEST) -m spark

# Jobs with exactly-once sinks killed at every point, ROUNDS times each; hours.
ROUNDS ?= 10
crashes: $(VENV)/.dev servers bytecode
	$(BIN)/python -m tests.crashes $(ROUNDS) -n $(WORKERS) --maxprocesses 4 --dist worksteal

# The servers and the browser that tests need, where they are missing: Postgres, MariaDB, Redis, Prometheus, Chromium, Kafka and
# versitygw, the last two in .servers.
servers: $(VENV)/.dev
	$(BIN)/python -m tests.servers.install

# The classes of Spark as its Java loads them fastest, in the virtual environment; tests start Java often.
archive: $(VENV)/.dev
	$(BIN)/python -m tests.kit.java_archive

# Tests start processes by the hundred; without this, the first of them compile the same modules at the same time.
bytecode: $(VENV)/.dev
	$(BIN)/python -m compileall -q malflow tests examples benchmarks

check: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# docs/api.md and the end of docs/configuration.md, from the signatures and docstrings; docs/command_line.md, from the commands.
reference: $(VENV)/.dev
	$(BIN)/python -m docs.api_page
	$(BIN)/python -m docs.command_line_page

# The libraries of the page, fetched anew in the versions that tests/serve/vendor.py names; needs npm.
vendor: $(VENV)/.dev
	$(BIN)/python -m tests.serve.vendor

# The site, in docs/_build.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

# The wheel, in dist.
wheel: $(BIN)/python
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml malflow/version.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: pyproject.toml malflow/version.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.docs: pyproject.toml malflow/version.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
