# One command list for people and for CI. The virtual environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HYPOTHESIS_PROFILE ?= dev
export HYPOTHESIS_PROFILE

.PHONY: run test check format clean

run: $(VENV)/.installed
	$(BIN)/python examples/flight_delays.py
	$(BIN)/python examples/flight_delays_crash.py

test: check
	$(BIN)/python -W error -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
