# Everything a newcomer needs: Python 3.11 to 3.14, Java 17 or newer, and this file. `make` alone says what to do first.

VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.set-up

# The interpreter that makes the environment. Empty: the first of these that is new enough and can make one (a shim may not run at all).
PYTHON  ?=
PYTHONS := python3 python3.13 python3.12 python3.11 python3.14 python

# A Spark, a Python path or Spark settings of the user's other work must not leak in here.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help setup test lint format demo demo-kafka demo-orders bench bench-kafka bench-store bench-watch package clean distclean

help: ## this page
	@echo "wheel_udf: a delay scheduler on Spark."
	@echo
	@echo "First:  make demo    a year of real departures through the wheel, with a picture at the end"
	@echo "Then:   make test    everything is checked on your machine"
	@echo
	@echo "Both set up $(VENV) by themselves (1 to 3 minutes, once). They need Python 3.11 to 3.14, Java 17 or newer and the network."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make setup PYTHON=/path/to/python3.12    with an interpreter of your choice"
	@echo "  make test ARGS='tests/unit -k wheel'     some of the tests"

setup: $(STAMP) ## the environment in .venv: Python packages and JVM jars (again only when pyproject.toml or conf/ivy.xml change)

test: $(STAMP) ## all tests (ARGS=... goes to pytest)
	@$(PY) -m pytest --numprocesses=auto --maxprocesses=2 --dist=loadfile --no-loadscope-reorder $(ARGS)

lint: $(STAMP) ## ruff (rules and format) and mypy --strict
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(STAMP) ## let ruff put the code in order
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

demo: $(STAMP) ## a year of real departures through the wheel (ARGS=--tiered: most of it in a slot store)
	@$(PY) jobs/demo_departures.py $(ARGS)

demo-kafka: $(STAMP) ## 20,000 commands through a real Kafka broker, with the lateness seen from outside (ARGS=--kill: kill -9 in the middle)
	@$(PY) jobs/demo_kafka.py $(ARGS)

demo-orders: $(STAMP) ## 200,000 orders and their payments through Kafka and the purgatory: a simulated day, then two minutes of the wall clock
	@$(PY) jobs/demo_orders.py $(ARGS)

bench: $(STAMP) ## measure the wheel against what it replaces
	@$(PY) -m tests.bench.run $(ARGS)

bench-kafka: $(STAMP) ## Kafka to Kafka: lateness and throughput as a consumer sees them
	@$(PY) -m tests.bench.kafka_run $(ARGS)

bench-store: $(STAMP) ## the slot store at rising numbers of pending entries
	@$(PY) -m tests.bench.store_run $(ARGS)

bench-watch: $(STAMP) ## the purgatory at rising numbers of pending operations
	@$(PY) -m tests.bench.watch_run $(ARGS)

package: $(STAMP) ## dist/: a wheel, and the same as wheel_udf.zip for the executors of a cluster
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@cp dist/wheel_udf-$$($(PY) -c 'import wheel_udf; print(wheel_udf.__version__)')-py3-none-any.whl dist/wheel_udf.zip
	@ls dist

clean: ## remove what runs have made (data, caches), keep .venv
	rm -rf data build dist spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf $(VENV)

# The jars take as long as the packages and need only Spark's own (its Ivy), so they come side by side.
$(STAMP): pyproject.toml conf/ivy.xml
	@set -e; \
	python="$(PYTHON)"; usable='import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; \
	for candidate in $${python:-$(PYTHONS)}; do \
	  if $$candidate -c "$$usable" >/dev/null 2>&1; then python=$$candidate; found=yes; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	  echo "error: no usable Python: $${python:-none of $(PYTHONS)}; rule: 3.11 to 3.14, with venv and pip (Debian: apt install python3-venv);" \
	       "hint: make setup PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	PYTHONDONTWRITEBYTECODE=1 $$python -m wheel_udf.jars --check-java; \
	echo "setting up $(VENV) with $$($$python --version), 1 to 3 minutes"; \
	$(PY) -c "$$usable" >/dev/null 2>&1 || $$python -m venv --clear $(VENV); \
	pip="$(PY) -m pip install --quiet --no-compile --disable-pip-version-check"; \
	$$pip --no-deps $$(grep -o 'pyspark==[0-9.]*' pyproject.toml) || true; \
	$(PY) -m wheel_udf.jars spark broker & jars=$$!; \
	$$pip --editable .[dev] || { echo "once more" >&2; $$pip --editable .[dev]; }; \
	wait $$jars || $(PY) -m wheel_udf.jars spark broker; \
	touch $@
