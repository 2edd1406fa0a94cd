# Requirements: Python 3.11 to 3.14, Java 17 or newer, network access. `make` alone prints the list of targets.

VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.set-up
# What `make demo` needs of it: a third of the time.
DEMO  := $(VENV)/.set-up-for-the-demo
OF_DEMO := demo,metrics,top,ui

# The interpreter that creates the environment. Empty: the first of these that is new enough and has venv and pip.
PYTHON  ?=
PYTHONS := python3 python3.13 python3.12 python3.11 python3.14 python

# Spark and Python settings of the user's other work must not affect this project.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help setup test sentinels nightly test-jobs test-page test-upgrade test-connect test-versions faults lint format docs notebooks simulate soak kafka demo demo-kafka demo-orders bench bench-floor bench-kafka bench-peers bench-punctual bench-store bench-watch bench-page bench-api bench-s3 bench-start bench-step package clean distclean

help: ## print this list
	@echo "wheel_udf: a delay scheduler on Spark."
	@echo
	@echo "First:  make demo    run a year of real departures through the wheel and draw the result (about 2 minutes)"
	@echo "Then:   make test    run the tests (about 10 minutes)"
	@echo
	@echo "Each creates $(VENV) on first use (2 to 4 minutes). Requirements: Python 3.11 to 3.14, Java 17 or newer, network access."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make setup PYTHON=/path/to/python3.12    use this interpreter"
	@echo "  make test ARGS='tests/unit -k wheel'     run some of the tests"
	@echo "  make faults ARGS=--share=0.1             a tenth of the crash matrix, with each point once"

setup: $(STAMP) ## create .venv with Python packages and JVM jars (again when pyproject.toml, conf/constraints.txt or conf/ivy.xml change)

# What `make test` leaves out: jobs from end to end, with restarts and moves; each form of a table, a header, a broker; processes that are killed or
# submitted; the page; Spark Connect; what an upgrade of Spark or Delta may break. `make sentinels` runs one of each kind, `make nightly` all of them.
JOBS   := tests/delta/job tests/kafka/job tests/delta/transfer tests/delta/tiered/test_tiered.py tests/delta/tiered/test_limits.py tests/delta/tiered/test_same_rows.py \
          tests/delta/pending/test_acts_on_state.py tests/delta/pending/test_acts.py tests/delta/pending/test_series.py tests/delta/pending/test_in_store.py \
          tests/delta/names tests/delta/delivery/test_retries.py tests/delta/commands/test_change_feed.py tests/delta/tiered/test_keeper.py \
          tests/delta/delivery/test_hostile_names.py tests/kafka/punctual/test_punctual.py tests/spark/job/test_job.py tests/s3/test_jobs_on_s3.py tests/hdfs \
          tests/delta/tiered/test_series.py tests/delta/tiered/test_fire_now.py tests/kafka/delivery/test_retries.py tests/kafka/pending/test_redrive.py \
          tests/delta/delivery/test_deliver.py tests/delta/sinks/test_sinks.py tests/delta/tables/test_append_once.py tests/spark/commands/test_header_names.py \
          tests/kafka/testing/test_broker.py tests/spark/job/test_answers.py tests/delta/store/test_slot_store.py tests/kafka/sinks/test_sink.py \
          tests/delta/tiered/test_modes.py tests/unit/simulation/test_simulation.py tests/delta/pending/test_without_spark.py \
          tests/s3/test_tables.py tests/spark/job/test_sources.py tests/spark/job/test_first_job.py tests/unit/replay/test_replay.py \
          tests/unit/soak/test_soak.py tests/kafka/pending/test_history.py
FAULTS := tests/faults tests/cluster tests/s3/test_cluster.py tests/s3/test_frozen_driver.py
PAGE   := tests/page
UPGRADE := tests/upgrade
CONNECT := tests/connect
# On Spark 4.0 and 4.1 alone: `make test-versions`.
ICEBERG := tests/iceberg

# Two processes: one JVM each keeps one core busy with planning; a third one made the whole slower.
test: $(STAMP) ## run the tests (ARGS=... is passed to pytest)
	@$(PY) -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=30 $(addprefix --ignore=,$(JOBS) $(FAULTS) $(PAGE) $(UPGRADE) $(CONNECT) $(ICEBERG)) $(ARGS)

sentinels: $(STAMP) ## run one job of each mode for each kind of test that `make test` leaves out (ARGS=... is passed to pytest)
	@$(PY) -m pytest -m sentinel --numprocesses=2 --dist=load --maxschedchunk=1 --interpreted --durations=10 $(JOBS) $(FAULTS) $(PAGE) $(ARGS)

nightly: $(STAMP) ## run everything else, stage by stage, about two and a half hours; ends with a table (ARGS='jobs page': these stages)
	@$(PY) -m tests.nightly $(ARGS)

test-jobs: $(STAMP) ## run the tests of whole jobs: configs, restarts, moves (ARGS=... is passed to pytest)
	@$(PY) -m pytest --numprocesses=2 --dist=load --maxschedchunk=1 --interpreted --durations=10 $(JOBS) $(ARGS)

test-page: $(STAMP) ## run the tests of the page in a real browser (needs chromium and chromedriver; ARGS=... is passed to pytest)
	@$(PY) -m pytest --durations=10 $(PAGE) $(ARGS)

test-upgrade: $(STAMP) ## run the tests of each private interface of Spark and Delta that is used (ARGS=... is passed to pytest)
	@$(PY) -m pytest --durations=10 $(UPGRADE) $(ARGS)

test-connect: $(STAMP) ## run a client without JVM against a Spark Connect server, and kill both (ARGS=... is passed to pytest)
	@$(PY) -m pytest --durations=10 $(CONNECT) $(ARGS)

test-versions: $(STAMP) ## run jobs on Spark 4.0 and 4.1, and move them to 4.2 and back, about an hour (ARGS='4.0 --checks month': some of it)
	@$(PY) -m tests.versions $(ARGS)

faults: $(STAMP) ## kill drivers, workers and executors, and check what was delivered (ARGS=... is passed to pytest)
	@$(PY) -m pytest --numprocesses=2 --dist=load --maxschedchunk=1 --durations=10 $(FAULTS) $(ARGS)

lint: $(STAMP) ## check code (ruff, mypy --strict) and documentation (links, versions)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pytest --quiet --no-header tests/unit/docs

format: $(STAMP) ## format the code with ruff
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: $(STAMP) ## build the documentation site in build/site (installs mkdocs on first use)
	@$(PY) -c 'import mkdocs, mkdocstrings' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check -c conf/constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
	@echo "build/site/index.html"

notebooks: $(STAMP) ## execute the notebooks and write their rendered .ipynb (ARGS=01: those whose name begins so; ARGS=--changed)
	@$(PY) notebooks/render.py $(ARGS)

simulate: $(STAMP) ## run 20,000 seeds of the simulated protocol and its planted faults (ARGS='--seed 7 --mode tiered': one seed)
	@$(PY) -m tests.simulation $(or $(ARGS),--seeds 20000 --faults)

soak: $(STAMP) ## run each mode for 30 minutes at a steady rate; nothing may grow (ARGS='--total-minutes 5': all in five minutes)
	@$(PY) -m tests.soak $(ARGS)

kafka: $(STAMP) ## start a Kafka broker on 127.0.0.1:9092 to try with, until Ctrl-C (ARGS='--topic orders': with a topic)
	@$(PY) -m wheel_udf broker $(ARGS)

demo: $(DEMO) ## run a year of real departures through the wheel (ARGS=--tiered: with a slot store)
	@$(PY) -m jobs.demos.departures $(ARGS)

demo-kafka: $(STAMP) ## run 20,000 commands through a Kafka broker and measure lateness at a consumer (ARGS=--kill: with a kill -9)
	@$(PY) -m jobs.demos.kafka $(ARGS)

demo-orders: $(STAMP) ## run 200,000 orders and their payments through Kafka and the purgatory
	@$(PY) -m jobs.demos.orders $(ARGS)

bench: $(STAMP) ## measure the wheel against a naive query
	@$(PY) -m tests.bench.run $(ARGS)

bench-step: $(STAMP) ## measure the step of one shard at few and many pending entries, and a backlog under a limit (no Spark)
	@$(PY) -m tests.bench.step_run $(ARGS)

bench-floor: $(STAMP) ## measure a batch beside Spark's own, Kafka to Kafka, when every row is due at once
	@$(PY) -m tests.bench.floor_run $(ARGS)

bench-kafka: $(STAMP) ## measure Kafka to Kafka: lateness and throughput at a consumer
	@$(PY) -m tests.bench.kafka_run $(ARGS)

bench-peers: $(STAMP) ## measure our scheduler beside BullMQ, db-scheduler, RocketMQ 5 and NATS (ARGS='--only nats --cases kill': some of it)
	@$(PY) -m tests.bench.peers.run $(ARGS)

bench-punctual: $(STAMP) ## measure punctual delivery beside the present way: lateness at a consumer
	@$(PY) -m tests.bench.punctual_run $(ARGS)

bench-store: $(STAMP) ## measure the slot store at rising numbers of pending entries
	@$(PY) -m tests.bench.store_run $(ARGS)

bench-watch: $(STAMP) ## measure the purgatory at rising numbers of pending operations
	@$(PY) -m tests.bench.watch_run $(ARGS)

bench-page: $(STAMP) ## measure the page over millions of pending entries: first figures, search, refresh
	@$(PY) -m tests.bench.page_run $(ARGS)

bench-api: $(STAMP) ## measure questions to a running job with millions of pending entries, from the shell to the answer
	@$(PY) -m tests.bench.api_run $(ARGS)

bench-start: $(STAMP) ## measure a start to its first delivery, and a kill -9 to the next delivery (ARGS='--beside TREE': of another tree, too)
	@$(PY) -m tests.bench.start_run $(ARGS)

bench-s3: $(STAMP) ## measure requests and seconds of jobs whose files are in a bucket, beside Spark's own query
	@$(PY) -m tests.bench.s3_run $(ARGS)

package: $(STAMP) ## build dist/: a Python wheel, and the same as wheel_udf.zip for the executors of a cluster
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@cp dist/wheel_udf-$$($(PY) -c 'import wheel_udf; print(wheel_udf.__version__)')-py3-none-any.whl dist/wheel_udf.zip
	@ls dist

clean: ## remove data and caches, keep .venv
	rm -rf data build dist spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf $(VENV)

# $(1): extras of pyproject.toml; $(2): configurations of conf/ivy.xml.
# The jars take as long as the packages and need only the Ivy in pyspark, so both are downloaded at the same time.
define set_up
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
	PYTHONDONTWRITEBYTECODE=1 $$python -m wheel_udf.spark.jars --check-java; \
	echo "setting up $(VENV) for $(3) with $$($$python --version), $(4); after Ctrl-C the same command goes on"; \
	echo "1 of 3: the environment"; \
	{ $(PY) -c "$$usable" && $(PY) -m pip --version; } >/dev/null 2>&1 || $$python -m venv --clear $(VENV); \
	pip="$(PY) -m pip install --quiet --disable-pip-version-check --constraint conf/constraints.txt"; \
	$$pip --no-deps $$(grep -o '^pyspark==[0-9.]*' conf/constraints.txt) || true; \
	echo "2 of 3: pyspark, then JVM jars beside the Python packages"; \
	trap 'kill $$jars 2>/dev/null; exit 130' INT TERM; \
	$(PY) -m wheel_udf.spark.jars $(2) & jars=$$!; \
	$$pip --editable .[$(1)] || { echo "pip failed, trying again" >&2; $$pip --editable .[$(1)]; }; \
	echo "3 of 3: Python packages are complete, waiting for the jars"; \
	wait $$jars || $(PY) -m wheel_udf.spark.jars $(2)
endef

$(STAMP): pyproject.toml conf/constraints.txt conf/ivy.xml
	$(call set_up,dev,spark s3 database broker hdfs,everything,2 to 4 minutes)
	@echo "byte code and a class archive, so that Python and the JVM start faster (half a minute to a minute)"
	@$(PY) -m wheel_udf.spark.fast_start
	@touch $(DEMO) $@

# Without what shortens a start: making it takes longer than it saves in one run.
$(DEMO): pyproject.toml conf/constraints.txt conf/ivy.xml
	$(call set_up,$(OF_DEMO),spark,the demo,1 to 2 minutes)
	@touch $@
