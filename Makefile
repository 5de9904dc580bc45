# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser

.PHONY: demo check quick test coverage lint format docs bench screenshots clean

# Called from here, the demo also draws the figures of the records in results/paper.
demo: $(READY)
	$(BIN)/creditscope demo --out out

# A process for each core; a file's tests stay together, because they share what is slow to make.
test: $(READY) $(BROWSER) lint
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile

# Lint, types, and everything that is not slow, side by side: a minute and a half on two cores.
check: $(READY)
	$(MAKE) -j2 lint quick

quick: $(READY)
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m 'not slow'

# Which lines of src the tests run: 98 % on a CPU, and an error below 90 %. Apart from `test`, because tracing makes it
# half as long again.
coverage: $(READY) $(BROWSER)
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile --cov

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What pages repeat from records, classes and docstrings; a test says that it is what is committed.
docs: $(READY)
	$(BIN)/python docs/make.py

# The environment is that of a worker process (train/places/here.py).
bench: export OMP_NUM_THREADS = 1
bench: export MALLOC_MMAP_THRESHOLD_ = 1073741824
bench: export MALLOC_TRIM_THRESHOLD_ = 1073741824
bench: $(READY)
	$(BIN)/python bench/step_cost.py
	$(BIN)/python bench/snapshot_cost.py
	$(BIN)/python bench/stacked.py
	$(BIN)/python bench/scaling.py
	$(BIN)/python bench/graphs.py
	$(BIN)/python bench/where.py
	$(BIN)/python bench/calibration.py
	$(BIN)/python bench/verdicts.py

screenshots: $(READY) $(BROWSER)
	$(BIN)/python tests/in_browser/screenshot.py

clean:
	rm -rf out build dist .pytest_cache .ruff_cache .hypothesis .coverage*

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "creditscope needs Python >= 3.11, this is %d.%d; try: make PYTHON=python3.12" % v[:2])'
	@echo 'Setting up $(VENV), once: pip fetches torch and the other libraries, which takes minutes and says nothing.'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
	@echo 'Set up.'

# Tried once: what the tests in a browser need, where it can be had. They are skipped where it cannot.
$(BROWSER): tests/in_browser/prepare.py | $(READY)
	-@$(BIN)/python tests/in_browser/prepare.py
	@touch $(BROWSER)
