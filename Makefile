# Every target sets itself up: it needs nothing but python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEB := volsched/console/web
MODULES := $(WEB)/node_modules/.package-lock.json
CONSOLE := volsched/console/static/index.html
BASE := $(VENV)/.base
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Hashes of every platform's files, and no address: where packages come from is the machine's affair.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet --no-header \
	--no-emit-index-url --no-emit-find-links
UPGRADE ?= --upgrade
# Many tests wait for processes that they started, so more of them run at once than there are cores.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench drills soak rolling image compose-smoke wheel console types docs pythons lock digests clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /: /'

setup: $(READY) $(CONSOLE)  ## make .venv with the locked versions, and build the console

$(BASE): pyproject.toml locks/base.lock locks/build.lock
	@echo "installing volsched and the $$(grep -c '==' locks/base.lock) packages that it needs into $(VENV): once, about 20 s"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes --requirement locks/base.lock --requirement locks/build.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(BASE) requirements.lock
	@echo "installing what tests and a local stack need as well, $$(grep -c '==' requirements.lock) packages in all, 600 MB: once, some minutes"
	@$(PIP) --require-hashes --requirement requirements.lock
	@touch $@

$(MODULES): $(WEB)/package-lock.json | $(READY)
	@echo "installing what builds and tests the console, 200 MB: once"
	@$(BIN)/python -m tools.npm ci --loglevel=error
	@touch $@

$(CONSOLE): $(MODULES) $(WEB)/package.json $(WEB)/index.html $(WEB)/vite.config.ts $(shell find $(WEB)/src $(WEB)/public -type f)
	@$(BIN)/python -m tools.npm run build --silent

console: $(CONSOLE)  ## build the console, which `volsched up` serves under /ui/

types: $(MODULES)  ## write the console's types again, from our OpenAPI document
	$(BIN)/python -m tools.console_types > $(WEB)/node_modules/.openapi.json
	$(BIN)/python -m tools.npm run types --silent

demo: $(BASE)  ## what volsched does, in a few seconds: placing, explaining, a crash, a rollback, the proof
	$(BIN)/volsched demo

test: lint $(CONSOLE)  ## lint, types, import contract, then all tests
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

drills: $(READY)  ## the long drills: SIM=1..10000 simulated runs, SEEDS=1..250 of stepped crashes, KILLS=5 minutes of kill -9, all examples of properties
	$(BIN)/volsched drill run sim --seeds $(or $(SIM),1..10000) --keep drill-failures
	VOLSCHED_TEST_FULL=1 VOLSCHED_DRILL_SEEDS=$(or $(SEEDS),1..250) $(BIN)/python -m pytest -n auto tests/lab
	VOLSCHED_TEST_FULL=1 $(BIN)/python -m pytest -n auto -m extended
	$(BIN)/python -m tests.stack.random_kills --minutes $(or $(KILLS),5)
	VOLSCHED_TEST_FULL=1 $(BIN)/python -m pytest tests/live/test_scenarios_on_the_stack.py

rolling: $(READY)  ## every service of a stack restarted under load: what was lost, what was doubled
	$(BIN)/python -m tests.stack.rolling

image: $(READY)  ## the Dockerfile's own install commands in a clean directory, without Docker
	$(BIN)/python -m tests.stack.image_steps

compose-smoke: $(READY)  ## docker-compose.yml with a real Docker engine: built, started, a pod bound, ended
	$(BIN)/python -m tests.stack.compose_smoke

docs: $(BASE)  ## the site of the documents into site, strictly: every link leads somewhere, nothing is fetched by a reader
	@$(PIP) --require-hashes --requirement locks/docs.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

pythons: $(READY)  ## base, server and a local stack on other Pythons: PYTHONS="3.12 3.13 3.14", names or paths
	$(PIP) uv
	$(BIN)/python -m tests.project.pythons --uv $(BIN)/uv $(or $(PYTHONS),3.11 3.12 3.13 3.14)

lock: $(READY)  ## write the locks again (newest versions that pyproject.toml allows; UPGRADE= keeps those of now)
	$(PIP) uv
	$(COMPILE) pyproject.toml --all-extras --group build --no-annotate $(UPGRADE) --output-file requirements.lock
	$(COMPILE) pyproject.toml --no-annotate --constraint requirements.lock --output-file locks/base.lock
	$(COMPILE) pyproject.toml --extra cluster --extra stack --extra server --annotation-style line --constraint requirements.lock \
		--output-file locks/image.lock
	$(COMPILE) --group build --no-annotate --constraint requirements.lock --output-file locks/build.lock
	$(COMPILE) --group console --no-annotate --constraint requirements.lock --output-file locks/console.lock
	$(COMPILE) --group docs --no-annotate --constraint requirements.lock --output-file locks/docs.lock
	$(BIN)/python -m tools.npm lock

wheel: $(READY) $(CONSOLE)  ## build the wheel, with its bill of materials, into dist
	$(BIN)/python -m hatchling build --target wheel

digests: $(READY)  ## write the images' digests beside their tags, where a registry answers (REGISTRY=URL, else Docker's)
	$(BIN)/python -m tools.digests $(if $(REGISTRY),--registry $(REGISTRY))

clean:  ## remove .venv and caches
	rm -rf $(VENV) $(WEB)/node_modules $(dir $(CONSOLE)) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
