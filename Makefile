# Every target works from a fresh clone, twice in a row, and from a path with a space in it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
ENGINE ?=
VLLM ?=
ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python
# pip's own notices are no news to somebody who only wants to start.
PIP := env PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet --constraint constraints.txt
# Runs a command that downloads; a connection that breaks off is no reason to give up.
AGAIN := again() { for pause in 5 20 0; do if "$$@"; then return; fi; \
  if [ $$pause != 0 ]; then echo "That failed; trying again in $$pause s."; sleep $$pause; fi; done; \
  echo "That failed three times: see above. Is the network there?"; return 1; }; again

.PHONY: help
help: ## Show this list
	@echo "Tailscope: why the slowest requests of an LLM server are slow, and whose load made them slow."
	@echo
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14
	@echo
	@echo "make run ENGINE=http://host:8000 reads a real engine in place of the recording."

.PHONY: run
run: $(VENV)/.app ## Start the demo, or the exporter and the app on ENGINE=http://host:8000
	@if [ -n "$(ENGINE)" ]; then \
	  exec $(PY) -m tailscope.cli run --engine "$(ENGINE)" $(ARGS); \
	else \
	  exec $(PY) -m tailscope.cli demo $(ARGS); \
	fi

.PHONY: test
test: $(VENV)/.dev .tools/.ready lint ## Set up all that tests need, check the code and run every test
	@echo "Running the tests: about 8 minutes on 2 cores."
	@$(PY) -m pytest --numprocesses 2 --dist loadfile -m "not schema" $(ARGS)

.PHONY: test-engines
test-engines: $(VENV)/.dev ## Start real engines on the CPU and compare; with VLLM=1 vLLM too
	@bash tests/engines/setup.sh "$(PYTHON)" llamacpp litellm dynamo $(if $(VLLM),vllm)
	@$(PY) -m pytest --engines tests/engines $(ARGS)

.PHONY: test-schema
test-schema: $(VENV)/.dev .tools/schema/.ready ## Check the boards against the types of four Grafana versions
	@$(PY) -m pytest -m schema tests/test_schema.py $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## Check style and types
	@echo "Checking style and types."
	@$(PY) -m ruff format --check --quiet . || { echo "Mend it with: make format"; exit 1; }
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy

.PHONY: format
format: $(VENV)/.dev ## Bring the code into the project's style
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

.PHONY: build
build: $(VENV)/.dev ## Write the dashboards, the alert rules and the generated docs
	@$(PY) -m tailscope.cli dashboards build
	@$(PY) -m tailscope.cli alerts build
	@$(PY) -m tailscope.document

.PHONY: bench
bench: $(VENV)/.dev ## Measure what the exporter and the triage cost
	@$(PY) -m tests.bench $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev ## Kill the exporter 200 times under load and fill its disk: about 10 minutes
	@$(PY) -m tests.soak $(ARGS)

.PHONY: screenshot
screenshot: $(VENV)/.dev .tools/.ready ## Make the pictures of the docs from the demo
	@$(PY) -m tests.screenshot docs

.PHONY: lock
lock: ## Take the newest versions of all libraries into constraints.txt
	@rm -rf .lock && $(PYTHON) -m venv .lock
	@.lock/bin/python -m pip install --quiet --upgrade '.[dev]'
	@{ echo "# Versions that were tested together. Made by: make lock"; \
	   .lock/bin/python -m pip freeze --exclude tailscope; } > constraints.txt
	@rm -rf .lock

.PHONY: clean
clean: ## Remove what these targets made
	@rm -rf $(VENV) .tools .lock build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.app: pyproject.toml constraints.txt
	@$(MAKE) venv
	@echo "Installing Tailscope and its app into $(VENV): about a minute."
	@$(AGAIN) $(PIP) --editable '.[app]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@$(MAKE) venv
	@echo "Installing Tailscope and its development tools into $(VENV): about a minute."
	@$(AGAIN) $(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.app

.PHONY: venv
venv:
	@if [ ! -x $(PY) ]; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing)."; \
	    echo "Name another one: make PYTHON=/usr/bin/python3.11 ..."; exit 1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }; \
	  echo "Making the virtual environment $(VENV)."; \
	  $(PYTHON) -m venv $(VENV); \
	fi

.tools/schema/.ready: tests/schema/package.json
	@command -v npm >/dev/null || { echo "npm is missing. On Debian: apt-get install nodejs npm"; exit 1; }
	@echo "Fetching the types of Grafana and Kubernetes into .tools: 70 MB."
	@mkdir -p $(@D) && cp tests/schema/package.json $(@D)/
	@$(AGAIN) npm install --prefix $(@D) --ignore-scripts --no-audit --no-fund --legacy-peer-deps --silent
	@touch $@

.tools/.ready: tests/setup.sh
	@bash tests/setup.sh
	@touch $@
