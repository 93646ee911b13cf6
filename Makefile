# Every target does its own set-up first; a second run finds it done and needs no network.
PYTHON ?= python3
SEED ?= 1
SEEDS ?=
STATES ?= 24000
ROUNDS ?= 50
KILLS ?= 102
CHAOS_S ?= 1800
LIVES ?= 10
SECONDS ?= 60
ARGS ?=
JOBS ?= 2
TESTS ?= tests

export PYTHONHASHSEED := 0
# What is loaded is compiled once, also where a shell forbids to keep it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup setup-python setup-run setup-slow setup-demo demo demo-matrix demo-rocketmq kills test test-fast explore test-slow test-earlier-rocketmq test-wheel new-lives record-mqadmin sim crash-states kill-loop chaos chaos-control kill-scheduler kill-alerts fuzz mutants check format bench clean

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

setup:  ## Bring everything: environment, Java, jars, browser.
	@$(PYTHON) -m provision test

setup-python:  ## Bring the Python environment alone: no Java, no browser.
	@$(PYTHON) -m provision python

setup-run:  ## Bring what the product needs, without what only tests need.
	@$(PYTHON) -m provision run

setup-slow:
	@$(PYTHON) -m provision slow

setup-demo:
	@$(PYTHON) -m provision $(if $(findstring --rocketmq,$(ARGS)),rocketmq,run)

demo: setup-demo  ## Play a cluster with incidents; ARGS="--for 120 --headless" is passed on.
	.venv/bin/tidemark demo $(ARGS)

demo-matrix: setup-demo  ## The demo with three seeds and with each incident left out.
	.venv/bin/python -m demo.matrix $(ARGS)

demo-rocketmq: setup  ## The demo on a real RocketMQ once, as a test: all is found, nothing stays.
	.venv/bin/pytest -m slow tests/interop/test_demo_on_rocketmq.py

kills: setup-run  ## Kill brokers and consumers, KILLS=102 times, and score what was predicted.
	.venv/bin/tidemark experiment kills --kills $(KILLS) --seed $(SEED) $(ARGS)

test: setup  ## The whole suite, shared by JOBS=2 processes.
	.venv/bin/pytest -n $(JOBS) $(TESTS)

test-fast: setup-python  ## Unit, property and architecture tests that are quick; without Java and browser.
	.venv/bin/pytest -n $(JOBS) tests/unit tests/property tests/architecture --fast

explore: setup  ## The properties, with examples that no run had before.
	.venv/bin/pytest -n $(JOBS) --hypothesis-profile=explore -m "hypothesis and not slow" $(TESTS)

test-slow: setup-slow  ## The long tests that the suite leaves out.
	.venv/bin/pytest -m slow $(TESTS)

test-earlier-rocketmq: setup-slow  ## A RocketMQ 4.9.7, watched from outside, as a test.
	.venv/bin/pytest -m slow tests/interop/test_observed_earlier_rocketmq.py tests/interop/test_observed_with_earlier_accounts.py

test-wheel: setup  ## The built wheel in fresh environments, of each Python that is found here.
	.venv/bin/pytest -m "slow or not slow" tests/integration/provision/test_the_wheel.py

new-lives: setup-slow  ## Topics made again under Java's, Go's and C++'s clients, LIVES=10 times each.
	TIDEMARK_LIVES=$(LIVES) .venv/bin/pytest -s -m slow tests/interop/test_new_lives.py

record-mqadmin: setup  ## Record again what mqadmin prints on a real RocketMQ.
	.venv/bin/python -m tests.interop.record_mqadmin

sim: setup-python  ## The simulation with one seed, SEED=1234, or with many, SEEDS=500 or SEEDS=100-199.
	$(if $(SEEDS),.venv/bin/python -m tests.simulation --seeds $(SEEDS),TIDEMARK_SEED=$(SEED) .venv/bin/pytest tests/simulation)

crash-states: setup  ## What a power cut may leave, in many more states than the suite; STATES=24000.
	TIDEMARK_CRASH_STATES=$(STATES) TIDEMARK_SEED=$(SEED) .venv/bin/pytest -s tests/simulation/test_crash_states.py

kill-loop: setup  ## kill -9 of a broker under load, ROUNDS=50 times per flush mode.
	TIDEMARK_KILL_ROUNDS=$(ROUNDS) TIDEMARK_SEED=$(SEED) .venv/bin/pytest -m "" tests/integration/broker/test_kill_loop.py

chaos: setup  ## Break a Raft group, and masters with slaves, for CHAOS_S=1800 s; writes docs/chaos.md.
	unshare -Urnm .venv/bin/python -m tests.chaos --seconds $(CHAOS_S) --seed $(SEED) --report docs/chaos.md

chaos-control: setup  ## The same clients and faults with Apache RocketMQ's DLedger; docs/chaos-control.md.
	unshare -Urnm .venv/bin/python -m tests.chaos --modes DLEDGER --seconds $(CHAOS_S) --seed $(SEED) --report docs/chaos-control.md

kill-scheduler: setup  ## kill -9 of centres and executors, KILLS=102 times on each database.
	TIDEMARK_KILLS=$(KILLS) .venv/bin/pytest -s -m slow tests/integration/scheduler/test_kills_of_centres_and_executors.py

kill-alerts: setup  ## kill -9 of `tidemark alerts run`, KILLS=102 times: what it notified.
	TIDEMARK_KILLS=$(KILLS) .venv/bin/pytest -s -m slow tests/integration/alerting/test_alerts_run_over_kills.py

fuzz: setup  ## Hostile bytes for every decoder, coverage-guided, SECONDS=60 shared by the targets.
	.venv/bin/python -m tests.fuzz --seconds $(SECONDS)

mutants: setup  ## Plant each listed bug in a copy and see its tests fail; ARGS="--only C7" is passed on.
	.venv/bin/python -m tests.mutants $(ARGS)

check: setup-python  ## Lint, format, types, import rules.
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m tests.architecture.declared_packages

format: setup-python  ## Rewrite the code as `make check` wants it.
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

bench: setup  ## Measure throughput, latency, telemetry cost and freshness on this machine.
	.venv/bin/python -m bench $(ARGS)

clean:  ## Remove what runs have left; keep the set-up.
	rm -rf var .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
