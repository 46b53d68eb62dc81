# Two commands do everything on a fresh machine with Python 3.11, pip and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-all bench fuzz fuzz-coverage lint results clean
N ?= 10000

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)  ## held-out cases of the embedded data with the bundled weights: scores, and a report to look at
	$(BIN)/berdiff demo --out out/demo

lint: $(STAMP)  ## style, types, and which folder may import which
	$(BIN)/ruff check src tests benchmarks docs/*.py
	$(BIN)/ruff format --check src tests benchmarks docs/*.py
	$(BIN)/pyright
	$(BIN)/lint-imports

test: lint  ## everything but the slow checks, under ten minutes with the installation
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

test-all: lint  ## everything
	$(BIN)/pytest

bench: $(STAMP)  ## ratios, each measured side by side in one run, to benchmarks/results.json
	$(BIN)/python -m benchmarks.run

FUZZ := PYTHONPATH=tests:tests/data:tests/output OMP_NUM_THREADS=1 $(BIN)/python -m

fuzz: $(STAMP)  ## N damaged inputs of every format that is read (docs/reliability.md)
	$(FUZZ) fuzz -n $(N)

fuzz-coverage: $(STAMP)  ## the readers alone, guided by coverage, N runs each; needs `pip install atheris`
	$(FUZZ) fuzz.coverage $(N)

results: $(STAMP)  ## docs/results/*.md from the figures in docs/results/data
	$(BIN)/python docs/make_results.py

clean:
	rm -rf $(VENV) out .pytest_cache .ruff_cache .hypothesis
