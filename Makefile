# Two commands do everything on a fresh machine with Python 3.11, pip and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# --no-compile: what is imported is compiled then, and kept; most of the environment never is
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test test-fast test-all coverage bench fuzz fuzz-coverage lint results docs notebooks dist clean
N ?= 10000

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip  # the one that comes with Python 3.11 takes twice as long to find the versions
	$(PIP) torch
	$(PIP) -e ".[dev,docs]"
	@touch $(STAMP)

demo: $(STAMP)  ## held-out cases of the embedded data with the bundled weights: scores, and a report to look at
	$(BIN)/berdiff demo --out out/demo

lint: $(STAMP)  ## style, types, and which folder may import which
	$(BIN)/ruff check src reproduce tests benchmarks docs/*.py docs/hooks docs/notebooks
	$(BIN)/ruff format --check src reproduce tests benchmarks docs/*.py docs/hooks docs/notebooks
	$(BIN)/pyright
	$(BIN)/lint-imports

test: $(STAMP)  ## everything but the slow checks, under ten minutes with the installation
	@$(MAKE) --jobs 2 --no-print-directory lint test-fast

test-fast: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

test-all: lint  ## everything
	$(BIN)/pytest

coverage: $(STAMP)  ## which lines the fast tests run: a summary here, line by line in out/coverage/index.html
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html:out/coverage

dist: $(STAMP)  ## sdist and wheel into dist/, without the network
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist .

bench: $(STAMP)  ## ratios, each measured side by side in one run, to benchmarks/results.json
	$(BIN)/python -m benchmarks.run

FUZZ := PYTHONPATH=tests:tests/data:tests/output OMP_NUM_THREADS=1 $(BIN)/python -m

fuzz: $(STAMP)  ## N damaged inputs of every format that is read (docs/reliability.md)
	$(FUZZ) fuzz -n $(N)

fuzz-coverage: $(STAMP)  ## the readers alone, guided by coverage, N runs each; needs `pip install atheris`
	$(FUZZ) fuzz.coverage $(N)

results: $(STAMP)  ## docs/results/*.md from the figures in docs/results/data
	PYTHONPATH=. $(BIN)/python docs/make_kept_tables.py  # of what is in reproduce/
	PYTHONPATH=. $(BIN)/python docs/make_results.py

docs: $(STAMP)  ## the documentation site in site/; a broken link, a missing page or an undocumented name fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(STAMP)  ## run docs/notebooks again and keep what they print and draw
	$(BIN)/python docs/make_notebooks.py

clean:
	rm -rf $(VENV) out site build dist .coverage .pytest_cache .ruff_cache .hypothesis
