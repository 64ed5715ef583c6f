# make book, make test: each sets up what it needs. SCALE=small make book renders committed records.
SCALE ?= smoke
JOBS ?= 2
GPUS ?= 0
PYTHON ?= python3
BIN := .venv/bin
SNAKEMAKE = $(BIN)/snakemake --profile profiles/local --cores $(JOBS) --resources gpus=$(GPUS) --config scale=$(SCALE)

# Freed memory is kept: 1.4 to 2 times faster training on a CPU. One thread for each of the JOBS processes.
export MALLOC_TRIM_THRESHOLD_ := -1
export MALLOC_MMAP_MAX_ := 0
export OMP_NUM_THREADS ?= 1
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: book runs test notebooks setup clean

book: setup
	$(SNAKEMAKE) book

runs: setup
	$(SNAKEMAKE) runs

test: setup
	ruff check
	pytest -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env \
	  --nbval-sanitize-with tests/notebooks/sanitize.cfg tests $(wildcard notebooks/*.ipynb)

notebooks: setup
	$(SNAKEMAKE) notebooks

setup: .venv/ready
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -c constraints.txt -e '.[book,test]'
	$(BIN)/pip check
	touch $@

clean:
	rm -rf build .snakemake
