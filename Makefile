# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
BROWSER := $(VENV)/.browser

# Tests start hundreds of processes; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check quick test engines coverage lint format docs site bench versions screenshots clean

# Called from here, the demo also draws the figures of the records in results/.
demo: $(READY)
	$(BIN)/creditscope demo --out out

# A process for each core; a file's tests stay together, because they share what is slow to make. Ray alone, afterwards.
test: $(DEV) $(BROWSER) lint
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile
	$(BIN)/python -m pytest -q -m engine tests/engines/test_own_ray.py

# Ray, Slurm and Dask as clusters of several nodes on this host; Slurm needs root and Debian's slurm-wlm and munge.
engines: $(DEV)
	$(BIN)/python -m pytest -q -m engine tests/engines

# Lint, types of src, and everything that is not slow, side by side: a minute and a half on two cores.
check: $(DEV)
	$(MAKE) -j2 lint quick TYPED=src

quick: $(DEV)
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m 'not slow and not engine'

# Which lines of src the tests run: 98 % on a CPU, and an error below 90 %. Apart from `test`, because tracing makes it
# half as long again.
coverage: $(DEV) $(BROWSER)
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --cov

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright $(TYPED)

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What pages repeat from records, classes and docstrings, which a test says is what is committed; then the site.
docs: export OMP_NUM_THREADS = 1
docs: $(DEV)
	$(BIN)/python docs/make.py
	$(MAKE) site

# Pages as they are, in seconds, and the report of the shipped records: build/site/index.html, to be read from disk.
site: $(DEV) build/site/live-report.html
	$(BIN)/python -m sphinx -W --keep-going -q -c docs . build/site
	@echo 'Open build/site/index.html'

build/site/live-report.html: $(wildcard results/paper/*) $(shell find src -type f -not -name '*.pyc') | $(DEV)
	$(BIN)/creditscope report --records results/paper --out $@

# The environment is that of a worker process (train/places/here.py).
bench: export OMP_NUM_THREADS = 1
bench: export MALLOC_MMAP_THRESHOLD_ = 1073741824
bench: export MALLOC_TRIM_THRESHOLD_ = 1073741824
bench: $(DEV)
	$(BIN)/python bench/step_cost.py
	$(BIN)/python bench/snapshot_cost.py
	$(BIN)/python bench/callback_cost.py
	$(BIN)/python bench/stacked.py
	$(BIN)/python bench/scaling.py
	$(BIN)/python bench/graphs.py
	$(BIN)/python bench/where.py
	$(BIN)/python bench/calibration.py
	$(BIN)/python bench/verdicts.py

# Every pair of Python and torch that is promised, each in an environment of its own: gigabytes, and a quarter of an hour.
versions: $(DEV)
	$(BIN)/python bench/versions.py

screenshots: $(DEV) $(BROWSER)
	$(BIN)/python tests/in_browser/screenshot.py

clean:
	rm -rf out build dist .pytest_cache .ruff_cache .hypothesis .coverage*

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "creditscope needs Python >= 3.11, this is %d.%d; try: make PYTHON=python3.12" % v[:2])'
	@echo 'Setting up $(VENV), once: pip fetches torch and the other libraries, which takes minutes and says nothing.'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $(READY)
	@echo 'Set up.'

# What tests, lint and docs need beyond that.
$(DEV): $(READY)
	@echo 'Fetching what tests need, once.'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(DEV)

# Tried once: what the tests in a browser need, where it can be had. They are skipped where it cannot.
$(BROWSER): tests/in_browser/prepare.py | $(DEV)
	-@$(BIN)/python tests/in_browser/prepare.py
	@touch $(BROWSER)
