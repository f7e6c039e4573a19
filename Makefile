# queuectl. `make venv` and `make test` need Python 3.11 and make, nothing else; the rig needs Go >= 1.26 once.
PYTHON ?= python3.11
UV_VERSION := 0.13.9
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/queuectl
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
BIN := .venv/bin
RIG ?=
export RIG
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help venv test lint unit rig-build rig chromium demo api proof-release proof-demo proof-fairness bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

$(UV):
	@echo "fetching uv $(UV_VERSION)"
	@$(PYTHON) -m venv $(CACHE)/uv-$(UV_VERSION)
	@$(CACHE)/uv-$(UV_VERSION)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.ready: pyproject.toml uv.lock | $(UV)
	@echo "installing into .venv"
	@# The second try is for networks whose proxy has certificates that only the system knows.
	@$(UV) sync --quiet --locked --python $(PYTHON) 2>/dev/null || $(UV) sync --quiet --locked --python $(PYTHON) --system-certs
	@touch $@
	@echo "ready: $(BIN)/queuectl"

venv: .venv/.ready ## the environment, with .venv/bin/queuectl

lint: venv ## style, types, architecture
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: lint ## everything that CI runs; with the real control plane where it is built or RIG=require
	@if [ "$(RIG)" = require ]; then $(BIN)/python -m tests.rig.build --kubectl && $(MAKE) --no-print-directory chromium; fi
	@SAMPLE=1 $(MAKE) --no-print-directory proof-release
	@SAMPLE=1 $(MAKE) --no-print-directory proof-demo
	@$(BIN)/python -m pytest -q

unit: venv ## the tests that need no control plane
	@RIG=off $(BIN)/python -m pytest -q

rig-build: venv ## build the real control plane into the cache (about 15 minutes, once)
	@$(BIN)/python -m tests.rig.build --kubectl

chromium: ## the browser of the dashboard's tests, from Debian, where it is missing (as root)
	@command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium fonts-dejavu-core; } >/dev/null \
	  || { echo "install Chromium (Debian: apt-get install chromium, as root)"; exit 1; }

rig: venv ## run a real control plane with four fake nodes, until Ctrl-C
	@$(BIN)/python -m tests.rig

demo: venv ## watch gangs flow through queues, without a cluster (ARGS="--help" tells more)
	@$(BIN)/queuectl demo $(ARGS)

proof-release: venv ## every claim about release, measured (SAMPLE=1: a fixed sample)
	@$(BIN)/python -m tests.proofs.release

proof-demo: venv ## every claim about the demo and the cluster in memory, measured (SAMPLE=1: a fixed sample)
	@$(BIN)/python -m tests.proofs.demo

proof-fairness: venv ## every claim about fair shares, measured (SAMPLE=1: a fixed sample; not part of make test yet)
	@$(BIN)/python -m tests.proofs.fairness

api: venv ## write api/ from the models
	@$(BIN)/python -m queuectl.contract.publish

bench: venv ## the benchmarks, one JSON line each
	@for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

clean: ## remove the environment and caches of this checkout
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
