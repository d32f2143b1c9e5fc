# Two commands do everything on a machine with Python ≥ 3.11 and make: `make run` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The tests run in parallel processes; a BLAS that starts threads of its own in each would only fight.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# Many tests start a Python of their own, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
# A build of torch for processors comes by its exact version: the extra alone would fetch a newer one, with gigabytes for GPUs.
TORCH ?= 2.13.0
PIP := python -m pip install --quiet --disable-pip-version-check
# What an installation depends on.
SOURCES := pyproject.toml lab/pyproject.toml hatch_build.py $(wildcard src/rarely/_core/native/*.[ch])

.PHONY: run reproduce lint test only-test test-torch test-extras test-slow api-test crash-test kill-test fuzz docs sanitize bench wheels wheel-test clean

run: $(VENV)/.lab                  ## six policies on the quadratic problem, in a minute: out/quick
	$(BIN)/rarely reproduce --quick --out out/quick

# Ten runs of everything: many hours on two cores. Stop it at any moment; the same command goes on.
reproduce: $(VENV)/.lab            ## the paper's experiments in full: out/full/report.html, out/full/records.jsonl.xz
	$(BIN)/rarely reproduce cosine quadratic mushroom magic cosine-sd quadratic-sd magic-m400 --runs 10 --out out/full
	$(BIN)/rarely reproduce growth --preset practical --runs 10 --out out/full
	$(BIN)/rarely report out/full --publish out/full/records.jsonl.xz --markdown out/full/results.md

lint: $(VENV)/.installed           ## lint, types, arrows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config lab/pyproject.toml

# The tests that compare what the compiled loops compute with plain arithmetic, which run once more without the loops.
LOOPS := contracts/test_covariance laws/test_dense_algorithm core/test_block_objective core/test_network core/test_policies \
	core/test_running core/test_training
COMPILED := $(BIN)/python -c 'import sys; from rarely._core import native; sys.exit(not native.available())'

# mypy keeps one core busy for longer than ruff and import-linter take, so all three run beside the tests. What they say comes last.
test: $(VENV)/.installed           ## lint, types, arrows, doctests and tests; those of the compiled loops once more without them
	@$(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 & linting=$$!; \
	$(MAKE) --no-print-directory only-test; tested=$$?; \
	wait $$linting; linted=$$?; cat $(VENV)/lint.log; exit $$((tested || linted))

# A file's tests stay in one process, so that what they share is made once.
only-test: $(VENV)/.installed      ## the tests without lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"
	@$(COMPILED) || echo "there are no compiled loops, so the tests have run without them: no second run"
	! $(COMPILED) || $(ONE_THREAD) RARELY_COMPILED=0 EXAMPLES=5 $(BIN)/python -m pytest -n auto --dist worksteal -q -r fE \
	    -m "not slow and not once" $(LOOPS:%=tests/%.py)

test-torch: $(VENV)/torch-$(TORCH)/.installed  ## models of torch, with its CPU build in an environment of its own; TORCH=2.4.0 for the oldest
	$(ONE_THREAD) $(VENV)/torch-$(TORCH)/bin/python -m pytest -q -n auto --dist worksteal -m "not slow" -o addopts="--doctest-modules --import-mode=importlib -ra" \
	    tests/torch_models lab/tests/gpu src/rarely/torch lab/src/rarely_lab/gpu

# What some users install beside the package, and the compiled loops of the other processor under an emulator.
EXTRA_PACKAGES := torch ray pandas polars pyarrow lightgbm vowpalwabbit bayesianbandits
EXTRA_TESTS := $(addprefix tests/,cluster ensembles core/test_network.py core/test_sgd.py frames/test_libraries.py logs/test_files.py) \
	$(addprefix lab/tests/,compare/test_policies_and_problems.py compare/test_rivals_of_others.py engine/test_ray_executor.py)

test-extras: $(VENV)/extras/.installed $(VENV)/.installed  ## what needs torch, Ray, polars, pyarrow, LightGBM, Vowpal Wabbit or an emulator; long tutorials
	$(ONE_THREAD) $(VENV)/extras/bin/python -m pytest -q -n auto --dist worksteal -m "not slow" $(EXTRA_TESTS)
	RARELY_EMULATED=1 $(ONE_THREAD) $(VENV)/extras/bin/python -m pytest -q -n auto --dist worksteal -k emulated \
	    tests/core/test_native.py tests/core/test_block_objective.py
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n auto --dist worksteal -m slow tests/test_tutorials.py

test-slow: $(VENV)/.installed      ## the tests that take minutes
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow

api-test: $(VENV)/.installed       ## the service under schemathesis, which makes requests from the description of the API
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/api 'schemathesis>=4'
	PYTHONPATH=$(abspath $(VENV))/api $(ONE_THREAD) $(BIN)/python -m pytest -q -m slow tests/service/test_schemathesis.py

crash-test: $(VENV)/.installed     ## studies under kill -9: 1000 times with SQLite, 200 times with PostgreSQL and its server
	$(ONE_THREAD) $(BIN)/python tests/crash_rounds.py

kill-test: $(VENV)/.installed $(VENV)/extras/.installed  ## 200 kills of studies, most of them in a training, 50 of PostgreSQL, 200 of a decider, and 200 fleets: nothing lost
	$(ONE_THREAD) $(BIN)/python tests/crash_rounds.py --sqlite 100 --postgresql 100 --updates 0.5 --fatal 1 --every 2
	KILLS=200 $(ONE_THREAD) $(VENV)/extras/bin/python -m pytest -q tests/cluster/test_fleet.py -k kill_9
	FLEETS=200 $(ONE_THREAD) $(VENV)/extras/bin/python -m pytest -q -n auto tests/cluster/test_random_fleets.py

MINUTES ?= 10
fuzz: $(VENV)/.installed           ## look for faults for MINUTES=10: random lives, exact fractions, interrupts, forged files, mutants
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)

docs: $(VENV)/docs/.installed      ## the documentation in build/docs: no warnings, links that lead somewhere, code that runs, long tutorials too
	rm -rf build/docs
	$(VENV)/docs/bin/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	$(VENV)/docs/bin/python docs/check_links.py build/docs
	$(ONE_THREAD) $(VENV)/docs/bin/python -m pytest -q tests/test_docs.py tests/test_architecture.py \
	    tests/test_readme.py tests/test_tutorials.py
	@echo "open build/docs/index.html"

sanitize: $(VENV)/.installed       ## the compiled loops under AddressSanitizer with UBSan, then under ThreadSanitizer
	set -e; for sanitizer in address,undefined thread; do \
	    $(ONE_THREAD) RARELY_SANITIZER=$$sanitizer $(BIN)/python -m pytest -q tests/core/test_native.py tests/core/test_compiled_step.py; \
	done

bench: $(VENV)/.lab                ## every figure of docs/performance.md but the longest, compared with docs/baseline.json
	$(BIN)/python benchmarks/bench.py --baseline docs/baseline.json

# Zig's target = the wheel's platform. Zig compiles C for all of them on any machine, for glibc as of 2014.
WHEELS := \
	x86_64-linux-gnu.2.17=manylinux_2_17_x86_64.manylinux2014_x86_64 \
	aarch64-linux-gnu.2.17=manylinux_2_17_aarch64.manylinux2014_aarch64 \
	x86_64-linux-musl=musllinux_1_1_x86_64 \
	aarch64-linux-musl=musllinux_1_1_aarch64 \
	x86_64-macos.11.0=macosx_11_0_x86_64 \
	aarch64-macos.11.0=macosx_11_0_arm64 \
	x86_64-windows-gnu=win_amd64

wheels: $(VENV)/wheels/.installed  ## the source distribution and a wheel with compiled loops for each platform: dist/
	rm -rf dist
	$(VENV)/wheels/bin/python -m build --no-isolation --sdist
	$(VENV)/wheels/bin/python -m build --no-isolation --outdir dist lab
	set -e; for pair in $(WHEELS); do \
	    RARELY_CC="$(abspath $(VENV))/wheels/bin/python -m ziglang cc -target $${pair%%=*} -s" RARELY_TARGET=$${pair#*=} \
	    RARELY_COMPILED=1 $(VENV)/wheels/bin/python -m build --no-isolation --wheel; \
	done

wheel-test:                        ## the wheel of this machine in an empty environment, with no compiler on the PATH
	rm -rf $(VENV)/empty
	$(PYTHON) -m venv $(VENV)/empty
	$(VENV)/empty/bin/python -m pip install --quiet --disable-pip-version-check numpy
	PATH=/nowhere $(abspath $(VENV))/empty/bin/python -m pip install --quiet --disable-pip-version-check \
	    --no-index --no-deps --only-binary :all: --find-links dist rarely
	PATH=/nowhere PYTHONPATH= RARELY_COMPILED=1 $(abspath $(VENV))/empty/bin/python -P tests/wheel_check.py dist

$(VENV)/extras/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)/extras
	$(VENV)/extras/bin/$(PIP) torch==$(TORCH)
	$(VENV)/extras/bin/$(PIP) -e '.[cli,plan,dev,torch,ray,parquet]' -e ./lab polars lightgbm vowpalwabbit bayesianbandits
	$(VENV)/extras/bin/python -c 'import importlib; [importlib.import_module(name) for name in "$(EXTRA_PACKAGES)".split()]'
	touch $@

$(VENV)/torch-$(TORCH)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)/torch-$(TORCH)
	$(VENV)/torch-$(TORCH)/bin/$(PIP) torch==$(TORCH)
	$(VENV)/torch-$(TORCH)/bin/$(PIP) -e '.[cli,plan,dev,torch]' -e ./lab
	touch $@

$(VENV)/wheels/.installed:
	$(PYTHON) -m venv $(VENV)/wheels
	$(VENV)/wheels/bin/python -m pip install --quiet --disable-pip-version-check build 'hatchling>=1.25' ziglang==0.17.0
	touch $@

$(VENV)/docs/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/$(PIP) -e '.[plan,serve,docs]' -e ./lab
	touch $@

clean:
	rm -rf $(VENV) src/rarely/_core/native/_native.* src/rarely/_core/native/_native_build.json out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

define INSTALL
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rarely needs Python 3.11 or newer; set PYTHON=python3.12, say")'
	@echo "installing into $(VENV), once; this takes a minute or two"
	$(PYTHON) -m venv $(VENV)
endef

# What builds both packages is installed once, and in one environment. What a run does not import, nobody compiles.
BUILD := 'hatchling>=1.25' editables

$(VENV)/.lab: $(SOURCES)
	$(INSTALL)
	$(BIN)/$(PIP) --no-compile $(BUILD)
	$(BIN)/$(PIP) --no-compile --no-build-isolation -e '.[cli]' -e ./lab
	touch $@

$(VENV)/.installed: $(SOURCES)
	$(INSTALL)
	$(BIN)/$(PIP) $(BUILD)
	$(BIN)/$(PIP) --no-build-isolation -e '.[cli,plan,dev]' -e ./lab
	touch $(VENV)/.lab $@
