# Everything happens in .venv and .venv-*: nothing is installed outside the checkout, and `make clean` undoes it.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
# What builds the documentation's site, which the tests do not need.
DOCS_STAMP := $(VENV)/.installed-docs
# Prefect and Airflow need other versions of what the tests need, so what runs inside them has environments of its own.
PREFECT := .venv-prefect
PREFECT_STAMP := $(PREFECT)/.installed
AIRFLOW := .venv-airflow
AIRFLOW_STAMP := $(AIRFLOW)/.installed
# Each system of the catalogue has an environment of its own; make catalogue SYSTEMS=celery proves one.
CATALOGUE := .venv-catalogue
INSTALLED := $(basename $(notdir $(wildcard tests/catalogue/in_systems/*.txt tests/catalogue/in_systems/*.json)))
SYSTEMS ?= $(INSTALLED) $(subst _,-,$(basename $(notdir $(wildcard tests/catalogue/schemas/[a-z]*.py))))
PREFECT_FILES := tests/contrib/in_prefect/requirements.txt tests/contrib/in_prefect/constraints.txt
# Tests wait for databases, disks and each other about half of their time: four workers keep two small cores busy. They
# are forks, so one more costs no start.
WORKERS ?= 4
# How many sweeps `make crash` kills, on each store.
KILLS   ?= 200
# How many seconds `make soak` takes, on each store.
SOAK    ?= 60
# How many mutations `make mutations` tries at a time.
JOBS    ?= 2
# How many minutes the tests may take before the run ends as a failure.
MINUTES ?= 90
# What to run, for example: make test TESTS="tests/prune -k cutoff"
TESTS   ?= tests

# The tests start hundreds of processes: each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help setup prefect airflow catalogue deploy demo test check lint format docs bench crash soak cluster \
  mutations clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the package, all extras and the test tools
	@:

$(STAMP): pyproject.toml constraints.txt .ci/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Wane needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Name another one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || { \
	  echo "setting up $(VENV): about a minute the first time"; $(PYTHON) -m venv $(VENV); } || { \
	  rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu it needs the package python3-venv." >&2; exit 1; }
	@echo "installing wane, its extras and the test tools into $(VENV)"
	@$(BIN)/python .ci/install.py --editable '.[all,dev]' --constraint constraints.txt
	@$(BIN)/python -c "import wane"
	@touch $@
	@echo "ready: $(BIN)/wane"

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python .ci/install.py --editable '.[docs]' --constraint constraints.txt
	@touch $@

prefect: setup $(PREFECT_STAMP) ## run Prefect's own suite, and servers of Prefect, in .venv-prefect
	@$(BIN)/pytest -m prefect --numprocesses 2 tests/contrib

$(PREFECT_STAMP): $(PREFECT_FILES)
	@test -x $(PREFECT)/bin/python || $(PYTHON) -m venv $(PREFECT)
	@echo "installing Prefect into $(PREFECT): about a minute"
	@$(PREFECT)/bin/python -m pip install --quiet --requirement $<
	@touch $@

airflow: setup $(AIRFLOW_STAMP) ## run a DAG with Wane's operator and sensor in Airflow, in .venv-airflow
	@$(BIN)/pytest -m airflow --numprocesses 0 tests/contrib

$(AIRFLOW_STAMP): tests/contrib/in_airflow/requirements.txt
	@test -x $(AIRFLOW)/bin/python || $(PYTHON) -m venv $(AIRFLOW)
	@echo "installing Airflow into $(AIRFLOW): about two minutes"
	@$(AIRFLOW)/bin/python -m pip install --quiet --requirement $<
	@touch $@

deploy: setup $(DOCS_STAMP) ## execute the steps of deploy/Dockerfile, and build the site of the documentation
	@$(BIN)/pytest -m deploy --numprocesses 0 tests/deploy tests/docs

catalogue: $(patsubst %,$(CATALOGUE)/%/.installed,$(filter $(INSTALLED),$(SYSTEMS)))
catalogue: setup ## compare the catalogue's contracts with the systems' own cleaners
	@rm -f $(CATALOGUE)/proof.jsonl
	@WANE_CATALOGUE_RECORD=$(CATALOGUE)/proof.jsonl $(BIN)/pytest -m "" --numprocesses 0 tests/catalogue/test_proof.py \
	  -k "$(subst $(eval ) , or ,$(strip $(SYSTEMS)))"
	@$(BIN)/python docs/generate_catalogue.py $(CATALOGUE)/proof.jsonl

$(CATALOGUE)/%/.installed: tests/catalogue/in_systems/%.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo "installing $* into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --ignore-requires-python --requirement $<
	@touch $@

# A system of npm. Without a lock file: what it depends on is as new as its own package allows.
$(CATALOGUE)/%/.installed: tests/catalogue/in_systems/%.json
	@command -v npm >/dev/null || { echo "$* needs Node.js 20 or newer, with npm" >&2; exit 1; }
	@mkdir -p $(@D) && cp $< $(@D)/package.json
	@echo "installing $* into $(@D)"
	@npm install --prefix $(@D) --no-package-lock --no-audit --no-fund --loglevel error
	@touch $@

demo: setup ## build a sample database and walk through the main job
	@$(BIN)/wane demo

# Lint runs beside the first tests. Its output appears at once when it fails, and not at all when it passes, so that the
# last line is pytest's.
test: setup ## lint, type-check and test against real databases
	@output=$$(mktemp); trap 'rm -f "$$output"' EXIT; \
	{ $(MAKE) --no-print-directory lint >"$$output" 2>&1 || { cat "$$output" >&2; exit 1; }; } & lint=$$!; \
	code=0; $(BIN)/pytest --numprocesses $(WORKERS) --run-minutes $(MINUTES) \
	  --durations=25 $(if $(ALL),--all) $(if $(BOTH),--both-servers) $(TESTS) || code=$$?; \
	wait $$lint || { \
	  echo "lint failed: its output is above, or repeat it with make lint" >&2; test $$code != 0 || code=1; }; \
	exit $$code

check: ## everything: all tests on both PostgreSQL servers, and all other commands that test
	@$(MAKE) --no-print-directory test ALL=1 BOTH=1 MINUTES=600 WANE_EXAMPLES=1000
	@$(MAKE) --no-print-directory prefect
	@$(MAKE) --no-print-directory airflow
	@$(MAKE) --no-print-directory catalogue
	@$(MAKE) --no-print-directory deploy
	@$(MAKE) --no-print-directory crash
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory cluster
	@$(MAKE) --no-print-directory mutations

lint: setup ## ruff, mypy (strict) and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: setup $(DOCS_STAMP) ## rewrite the generated tables of the reference, and build the site into site/
	@for script in docs/generate_*.py; do $(BIN)/python $$script || exit 1; done
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: setup ## run all benchmarks, one at a time, and write their summary; QUICK=1, PEERS=DIR
	@$(BIN)/python -m bench.start
	@$(BIN)/python -m bench.prune --cpu $(if $(QUICK),--rows 200000 --idle-rows 400000 --rounds 1 \
	  --foreground-rows 1000000 --foreground-seconds 2 --foreground-rounds 1)
	@$(BIN)/python -m bench.caps --cpu $(if $(QUICK),--rounds 1)
	@$(BIN)/python -m bench.systems --cpu $(if $(QUICK),--rows 20000 --rounds 1)
	@$(BIN)/python -m bench.check_plan --cpu $(if $(QUICK),--rows 500000 --rounds 3)
	@$(BIN)/python -m bench.health --cpu $(if $(QUICK),--rows 500000 --rounds 3)
	@$(BIN)/python -m bench.web $(if $(QUICK),--rows 500000 --rounds 5 --requests 200)
	@$(if $(PEERS),$(PEERS)/bin/python,$(BIN)/python) -m bench.queue --cpu \
	  $(if $(QUICK),--pending 1000 --workers 1 --seconds 1 --rounds 1)
	@$(if $(PEERS),$(PEERS)/bin/python -m bench.peers --cpu $(if $(QUICK),--rows 20000 --rounds 1))
	@$(BIN)/python -m bench.partition $(if $(QUICK),--rows 100000 --rounds 1)
	@$(BIN)/python -m bench.archive $(if $(QUICK),--rows 50000 --rounds 1)
	@$(BIN)/python -m bench.archive --cold 30000
	@$(BIN)/python -m bench.archive --scale 5 --rows $(if $(QUICK),100000,10000000)
	@$(BIN)/python -m bench.archive --files $(if $(QUICK),100,1000)
	@$(BIN)/python -m bench.archive --cluster --rows $(if $(QUICK),10000,40000)
	@$(BIN)/python -m bench.fleet --members $(if $(QUICK),10,1000)
	@$(BIN)/python -m bench.summary

crash: setup ## kill sweeps at random times, hundreds of times on each store
	@WANE_KILLS=$(KILLS) $(BIN)/pytest -m crash --all --numprocesses 0 -rP tests/crash

soak: setup ## run ten processes for a minute on each store, killed and stopped at random
	@WANE_SOAK_SECONDS=$(SOAK) $(BIN)/pytest -m soak --all --numprocesses 0 -rP tests/schedule

cluster: setup ## archive on a Spark cluster and over Spark Connect, both of its own, and kill their drivers
	@$(BIN)/pytest -m cluster --all --numprocesses 0 tests/archive

mutations: setup ## remove every guard in turn and see a named test fail
	@$(BIN)/python tests/mutations/run.py --jobs $(JOBS)

clean: ## remove all environments, caches and everything that was built
	@rm -rf $(VENV) $(PREFECT) $(AIRFLOW) $(CATALOGUE) build dist site .demo \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
