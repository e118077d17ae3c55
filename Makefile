# One command list for people and for CI. The virtual environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HYPOTHESIS_PROFILE ?= dev
export HYPOTHESIS_PROFILE
# How many processes share the tests, a file each at a time: one for each processor, or a number; 0 is this one alone.
WORKERS ?= auto

.PHONY: run test spark check format docs clean

run: $(VENV)/.installed
	$(BIN)/python examples/flight_delays.py
	$(BIN)/python examples/flight_delays_crash.py

test: check
	PYTHONWARNINGS=error $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Those tests only that run on Spark; they need Java 17, and are skipped where there is none.
spark: $(VENV)/.dev
	PYTHONWARNINGS=error $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m spark

check: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The site, in docs/_build.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml malflow/version.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: pyproject.toml malflow/version.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
