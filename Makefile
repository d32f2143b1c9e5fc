# Two commands do everything on a machine with Python ≥ 3.11 and make: `make run` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The tests run in parallel processes; a BLAS that starts threads of its own in each would only fight.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: run test test-slow bench clean

run: $(VENV)/.installed            ## the cosine problem, all configurations: out/quick/report.html
	$(BIN)/rarely reproduce cosine --preset practical --rounds 1000 --runs 3 --out out/quick

test: $(VENV)/.installed           ## lint, types, arrows, doctests, tests; the core's once more without its compiled loops
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto -m "not slow"
	$(ONE_THREAD) RARELY_COMPILED=0 $(BIN)/python -m pytest -n auto -q -r fE tests/core tests/contracts

test-slow: $(VENV)/.installed      ## the tests that take minutes
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow

bench: $(VENV)/.installed          ## every figure of docs/performance.md but the longest, against docs/baseline.json
	$(BIN)/rarely bench $(if $(wildcard docs/baseline.json),--baseline docs/baseline.json)

clean:
	rm -rf $(VENV) src/rarely/core/native/*.so out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml hatch_build.py $(wildcard src/rarely/core/native/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rarely needs Python 3.11 or newer; set PYTHON=python3.12, say")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lab,dev]'
	touch $@
