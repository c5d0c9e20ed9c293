# Every command is listed by `make` alone. `make up` needs no root; `make test` is exactly what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PORT ?= 8000
#: How many tests run at a time, for two cores. The `process` tests mostly wait; those of a file run on one worker, and so
#: share their hubs and browsers.
WORKERS ?= 3
PROCESS_WORKERS ?= 4
ARGS ?=

FIND_PYTHON := import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(FIND_PYTHON)' 2>/dev/null && break; done)

UV := .make/uv/bin/uv
PIP_INSTALL := $(UV) pip install --quiet --python .venv/bin/python
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock'
PACKAGES := bubblewrap postgresql runc zstd
# The tests of images: what is in them, and a registry to fetch them from.
TEST_PACKAGES := busybox-static docker-registry
# The tests of the dashboard use the browser of the distribution; none is ever downloaded.
BROWSER := chromium fonts-liberation
# Where all users find gVisor's program, or in this folder where only root may write there. One on PATH comes first.
RUNSC := $(shell if [ "$$(id -u)" = 0 ]; then echo /usr/local/lib/computepool; else echo $(CURDIR)/.make/runsc; fi)
export PATH := $(PATH):$(RUNSC)

export UV_PYTHON_DOWNLOADS ?= never
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1
export NEXT_TELEMETRY_DISABLED := 1
# Without compiled files, each of the hundreds of programs that the tests start would compile what it imports.
unexport VIRTUAL_ENV PYTHONHOME PYTHONDONTWRITEBYTECODE

.PHONY: help up dashboard web setup packages browser test soak check lint types imports web-check web-test fuzz bench simulation fmt lock \
	lock-peers wheel dev-web screenshots clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: .venv/.run dashboard ## start the hub, its dashboard and one local node on PORT=8000; Ctrl-C stops them
	@exec .venv/bin/pool up --port $(PORT) $(ARGS)

# For `make up`: what cannot be built here is no reason not to start.
dashboard:
	@if ! scripts/has-node.sh; then echo 'The hub serves its plain pages instead.'; \
	elif ! $(MAKE) web; then echo 'The hub serves what was built before, or its plain pages.'; fi

web: web/out/index.html ## build the dashboard into web/out, when something in web/ has changed
	@:

setup: .venv/.dev .make/npm ## install everything for development into .venv

packages:
	@scripts/install-debian.sh $(PACKAGES) $(TEST_PACKAGES)
	@scripts/install-runsc.sh $(RUNSC)

browser:
	@scripts/install-debian.sh $(BROWSER)

PYTEST := .venv/bin/pytest -q -n $(WORKERS)
PYTEST_BY_FILE := .venv/bin/pytest -q -n $(PROCESS_WORKERS) --dist loadfile --no-loadscope-reorder

test: packages browser .venv/.dev check web-test web ## install what is missing, then lint, types, import rules and the tests
	$(PYTEST) -m 'not process and not soak' $(ARGS)
	$(PYTEST_BY_FILE) -m 'process and not soak' $(ARGS)

soak: packages browser .venv/.dev web ## the long tests: every browser case, sandbox level, fault and fuzz
	$(PYTEST) -m 'not process and soak' $(ARGS)
	$(PYTEST_BY_FILE) -m 'process and soak' $(ARGS)

check: lint types imports web-check ## lint, types and import rules, of Python and of the dashboard

lint: .venv/.dev
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --quiet --check

types: .venv/.dev
	@.venv/bin/mypy --no-error-summary

imports: .venv/.dev
	@.venv/bin/lint-imports --no-logo --no-cache | { grep -v -e ' KEPT$$' -e '^$$' -e '^-' -e '^Contracts$$' || true; }

# The typed client is committed, so that a build needs no hub; here it is held against the API's description.
web-check: .make/npm
	@cd web && node_modules/.bin/biome check --log-level=error . >/dev/null
	@cd web && node_modules/.bin/next typegen >/dev/null && node_modules/.bin/tsc --noEmit
	@cd web && node_modules/.bin/openapi-typescript ../docs/openapi.json -o ../.make/schema.d.ts >/dev/null 2>&1
	@cmp --silent .make/schema.d.ts web/lib/api/schema.d.ts || \
		{ echo 'web/lib/api/schema.d.ts is not what docs/openapi.json says: cd web && npm run client' >&2; exit 1; }

# What the dashboard computes without a browser; the tests with one are in tests/web.
web-test: .make/npm
	@cd web && node_modules/.bin/vitest run --reporter=dot

dev-web: .make/npm ## the dashboard as it is being written, on port 3000, beside the hub that `make up` runs on PORT
	@cd web && HUB_URL=http://127.0.0.1:$(PORT) node_modules/.bin/next dev $(ARGS)

screenshots: packages browser .venv/.dev web ## fill a pool with people, nodes and jobs, and save pictures of every page in docs/pictures
	.venv/bin/python -m scripts.screenshots $(ARGS)

fuzz: packages .venv/.dev ## send the API what its description allows and forbids, for long; FUZZ_EXAMPLES=200
	FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-200} .venv/bin/pytest -q tests/hub/http/test_fuzz.py --timeout 3600 $(ARGS)

bench: packages .venv/.dev ## measure beside other systems, and print numbers and ratios
	.venv/bin/python -m bench $(ARGS)

simulation: .venv/.dev ## rules of reputation, and cheats against verification; writes the tables in docs/ (2 min)
	.venv/bin/python -m simulation $(ARGS)

fmt: .venv/.dev .make/npm ## format the code and mend what ruff and Biome can mend
	@.venv/bin/ruff check --quiet --fix || true
	@.venv/bin/ruff format
	@cd web && node_modules/.bin/biome check --write --log-level=error . || true

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

wheel: $(UV) web ## build the wheel, with the dashboard in it, and the sdist into dist/
	$(UV) build --quiet --wheel --sdist --build-constraints requirements/build.lock --require-hashes --out-dir dist
	@ls dist/*.whl

clean: ## remove everything that was built or installed here
	rm -rf .venv .make dist .ruff_cache .hypothesis web/node_modules web/.next web/out web/tsconfig.tsbuildinfo
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
	@$(PIP_INSTALL) --compile-bytecode --require-hashes --requirement requirements/dev.lock
	@touch $@

.venv/bin/python: | $(UV)
	@$(UV) venv --quiet --python '$(PYTHON)' .venv

# `npm ci` takes the very bytes that the lock names, from whatever registry this machine uses.
.make/npm: web/package.json web/package-lock.json
	@scripts/has-node.sh
	@echo "Installing the dashboard's parts into web/node_modules"
	@cd web && npm ci --loglevel=error
	@mkdir -p .make && touch $@

WEB_SOURCES := $(shell find web/app web/components web/lib web/public -type f 2>/dev/null) \
	$(wildcard web/*.json web/*.ts web/*.mjs) docs/openapi.json
web/out/index.html: .make/npm $(filter-out web/next-env.d.ts web/package.json,$(WEB_SOURCES))
	@scripts/build-dashboard.sh

$(UV): requirements/uv.lock
	@scripts/install-uv.sh '$(PYTHON)'
	@touch $@
