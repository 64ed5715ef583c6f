# make book, make pdf, make test: each sets up what it needs. SCALE=small make book renders committed records.
# Chapters run once, for the book; `make check` compares their outputs with the stored ones. nbval runs three of them in
# `make test`, all of them in `make nbval`, and one in `make nbval CHAPTERS=notebooks/07_pg19.ipynb`.
SCALE ?= smoke
JOBS ?= 2
GPUS ?= $(shell nvidia-smi -L 2>/dev/null | wc -l)
PYTHON ?= python3
BIN := .venv/bin
THREE = 03_evaluation_revisited 05_memory_and_recomputation 13_factorised_attention
CHAPTERS = $(wildcard notebooks/*.ipynb)
PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --nbval-lax --nbval-current-env \
  --nbval-sanitize-with tests/notebooks/sanitize.cfg
OPTIONS = --profile profiles/local --cores $(JOBS) --resources gpus=$(GPUS) --config scale=$(SCALE)

# Freed memory is kept: 1.4 to 2 times faster training on a CPU. One thread for each of the JOBS processes.
export MALLOC_TRIM_THRESHOLD_ := -1
export MALLOC_MMAP_MAX_ := 0
export OMP_NUM_THREADS ?= 1
# Threads that wait for work spin briefly and then sleep. Those that go on spinning take the cores of other processes.
ifndef OMP_WAIT_POLICY
export GOMP_SPINCOUNT ?= 1000
endif
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: book check pdf runs test nbval versions wheel notebooks setup clean

book: setup
	$(BIN)/snakemake book $(OPTIONS)
	@echo 'The book is in build/html/index.html'

check: setup
	$(BIN)/snakemake check $(OPTIONS)

pdf: setup
	$(BIN)/snakemake pdf $(OPTIONS)

# With BUDGET=12m in one process: the runs that decide the most claims first, until the time is up. It keeps one thread,
# because more of them sum floats in another order: records would depend on whether a run was made with a budget.
runs: setup
ifdef BUDGET
	$(BIN)/repro run --scale $(SCALE) --budget $(BUDGET)
else
	$(BIN)/snakemake runs $(OPTIONS)
endif

test: setup
	$(BIN)/ruff check
	$(PYTEST) tests $(THREE:%=notebooks/%.ipynb)

nbval: setup
	$(PYTEST) $(CHAPTERS)

versions: setup
	.ci/versions

wheel: setup
	$(BIN)/pytest -q tests/smoke/wheel.py

notebooks: setup
	$(BIN)/snakemake notebooks $(OPTIONS)

setup: .venv/ready
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -c constraints.txt -e '.[book,test]'
	$(BIN)/pip check
	touch $@

clean:
	rm -rf build .snakemake
