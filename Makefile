# The commands people type. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help setup up down demo test lint docs
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

UV := $(shell command -v uv 2>/dev/null || echo .tools/uv/bin/uv)
MVN := $(shell command -v mvn 2>/dev/null || echo ./local_stack/mvnw)
RUN := $(UV) run --frozen --no-sync
STACK_ENV := $(RUN) --env-file .lakehouse/env
JARS := local_stack/target/.complete
VENV := .venv/.complete

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV) $(JARS) ## Install the locked Python environment and the jars

.tools/uv/bin/uv:
	@echo "setup: installing uv into .tools/uv"
	@python3 -m venv .tools/uv || { echo "error: python3 cannot make virtual environments. Run apt-get install python3-venv." >&2; exit 1; }
	@.tools/uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9

$(VENV): pyproject.toml uv.lock | $(filter .tools/%,$(UV))
	@echo "setup: installing the locked Python environment into .venv"
	@$(UV) sync --frozen --quiet --compile-bytecode
	@touch $@

$(JARS): local_stack/pom.xml | $(VENV)
	@$(RUN) lakehouse check java
	@echo "setup: fetching the jars into local_stack/target"
	@$(MVN) --quiet --batch-mode --file local_stack/pom.xml package
	@touch $@

up: setup ## Start broker, registry and Thrift server
	@$(RUN) lakehouse stack up

down: setup ## Stop them; the data stays (lakehouse stack down --wipe deletes it)
	@$(RUN) lakehouse stack down

demo: up ## Sample data through Kafka, ingester, dbt and export to weekly CSV files
	@$(RUN) lakehouse stack sample-data
	@$(RUN) lakehouse ingest run
	@$(RUN) lakehouse ingest verify
	@$(STACK_ENV) dbt --quiet build
	@$(RUN) lakehouse export run
	@echo "The stack is still up. make down stops it."

test: setup lint ## Lint, then run all tests on a stack of their own
	@$(RUN) pytest

lint: $(VENV) ## Check Python, SQL and YAML style; needs no Spark
	@echo "lint: ruff"
	@$(RUN) ruff check --quiet .
	@$(RUN) ruff format --check --quiet .
	@echo "lint: sqlfluff"
	@$(RUN) sqlfluff lint --disable-progress-bar models
	@echo "lint: yamllint"
	@$(RUN) yamllint --strict .

docs: up ## Build the dbt docs into target/static_index.html
	@$(STACK_ENV) dbt --quiet docs generate --static
	@echo "docs: target/static_index.html"
