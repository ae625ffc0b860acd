# Every target sets itself up: it needs nothing but python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Hashes of every platform's files, and no address: where packages come from is the machine's affair.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet --no-header \
	--no-emit-index-url --no-emit-find-links
UPGRADE ?= --upgrade
# Many tests wait for processes that they started, so more of them run at once than there are cores.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench drills soak rolling image wheel lock digests clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /: /'

setup: $(READY)  ## make .venv with the locked versions

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)  ## what volsched does, in a few seconds: placing, explaining, a crash, a rollback, the proof
	$(BIN)/volsched demo

test: lint  ## lint, types, import contract, then all tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(READY)  ## ruff, mypy --strict, import-linter, and what keeps the house in order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.house

bench: $(READY)  ## what our work costs, as ratios to baselines measured in the same run
	$(BIN)/volsched bench decide
	$(BIN)/volsched bench log
	$(BIN)/volsched bench bind
	$(BIN)/volsched bench replay
	$(BIN)/volsched bench restart
	$(BIN)/volsched bench audit

soak: $(READY)  ## pods come and go for MINUTES=60, half of it embedded, half on the stack; no process may grow
	$(BIN)/python -m tests.lab.soak --on sqlite --minutes $$(( $(or $(MINUTES),60) / 2 ))
	$(BIN)/python -m tests.lab.soak --on stack --minutes $$(( $(or $(MINUTES),60) / 2 ))

drills: $(READY)  ## the long drills: SIM=1..10000 simulated runs, SEEDS=1..250 of stepped crashes, KILLS=5 minutes of kill -9
	$(BIN)/volsched drill run sim --seeds $(or $(SIM),1..10000) --keep drill-failures
	VOLSCHED_DRILL_SEEDS=$(or $(SEEDS),1..250) $(BIN)/python -m pytest -n auto tests/lab
	$(BIN)/python -m tests.stack.random_kills --minutes $(or $(KILLS),5)
	VOLSCHED_LIVE_ALL=1 $(BIN)/python -m pytest tests/live/test_scenarios_on_the_stack.py

rolling: $(READY)  ## every service of a stack restarted under load: what was lost, what was doubled
	$(BIN)/python -m tests.stack.rolling

image: $(READY)  ## the Dockerfile's own install commands in a clean directory, without Docker
	$(BIN)/python -m tests.stack.image_steps

lock: $(READY)  ## write the locks anew (newest versions that pyproject.toml allows; UPGRADE= keeps those of now)
	$(PIP) uv
	$(COMPILE) pyproject.toml --all-extras --group build --no-annotate $(UPGRADE) --output-file requirements.lock
	$(COMPILE) pyproject.toml --no-annotate --constraint requirements.lock --output-file locks/base.lock
	$(COMPILE) pyproject.toml --extra stack --extra server --annotation-style line --constraint requirements.lock \
		--output-file locks/image.lock
	$(COMPILE) --group build --no-annotate --constraint requirements.lock --output-file locks/build.lock

wheel: $(READY)  ## build the wheel, with its bill of materials, into dist
	$(BIN)/python -m hatchling build --target wheel

digests: $(READY)  ## write the images' digests beside their tags, where a registry answers (REGISTRY=URL, else Docker's)
	$(BIN)/python -m tools.digests $(if $(REGISTRY),--registry $(REGISTRY))

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
