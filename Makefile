# hpcq: every task of the house. `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.development
LOWEST := build/lowest
FUZZ_S ?= 1800
SINCE ?= HEAD~1
LIMIT_S ?= 600
COUNT ?= 200
FIRST ?= 1
# Each worker of the long tests has a lab. They mostly wait.
LONG_WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest
EXTRAS := --extra dev --extra parquet --extra plot --extra site
COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header
unexport PYTHONDONTWRITEBYTECODE # a program that compiles all its modules at each start takes three times as long to begin

.PHONY: help install setup demo test test-fast test-lowest test-lab test-long fuzz faults mutants mutants-changed check format describe docs site one-file bench bench-kernels lock audit clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(INSTALLED) ## Make the Python environment of the program alone (system packages: see tools/packages)

setup: $(DEVELOPMENT) ## The same with the tools of development

# The development lock contains the run-time lock, so one of both is installed.
$(INSTALLED): requirements.lock pyproject.toml tools/environment
	@if [ -e $(DEVELOPMENT) ]; then $(MAKE) --no-print-directory $(DEVELOPMENT); else tools/environment $(VENV); fi
	@touch $@

$(DEVELOPMENT): requirements-dev.lock pyproject.toml tools/environment
	tools/environment $(VENV) development
	@touch $@ $(INSTALLED)

demo: ## Install what is missing, run campaigns/demo-mpi.yaml on this machine, show results and report
	@tools/packages demo
	@$(MAKE) --no-print-directory install
	@$(BIN)/hpcq run campaigns/demo-mpi.yaml

test: ## Install what is missing, then all tests but the long ones, the lab's among them
	@tools/packages test
	@$(MAKE) --no-print-directory setup
	@tools/run_tests $(BIN)/python

test-fast: setup ## Tests of under a minute: no lab, no kernels at work
	@tools/fast_tests $(BIN)/python

test-lowest: setup ## The same with the oldest version of each dependency that pyproject.toml allows
	rm -rf $(LOWEST) && mkdir -p build
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --no-emit-index-url --no-header $(EXTRAS) pyproject.toml -o $(LOWEST).txt
	$(BIN)/uv venv --quiet --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST).txt
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	@tools/fast_tests $(LOWEST)/bin/python

test-lab: setup ## Tests on the real Slurm lab
	$(PYTEST) -m "lab and not long"

test-long: ## Soak tests, many seeds, 48 nodes
	@tools/packages test-long
	@$(MAKE) --no-print-directory setup
	$(PYTEST) -m "long and not quiet" -n $(LONG_WORKERS) --dist load
	$(PYTEST) -m "long and quiet"

fuzz: ## Fuzz what strangers, peers and old files hand to the kernels (FUZZ_S=1800 seconds; the corpus stays in build/)
	@tools/packages test
	@$(MAKE) --no-print-directory -C kernels/c BUILD=$(CURDIR)/build/kernels fuzz
	@mkdir -p build/fuzz-corpus
	cd build && kernels/fuzz/hpcq-fuzz -dict=../tests/fuzz/words.dict -max_total_time=$(FUZZ_S) -print_final_stats=1 fuzz-corpus ../tests/fuzz/seeds

faults: setup ## Whole campaigns while things break, drawn by seeds (COUNT=200, FIRST=1); docs/driver.md
	@tools/packages test
	$(BIN)/python -m tests.faults.campaigns_here --first $(FIRST) --count $(COUNT)

mutants: setup ## Each deliberate defect of tests/mutants (FAST=yes, AREA="claims pbs", LAB=yes), then mutants-changed
	$(BIN)/python -m tools.mutants $(foreach area,$(AREA),--area $(area)) $(if $(FAST),--fast) $(if $(LAB),--lab)
	@$(MAKE) --no-print-directory mutants-changed

mutants-changed: setup ## List defects that survive in files of hpcq that changed SINCE=HEAD~1, for LIMIT_S=600 seconds
	$(BIN)/python -m tools.mutation --since $(SINCE) --seconds $(LIMIT_S)

check: setup ## Lint, format, types, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd lab && ../$(BIN)/mypy --strict .
	$(BIN)/python -m tools.shell_scripts
	$(BIN)/clang-format --dry-run --Werror kernels/c/*.c kernels/c/*/*.[ch] tests/c/*.[ch] tests/fuzz/*.c bench/kernels/*.c lab/*.c

format: setup ## Format Python and C
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i kernels/c/*.c kernels/c/*/*.[ch] tests/c/*.[ch] tests/fuzz/*.c bench/kernels/*.c lab/*.c

describe: ## Write kernels/describe/*.json from the programs
	$(MAKE) -C kernels/c BUILD=$(CURDIR)/build/kernels describe OUT=$(CURDIR)/kernels/describe

docs: setup ## Write the generated parts of docs/ and the index of descriptions, wrap the prose
	$(BIN)/python -m tools.prose README.md CHANGELOG.md CONTRIBUTING.md $(wildcard SECURITY.md) $(filter-out docs/cli.md docs/promises.md,$(wildcard docs/*.md docs/methods/*.md))
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.man_pages
	$(BIN)/python -m tools.kernel_reference
	$(BIN)/python -m hpcq.definition.files.reference docs/campaigns.md docs/described-kernels.md
	$(BIN)/python -m hpcq.definition.kernel_file
	$(BIN)/python -m hpcq.evidence.judge docs/evidence.md
	$(BIN)/python -m tools.promises

one-file: setup ## All that the wheel does in one file for this machine's Python: build/hpcq.pyz
	@$(BIN)/python -m tools.one_file

site: setup ## Build the documentation as a site in build/site; it opens from disk and loads nothing from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: setup ## Measure against the public tools; writes bench/results/
	@code=0; for one in $(filter-out bench/harness.py,$(wildcard bench/*.py)); do \
		echo "== $$one"; $(BIN)/python $$one || code=1; done; exit $$code

bench-kernels: setup ## The socket kernels against iperf3, nuttcp, sockperf, qperf, NetPIPE and a bare loop (CELL=..., IDLE=free|held, IPERF3=PROGRAM, NEPER=FOLDER, NETPERF=FOLDER)
	@tools/packages bench
	$(BIN)/python bench/kernels/snapshot.py
	$(BIN)/python bench/kernels/peers.py $(foreach cell,$(CELL),--cell $(cell)) $(foreach idle,$(IDLE),--idle $(idle)) \
		$(if $(IPERF3),--iperf3 $(IPERF3)) $(if $(NEPER),--neper $(NEPER)) $(if $(NETPERF),--netperf $(NETPERF))
	$(BIN)/python bench/kernels/mpi_peers.py
	$(BIN)/python bench/kernels/fabric_peers.py

lock: setup ## Resolve both locks again (versions and hashes, no addresses); the run-time lock has the versions of the other
	$(COMPILE) $(EXTRAS) pyproject.toml -o requirements-dev.lock
	$(COMPILE) --constraint requirements-dev.lock --no-annotate pyproject.toml -o requirements.lock

audit: setup ## Known vulnerabilities of the locked packages; it fails where PyPI's data on them is out of reach
	$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock
	$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement requirements-dev.lock

clean: ## Remove what was built here; runs and databases stay
	rm -rf build dist kernels/c/build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
