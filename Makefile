# Everything runs from a virtual environment in .venv, made on demand and refreshed when pyproject.toml changes.

VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
SEEDS  ?= 1000
HOURS  ?= 4

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help

# say,TEXT: announce a step.
say = @printf '==> %s\n' "$(1)"

.PHONY: help
help: ## show this list
	@printf 'usage: make TARGET [VARIABLE=value]\n\ntargets\n'
	@sed -nE 's/^([a-z][a-z-]*):[^#]*## (.*)$$/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) \
	    | while IFS=$$'\t' read -r name text; do printf '  %-10s %s\n' "$$name" "$$text"; done
	@printf '\nvariables\n'
	@printf '  %-10s %s\n' \
	    JOBS 'parallel test processes ($(JOBS))' \
	    SEEDS 'seeds of "make sim" ($(SEEDS))' \
	    HOURS 'duration of "make soak" ($(HOURS))' \
	    PYTHON 'interpreter for a new .venv (first one found that is >= 3.11)'

# ── environment ──────────────────────────────────────────────────────────────────────────────────────────────────────

# The interpreter is tried, not only looked up: a version manager's shim may exist without a version behind it.
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        printf '==> %s\n' "creating $(VENV) with $$("$$python" --version)"; \
	        exec "$$python" -m venv $(VENV); \
	    fi; \
	done; \
	echo 'no Python >= 3.11 found; name one with make PYTHON=/path/to/python3' >&2; exit 1

# One stamp file per extra. dev and bench bring cli with them. Twice quiet: pip prints errors only.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(call say,installing a3m[$*] into $(VENV))
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
	@case $* in dev | bench) touch $(VENV)/.installed-cli ;; esac

.PHONY: install
install: $(VENV)/.installed-dev ## create .venv and install the package with the development tools

# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: test
test: lint nettools ## run every check and all tests; what CI runs
	$(call say,pytest with $(JOBS) processes)
	@$(BIN)/pytest -n $(JOBS)

# The tests with network namespaces need these. Without them, or without root, those tests skip and say why.
.PHONY: nettools
nettools:
	@missing=; for tool in ip:iproute2 nft:nftables ethtool:ethtool; do \
	    command -v $${tool%%:*} > /dev/null || missing="$$missing $${tool##*:}"; \
	done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    printf '==> %s\n' "installing$$missing for the network tests"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; } \
	        > /dev/null 2>&1 || echo "could not install$$missing; tests that need them will skip" >&2; \
	fi

.PHONY: lint
lint: $(VENV)/.installed-dev ## ruff, mypy and the import contracts
	$(call say,ruff check)
	@$(BIN)/ruff check .
	$(call say,ruff format --check)
	@$(BIN)/ruff format --check .
	$(call say,mypy)
	@$(BIN)/mypy
	$(call say,import contracts)
	@$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.installed-dev ## format the code and apply safe fixes
	$(call say,ruff check --fix)
	@$(BIN)/ruff check --fix .
	$(call say,ruff format)
	@$(BIN)/ruff format .

# ── longer runs ──────────────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: explore
explore: $(VENV)/.installed-dev ## explore all interleavings of the protocol, up to two million states
	$(call say,exploring the protocol)
	@$(BIN)/python -m tests.model.explore --states 2000000
	@$(BIN)/python -m tests.model_links.explore --states 2000000

.PHONY: sim
sim: $(VENV)/.installed-dev ## run SEEDS seeds of every simulated scenario
	$(call say,simulating $(SEEDS) seeds)
	@$(BIN)/python -m exon.simulation --seeds $(SEEDS)

.PHONY: soak
soak: $(VENV)/.installed-dev ## simulate fresh seeds for HOURS hours and print totals
	$(call say,simulating for $(HOURS) hours)
	@$(BIN)/python -m exon.simulation --hours $(HOURS)
	$(call say,hammering sockets for an hour)
	@$(BIN)/python -m tests.a3m.test_hammer --seconds 3600

.PHONY: fuzz
fuzz: $(VENV)/.installed-dev ## feed a million hostile datagrams to a live node
	$(call say,fuzzing)
	@$(BIN)/python -m tests.hostile.fuzz --datagrams 1000000

.PHONY: bench
bench: $(VENV)/.installed-bench ## measure A3M next to other libraries on loopback, in about five minutes
	$(call say,benchmarks)
	@$(BIN)/python -m benchmarks short --seconds 0.5

.PHONY: bench-wan
bench-wan: $(VENV)/.installed-bench nettools ## the same over emulated networks; needs root and takes more than an hour
	$(call say,benchmarks over emulated networks)
	@$(BIN)/python -m benchmarks wan

# ── see it, read it ──────────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: demo
demo: $(VENV)/.installed-cli ## watch the transport work over a bad network
	$(call say,demo)
	@$(BIN)/python -m exon.demo

.PHONY: docs
docs: $(VENV)/.installed-docs ## build the documentation into site/
	$(call say,building the documentation)
	@$(BIN)/mkdocs build --strict

.PHONY: clean
clean: ## remove .venv, caches and everything built
	$(call say,removing $(VENV) and all caches and build products)
	@rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
	    .coverage .coverage.* htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
