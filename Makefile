PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test slow lint format bench clean

demo: $(STAMP)  ## find wrong labels in the embedded digits and write a page to review them
	$(BIN)/wior clean

test: lint  ## lint, type check and the test suite
	$(BIN)/pytest -n auto --dist loadfile

slow: $(STAMP)  ## the tests that take minutes: rates as slopes, the rest of the table of methods
	$(BIN)/pytest -m slow -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## microseconds a step against a hand-written scan
	$(BIN)/python benchmarks/steps.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
