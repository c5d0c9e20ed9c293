# Every command is listed by `make` alone. `make up` needs no root; `make test` is exactly what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PORT ?= 8000
#: How many tests run at a time. The `process` tests always run one by one: they watch the clock.
WORKERS ?= 2
ARGS ?=

FIND_PYTHON := import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(FIND_PYTHON)' 2>/dev/null && break; done)

UV := .make/uv/bin/uv
PIP_INSTALL := $(UV) pip install --quiet --python .venv/bin/python
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock'
PACKAGES := bubblewrap postgresql runc
# Where all users find gVisor's program, or in this folder where only root may write there. One on PATH comes first.
RUNSC := $(shell if [ "$$(id -u)" = 0 ]; then echo /usr/local/lib/computepool; else echo $(CURDIR)/.make/runsc; fi)
export PATH := $(PATH):$(RUNSC)

export UV_PYTHON_DOWNLOADS ?= never
unexport VIRTUAL_ENV PYTHONHOME

.PHONY: help up setup packages test check lint types imports fuzz bench simulation fmt lock lock-peers wheel clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: .venv/.run ## start the hub and one local node on PORT=8000; Ctrl-C stops both
	@exec .venv/bin/pool up --port $(PORT) $(ARGS)

setup: .venv/.dev ## install everything for development into .venv

packages:
	@scripts/install-debian.sh $(PACKAGES)
	@scripts/install-runsc.sh $(RUNSC)

test: packages .venv/.dev check ## install what is missing, then lint, types, import rules and every test
	.venv/bin/pytest -q -n $(WORKERS) --dist loadgroup -m 'not process' $(ARGS)
	.venv/bin/pytest -q -n $(WORKERS) --dist loadgroup -m process $(ARGS)

check: lint types imports ## lint, types and import rules

lint: .venv/.dev
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --quiet --check

types: .venv/.dev
	@.venv/bin/mypy --no-error-summary

imports: .venv/.dev
	@.venv/bin/lint-imports --no-logo --no-cache | { grep -v -e ' KEPT$$' -e '^$$' -e '^-' -e '^Contracts$$' || true; }

fuzz: packages .venv/.dev ## send the API what its description allows and forbids, for long; FUZZ_EXAMPLES=200
	FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-200} .venv/bin/pytest -q tests/hub/test_fuzz.py --timeout 3600 $(ARGS)

bench: packages .venv/.dev ## measure beside other systems, and print numbers and ratios
	.venv/bin/python -m bench $(ARGS)

simulation: .venv/.dev ## rules of reputation, and cheats against verification; writes the tables in docs/ (2 min)
	.venv/bin/python -m simulation $(ARGS)

fmt: .venv/.dev ## format the code and mend what ruff can mend
	@.venv/bin/ruff check --quiet --fix || true
	@.venv/bin/ruff format

lock: $(UV) ## compile requirements/*.lock from pyproject.toml; ARGS=--upgrade takes new versions
	echo uv | $(COMPILE) $(ARGS) - --output-file requirements/uv.lock
	printf '%s\n' hatchling editables | $(COMPILE) $(ARGS) - --output-file requirements/build.lock
	$(COMPILE) $(ARGS) pyproject.toml --extra hub --constraint requirements/uv.lock --output-file requirements/run.lock
	$(COMPILE) $(ARGS) pyproject.toml --extra hub --extra dev --constraint requirements/run.lock \
		--output-file requirements/dev.lock

# The systems that `make bench` measures beside ours, each for a virtual environment of its own.
COMPILE_PEER := $(subst make lock,make lock-peers,$(COMPILE)) $(ARGS) - --output-file bench/peers/requirements
lock-peers: $(UV)
	echo 'celery[redis]' | $(COMPILE_PEER)/celery.txt
	echo distributed | $(COMPILE_PEER)/dask.txt
	printf '%s\n' procrastinate 'psycopg[binary,pool]' | $(COMPILE_PEER)/procrastinate.txt
	echo ray | $(COMPILE_PEER)/ray.txt

wheel: $(UV) ## build the wheel into dist/
	$(UV) build --quiet --wheel --build-constraints requirements/build.lock --require-hashes --out-dir dist
	@ls dist/*.whl

clean: ## remove everything that was built or installed here
	rm -rf .venv .make dist .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The stamps live in .venv, so that removing it is enough to start over. Installing never removes a package, so that
# `make up` after `make setup` keeps the tools.
.venv/.run: requirements/run.lock requirements/build.lock pyproject.toml | .venv/bin/python
	@echo 'Installing ComputePool into .venv'
	@$(PIP_INSTALL) --require-hashes --requirement requirements/run.lock
	@$(PIP_INSTALL) --no-deps --build-constraints requirements/build.lock --editable .
	@touch $@

.venv/.dev: requirements/dev.lock .venv/.run
	@echo 'Installing the development tools into .venv'
	@$(PIP_INSTALL) --require-hashes --requirement requirements/dev.lock
	@touch $@

.venv/bin/python: | $(UV)
	@$(UV) venv --quiet --python '$(PYTHON)' .venv

$(UV): requirements/uv.lock
	@scripts/install-uv.sh '$(PYTHON)'
	@touch $@
