# `make help` lists the targets. PYTHON=/path/to/python3 chooses the Python that the virtual environment is made from.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: build test test-full generate check lint bench clean help

build: generate $(VENV)/tallow.stamp  ## set everything up, generate the package and train the example on it
	@$(BIN)/python examples/digits.py

test: check $(VENV)/tallow.stamp  ## what every change must pass
	@$(BIN)/pytest -n auto

test-full: check $(VENV)/tallow.stamp  ## the same with the slow sweeps
	@$(BIN)/pytest -n auto --full

generate: $(VENV)/opgen.stamp  ## write generated/ from spec/ and templates/
	@$(BIN)/opgen generate

check: $(VENV)/opgen.stamp  ## is the spec right, and is generated/ what it says?
	@$(BIN)/opgen check

lint: $(VENV)/tallow.stamp  ## formatting, style and types
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy

bench: $(VENV)/tallow.stamp  ## the CPU backend beside plain NumPy
	@$(BIN)/python benchmarks/cpu.py

clean:  ## remove the virtual environment, what was built and all caches
	rm -rf $(VENV) build generated/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@python=$$(.ci/python $(PYTHON)) && \
		echo "making $(VENV) with $$($$python --version)" && $$python -m venv $(VENV)

# A stamp stands for an installation, which is made again when the file that lists its dependencies changes.
$(VENV)/opgen.stamp: pyproject.toml | $(BIN)/python
	@echo "installing opgen and what it is developed with"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/tallow.stamp: generated/pyproject.toml $(VENV)/opgen.stamp
	@echo "installing tallow"
	@$(PIP) --editable ./generated
	@touch $@

generated/pyproject.toml: | $(VENV)/opgen.stamp
	@$(BIN)/opgen generate
