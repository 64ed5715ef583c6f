# make book, make pdf, make test: each sets up what it needs. SCALE=small make book renders committed records.
SCALE ?= smoke
JOBS ?= 2
GPUS ?= $(shell nvidia-smi -L 2>/dev/null | wc -l)
PYTHON ?= python3
BIN := .venv/bin
OPTIONS = --profile profiles/local --cores $(JOBS) --resources gpus=$(GPUS) --config scale=$(SCALE)

# Freed memory is kept: 1.4 to 2 times faster training on a CPU. One thread for each of the JOBS processes.
export MALLOC_TRIM_THRESHOLD_ := -1
export MALLOC_MMAP_MAX_ := 0
export OMP_NUM_THREADS ?= 1

.PHONY: book pdf runs test versions notebooks setup clean

book: setup
	$(BIN)/snakemake book $(OPTIONS)
	@echo 'The book is in build/html/index.html'

pdf: setup
	$(BIN)/snakemake pdf $(OPTIONS)

runs: setup
	$(BIN)/snakemake runs $(OPTIONS)

test: setup
	$(BIN)/ruff check
	$(BIN)/pytest -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env \
	  --nbval-sanitize-with tests/notebooks/sanitize.cfg tests $(wildcard notebooks/*.ipynb)

versions: setup
	.ci/versions

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
